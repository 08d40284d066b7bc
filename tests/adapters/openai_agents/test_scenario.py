"""An agent of the OpenAI Agents SDK, killed for real in the middle of tool two of two, and run again."""

import asyncio
from pathlib import Path

from tests.adapters import outside

HOST = "tests.adapters.openai_agents.host"


def test_without_milepost_both_tools_act_twice_and_the_model_is_asked_again(tmp_path: Path) -> None:
    outside.run(HOST, tmp_path, "two", "bare", kill=True)

    assert outside.run(HOST, tmp_path, "two", "bare").said["said"] == "reserved, refunded"
    assert sorted(outside.applied(tmp_path)) == ["refund", "refund", "reserve", "reserve"]
    assert outside.model_calls(tmp_path) == 3


def test_with_milepost_neither_tool_acts_twice_and_the_model_is_not_asked_again(tmp_path: Path) -> None:
    """Requirement 7. Requirement 11. Requirement 16. Requirement 18. Requirement 53.

    The conversation is kept in a session. It has nothing of the killed turn, and the next action does not need it.
    """
    outside.run(HOST, tmp_path, "two", "durable", "session", kill=True)

    waits = {"said": None, "waits": ["call_2"], "responses": 1}
    assert outside.run(HOST, tmp_path, "two", "durable", "session").said == waits
    assert asyncio.run(outside.outcomes(tmp_path)) == {"call_1 reserve": "confirmed", "call_2 refund": "unknown"}
    assert outside.model_calls(tmp_path) == 1

    asyncio.run(outside.settle(tmp_path))
    ended = outside.run(HOST, tmp_path, "two", "durable", "session").said

    assert ended == {"said": "reserved, refunded", "waits": [], "responses": 2}
    assert outside.applied(tmp_path) == ["reserve", "refund"]
    assert outside.model_calls(tmp_path) == 2


def test_an_objection_to_the_second_of_three_lets_its_siblings_finish_and_be_recorded(tmp_path: Path) -> None:
    """Requirement 7. Requirement 58. The model is not asked again before the batch is settled."""
    waits = {"said": None, "waits": ["call_2"], "responses": 1}

    assert outside.run(HOST, tmp_path, "three", "durable").said == waits
    assert sorted(outside.applied(tmp_path)) == ["note", "note", "noted", "noted"]
    assert asyncio.run(outside.outcomes(tmp_path)) == {
        "call_1 note": "confirmed",
        "call_2 publish": "not_started",
        "call_3 note": "confirmed",
    }

    asyncio.run(outside.approve(tmp_path))

    assert outside.run(HOST, tmp_path, "three", "durable").said["said"] == "noted, published, noted"
    assert sorted(outside.applied(tmp_path)) == ["note", "note", "noted", "noted", "publish"]
    assert outside.model_calls(tmp_path) == 2
