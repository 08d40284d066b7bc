"""The scenario that all adapters are tested with, on a host without a framework."""

import asyncio
from pathlib import Path

import pytest

from tests.adapters import outside

HOST = "tests.adapters.plain_host"


@pytest.mark.parametrize("form", ["foreign", "sync"])
def test_a_host_killed_in_the_middle_of_tool_two_of_two_sends_nothing_again(form: str, tmp_path: Path) -> None:
    """Requirement 7. Requirement 53. Tool 2 is irreversible: a person looks, and the host goes on with the answer."""
    outside.run(HOST, tmp_path, "two", form, kill=True)

    first, second = outside.run(HOST, tmp_path, "two", form).said
    assert first == "reserved"
    assert "may have happened" in second
    assert outside.applied(tmp_path) == ["reserve", "refund"]
    assert asyncio.run(outside.outcomes(tmp_path)) == {"call_1 reserve": "confirmed", "call_2 refund": "unknown"}

    asyncio.run(outside.settle(tmp_path))
    assert outside.run(HOST, tmp_path, "two", form).said == ["reserved", "refunded"]
    assert outside.applied(tmp_path) == ["reserve", "refund"]
    assert outside.model_calls(tmp_path) == 3


@pytest.mark.parametrize("form", ["tools", "sync"])
def test_an_objection_to_the_second_of_three_lets_its_siblings_finish_and_be_recorded(
    form: str, tmp_path: Path
) -> None:
    """Requirement 58."""
    one, two, three = outside.run(HOST, tmp_path, "three", form).said

    assert (one, three) == ("noted", "noted")
    assert "a person has to approve it first" in two
    assert sorted(outside.applied(tmp_path)) == ["note", "note", "noted", "noted"]
    assert asyncio.run(outside.outcomes(tmp_path)) == {
        "call_1 note": "confirmed",
        "call_2 publish": "not_started",
        "call_3 note": "confirmed",
    }
    asyncio.run(outside.approve(tmp_path))
    assert outside.run(HOST, tmp_path, "three", form).said == ["noted", "published", "noted"]
    assert sorted(outside.applied(tmp_path)) == ["note", "note", "noted", "noted", "publish"]
