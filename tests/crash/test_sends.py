"""Killed around each send: before, during and after every consequential call."""

from pathlib import Path

import pytest

from milepost.core import entries as e
from tests.crash.killing import restarted, told_of, violations, whole, work

# Tool and place, and how often the effect had been started when all was over. `before` and `applied` cannot be told
# apart from within: what is known of them comes from outside.
SENDS = [
    ("ask", "before", 2),  # a read that costs: asked again
    ("ask", "applied", 2),
    ("ask", "return", 2),
    ("charge first", "before", 2),  # the same key again, which the service knows
    ("charge first", "applied", 2),
    ("charge second", "return", 2),
    ("publish", "before", 2),  # the same bytes again, under the same precondition
    ("publish", "applied", 2),  # the precondition fails, so it is looked up
    ("publish", "return", 2),
    ("ship one", "before", 2),  # absent on two looks, sent again, and looked up once more
    ("ship one", "applied", 1),  # found
    ("ship two", "return", 1),  # in a child run
    ("note", "before", 1),  # rolled back with its transaction: it never began
    ("note", "applied", 1),
    ("note", "return", 1),
    ("mail", "before", 2),  # a person saw that it is not there
    ("mail", "applied", 1),  # a person saw it
    ("mail", "return", 1),
]


@pytest.mark.parametrize(("tool", "where", "attempts"), SENDS)
def test_a_worker_killed_around_a_send_leaves_unknown_and_the_next_one_finds_out_before_it_acts(
    folder: Path, tool: str, where: str, attempts: int
) -> None:
    """Requirement 50."""
    assert work(folder, crash_at=f"{tool}:{where}").killed
    assert violations(folder) == []
    whole(folder, restarted(folder))

    told = told_of(folder, tool)
    assert [entry.attempt for entry in told if isinstance(entry, e.EffectStarted)] == list(range(1, attempts + 1))
    outcomes = [type(entry) for entry in told]
    if tool == "note":
        assert e.EffectUnknown not in outcomes
    else:
        assert outcomes.index(e.EffectStarted) < outcomes.index(e.EffectUnknown) < outcomes.index(e.EffectConfirmed)
