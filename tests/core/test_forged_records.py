"""Entries that do not follow from each other are a defect or a forgery, and are refused."""

from typing import Any

import pytest

from milepost.core import entries as e
from milepost.errors import Damaged, IllegalOutcome
from tests.core import samples as say

FORGED: dict[str, list[Any]] = {
    "an outcome of an effect that was never planned": [say.confirmed()],
    "an outcome of a step that is no effect": [e.SleepStarted(at=9, step=say.STEP, until=99), say.confirmed()],
    "an unknown of an attempt that never was": [say.started(), say.lost(attempt=2)],
    "an unknown of attempt zero": [say.started(), say.lost(attempt=0)],
    "a settlement of an attempt that never was": [
        say.started(), say.lost(), e.AttemptSettled(at=30, step=say.STEP, attempt=3, reason="rejected")
    ],
    "a quiet of an attempt that never was": [
        say.started(), e.AttemptQuieted(at=30, step=say.STEP, attempt=3, quiet_at=30)
    ],
    "an end of a sleep that never began": [e.SleepEnded(at=9, step=":0")],
    "an end of a wait that never began": [e.SignalReceived(at=9, step=":0", name="go", id=None, value=say.NULL)],
    "a signal that was never sent": [
        e.SignalAwaited(at=9, step=":0", name="go"),
        e.SignalReceived(at=9, step=":0", name="go", id="s9", value=say.NULL),
    ],
    "an answer to an approval that was not asked": [e.ApprovalAnswered(at=9, id="ap-9", approved=True, by="ann")],
    "a start that uses an approval that was not asked": [say.started(approval="ap-9")],
}  # fmt: skip


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED.keys())
def test_entries_that_do_not_follow_from_each_other_are_refused(forged: list[e.Entry]) -> None:
    """Requirement 48."""
    with pytest.raises(Damaged, match=say.RUN):
        say.run(*forged)


def test_a_second_outcome_of_a_settled_effect_is_refused() -> None:
    for second in (say.confirmed(), say.failed(), say.lost(), say.started(30, 2)):
        with pytest.raises(IllegalOutcome):
            say.run(say.started(), say.confirmed(), second)


def test_the_unsettled_effects_are_those_that_may_still_change_the_world() -> None:
    state = say.run(
        say.planned(step=":0"), say.started(step=":1"), say.started(step=":2"), say.lost(step=":2"),
        say.started(step=":3"), say.confirmed(step=":3"), say.started(step=":4"), say.failed(step=":4"),
    )  # fmt: skip

    assert [effect.step for effect in state.unsettled()] == [":1", ":2"]
    assert [effect.step for effect in state.effects()] == [":0", ":1", ":2", ":3", ":4"]
