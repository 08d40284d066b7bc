"""Every host: a batch of two killed in the middle, a batch of three with an objection, the session taken up again.

That of the Claude Agent SDK in both its forms, those of docs/recipes.md as the page has them. A process serves both
batches where none is killed: most of what these tests cost is importing the frameworks.
"""

import asyncio
from pathlib import Path

import pytest

from tests.adapters import outside

HOSTS = [("claude", "tools"), ("claude", "built_in"), ("adk",), ("strands",), ("agent_framework",)]
AGAIN = "Nothing was done now"


@pytest.mark.parametrize("host", HOSTS, ids="-".join)
def test_a_session_killed_in_tool_two_of_two_sends_nothing_again_and_an_objection_leaves_siblings_alone(
    host: tuple[str, ...], tmp_path: Path
) -> None:
    """Requirement 7. Requirement 53. Requirement 58. A person looks, another approves, and the session goes on."""
    module, form = f"tests.hosts.{host[0]}.host", host[1:]
    outside.run(module, tmp_path, *form, "two:1", kill=True)

    (reserved, refunded), (one, two, three) = outside.run(module, tmp_path, *form, "two:2", "three:1").said
    assert AGAIN in reserved
    assert "reserved" in reserved
    assert "may have happened" in refunded
    assert "Do not make this call again" in refunded
    assert [("noted" in note, AGAIN in note) for note in (one, three)] == [(True, False)] * 2
    assert "a person has to approve it first" in two
    assert sorted(outside.applied(tmp_path)) == ["note", "note", "noted", "noted", "refund", "reserve"]
    assert asyncio.run(outside.outcomes(tmp_path)) == {
        "two_1_1 reserve": "confirmed",
        "two_1_2 refund": "unknown",
        "three_1_1 note": "confirmed",
        "three_1_2 publish": "not_started",
        "three_1_3 note": "confirmed",
    }

    asyncio.run(outside.settle(tmp_path))
    asyncio.run(outside.approve(tmp_path))
    (reserved, refunded), (one, two, three) = outside.run(module, tmp_path, *form, "two:3", "three:2").said
    assert AGAIN in reserved
    assert "refunded" in refunded
    assert "published" in two
    assert AGAIN in one
    assert AGAIN in three
    assert sorted(outside.applied(tmp_path)) == ["note", "note", "noted", "noted", "publish", "refund", "reserve"]


@pytest.mark.parametrize(("host", "same_ids"), [("adk", True), ("strands", False)])
def test_a_session_that_the_host_itself_restores_is_told_what_is_on_record(
    host: str, tmp_path: Path, *, same_ids: bool
) -> None:
    """Requirement 53. ADK makes the calls again itself, under their ids; the model of Strands does, under new ones."""
    module = f"tests.hosts.{host}.host"
    warnings = ("error", "ignore:[EXPERIMENTAL] ResumabilityConfig")
    outside.run(module, tmp_path, "session", "two:1", kill=True, warnings=warnings)

    ((reserved, refunded),) = outside.run(module, tmp_path, "session", "two:2", warnings=warnings).said

    assert (reserved == "reserved", AGAIN in reserved) == (same_ids, not same_ids)
    assert "Do not make this call again" in refunded
    assert outside.applied(tmp_path) == ["reserve", "refund"]
    assert outside.model_calls(tmp_path) == (2 if same_ids else 3)
    assert asyncio.run(outside.outcomes(tmp_path)) == {"two_1_1 reserve": "confirmed", "two_1_2 refund": "unknown"}
