"""The Temporal test servers: a dev server keeps its workflows when it is killed; the other one skips time."""

import asyncio
import time
from collections.abc import Iterator

import pytest
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

from tests.servers.temporal import TemporalServer, time_skipping_program


@pytest.fixture
def temporal() -> Iterator[TemporalServer]:
    server = TemporalServer()
    server.start()
    yield server
    server.close()


async def begin(target: str) -> None:
    client = await Client.connect(target)
    await client.start_workflow("anything", id="kept", task_queue="nobody-polls")


async def status(target: str) -> str:
    client = await Client.connect(target)
    found = await client.get_workflow_handle("kept").describe()
    return found.status.name if found.status is not None else ""


async def pass_by(hours: int) -> float:
    async with await WorkflowEnvironment.start_time_skipping(test_server_existing_path=time_skipping_program()) as env:
        before = await env.get_current_time()
        await env.sleep(hours * 3600)
        return (await env.get_current_time() - before).total_seconds()


def test_a_workflow_is_there_after_the_dev_server_was_killed(temporal: TemporalServer) -> None:
    asyncio.run(begin(temporal.target))

    temporal.kill()
    gone = not temporal.answers()
    temporal.start()

    assert gone
    assert asyncio.run(status(temporal.target)) == "RUNNING"


def test_a_day_of_the_time_skipping_server_takes_a_moment() -> None:
    began = time.monotonic()

    passed = asyncio.run(pass_by(24))

    assert passed >= 24 * 3600
    assert time.monotonic() - began < 60
