"""LangGraph's own conformance suite, in full, over both stores, and over the synchronous methods, too."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import ALL_CAPABILITIES
from langgraph.checkpoint.conformance.report import CapabilityReport

from milepost.adapters.langgraph import Checkpointer

TESTS = {
    "put": 17, "put_writes": 10, "get_tuple": 10, "list": 16, "delete_thread": 5,
    "delete_for_runs": 7, "copy_thread": 8, "prune": 8,
}  # fmt: skip


class Synchronously(BaseCheckpointSaver[int]):
    """The suite calls asynchronous methods alone; here each of them calls the synchronous one."""

    def __init__(self, real: Checkpointer) -> None:
        super().__init__(serde=real.serde)
        self.real = real

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self.real.get_tuple(config)

    async def alist(self, config: RunnableConfig | None, **options: Any) -> AsyncIterator[CheckpointTuple]:
        for found in self.real.list(config, **options):
            yield found

    async def aput(self, config: RunnableConfig, checkpoint: Any, metadata: Any, new_versions: Any) -> RunnableConfig:
        return self.real.put(config, checkpoint, metadata, new_versions)

    async def aput_writes(self, config: RunnableConfig, writes: Any, task_id: str, task_path: str = "") -> None:
        self.real.put_writes(config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        self.real.delete_thread(thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        self.real.delete_for_runs(run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self.real.copy_thread(source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        self.real.prune(thread_ids, strategy=strategy)


def report(store: str, *, synchronously: bool) -> CapabilityReport:
    @checkpointer_test(name="milepost")
    async def made() -> AsyncIterator[BaseCheckpointSaver[int]]:
        with Checkpointer(store) as checkpointer:
            yield Synchronously(checkpointer) if synchronously else checkpointer

    return asyncio.run(validate(made))


@pytest.mark.parametrize("synchronously", [False, True])
def test_all_that_the_suite_asks_for_passes(store: str, *, synchronously: bool) -> None:
    found = report(store, synchronously=synchronously)

    assert found.passed_all_base(), found.results
    assert found.passed_all(), found.results
    assert {name: result.tests_passed for name, result in found.results.items()} == TESTS
    assert set(TESTS) == {capability.value for capability in ALL_CAPABILITIES}
