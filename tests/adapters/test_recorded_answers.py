"""Agents of frameworks whose model's answers are on record: killed in the middle of tool two of two, and run again.

Each new process is given the key of the run, and nothing else. That of the OpenAI Agents SDK keeps its conversation in
a session where it says so: it has nothing of the killed turn, and the next action does not need it.
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.adapters import outside


@dataclass(frozen=True)
class Framework:
    """A framework's host, its words for the batch of two, and as what it hands out a call that waits."""

    name: str
    unknown: str
    approval: str
    words: tuple[str, ...] = ()

    @property
    def host(self) -> str:
        """The module of its host."""
        return f"tests.adapters.{self.name}.host"


FRAMEWORKS = [
    Framework("pydantic_ai", unknown="call", approval="approval"),
    Framework("openai_agents", unknown="interruption", approval="interruption", words=("session",)),
]
each_framework = pytest.mark.parametrize("framework", FRAMEWORKS, ids=[one.name for one in FRAMEWORKS])


@each_framework
def test_without_milepost_both_tools_act_twice_and_the_model_is_asked_again(
    framework: Framework, tmp_path: Path
) -> None:
    outside.run(framework.host, tmp_path, "two", "bare", kill=True)

    assert outside.run(framework.host, tmp_path, "two", "bare").said["said"] == "reserved, refunded"
    assert sorted(outside.applied(tmp_path)) == ["refund", "refund", "reserve", "reserve"]
    assert outside.model_calls(tmp_path) == 3


@each_framework
def test_with_milepost_neither_tool_acts_twice_and_the_model_is_not_asked_again(
    framework: Framework, tmp_path: Path
) -> None:
    """Requirement 7. Requirement 11. Requirement 16. Requirement 18. Requirement 53."""
    words = ("two", "durable", *framework.words)
    outside.run(framework.host, tmp_path, *words, kill=True)

    waits = {"said": None, "waits": {"call_2": framework.unknown}, "asked": 1}
    assert outside.run(framework.host, tmp_path, *words).said == waits
    assert asyncio.run(outside.outcomes(tmp_path)) == {"call_1 reserve": "confirmed", "call_2 refund": "unknown"}
    assert outside.model_calls(tmp_path) == 1

    asyncio.run(outside.settle(tmp_path))
    ended = outside.run(framework.host, tmp_path, *words).said

    assert ended == {"said": "reserved, refunded", "waits": {}, "asked": 2}
    assert outside.applied(tmp_path) == ["reserve", "refund"]
    assert outside.model_calls(tmp_path) == 2


@each_framework
def test_an_objection_to_the_second_of_three_lets_its_siblings_finish_and_be_recorded(
    framework: Framework, tmp_path: Path
) -> None:
    """Requirement 7. Requirement 58. The model is not asked again before the batch is settled."""
    waits = {"said": None, "waits": {"call_2": framework.approval}, "asked": 1}

    assert outside.run(framework.host, tmp_path, "three", "durable").said == waits
    assert sorted(outside.applied(tmp_path)) == ["note", "note", "noted", "noted"]
    assert asyncio.run(outside.outcomes(tmp_path)) == {
        "call_1 note": "confirmed",
        "call_2 publish": "not_started",
        "call_3 note": "confirmed",
    }

    asyncio.run(outside.approve(tmp_path))

    assert outside.run(framework.host, tmp_path, "three", "durable").said["said"] == "noted, published, noted"
    assert sorted(outside.applied(tmp_path)) == ["note", "note", "noted", "noted", "publish"]
    assert outside.model_calls(tmp_path) == 2
