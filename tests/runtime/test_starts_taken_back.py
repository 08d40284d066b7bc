"""A start that was refused: what the state was taken to be before the answer came is taken back, and nothing else."""

from types import SimpleNamespace
from typing import Any

import pytest

from milepost.core import entries as e
from milepost.core.approval import TTL_MS
from milepost.core.state import RunState
from milepost.runtime import gates
from tests.core import samples as s
from tests.runtime.sessions import OTHER, STEP

GRANT = e.Widened(at=1, by="ann", budget=s.usd(9))


def taken_back(state: RunState, *entries: e.Entry) -> None:
    """Apply what is optimistic, and take it back."""
    undo = gates.before_start(state_holder(state), STEP)
    for entry in entries:
        state.apply(entry)
    undo()


def state_holder(state: RunState) -> Any:
    return SimpleNamespace(state=state)


def as_told(state: RunState) -> dict[str, Any]:
    ledger = state.ledger
    spent = {unit: amount for unit, amount in ledger.spent.items() if amount}
    return {
        "steps": dict(state.steps), "reserved": ledger.reserved, "since": ledger.since, "spent": spent,
        "approvals": {id_: approval.verdict for id_, approval in state.approvals.items()},
    }  # fmt: skip


APPROVED = (
    s.planned(), e.ApprovalAsked(at=5, step=STEP, id="ap-1", tool_version="1", digest="d1", expires_at=TTL_MS),
    e.ApprovalAnswered(at=6, id="ap-1", approved=True, by="ann"),
)  # fmt: skip
READ = s.started(effect="read", reserve=s.usd(2))


@pytest.mark.parametrize(
    ("before", "start"),
    [
        ((GRANT,), s.started(at=30, reserve=s.usd(2))),
        ((GRANT, s.planned()), s.started(at=30, plan=None, reserve=s.usd(2))),
        ((GRANT, *APPROVED), s.started(at=30, plan=None, reserve=s.usd(2), approval="ap-1")),
        ((GRANT, s.started(reserve=s.usd(2)), s.failed()), s.started(at=200, attempt=2)),
        ((GRANT, s.started(), *[s.lost(quiet_at=20)], *s.absent()), s.started(at=200, attempt=2, reserve=s.usd(2))),
        ((GRANT, s.started(reserve=s.usd(2)), s.lost(quiet_at=20), s.found(30, "still_unknown")),
         s.started(at=200, attempt=2, resend=True)),
        ((GRANT, READ, s.lost(quiet_at=20)),
         s.started(at=200, attempt=2, effect="read", reserve=s.usd(2), resend=True)),
        ((GRANT, s.started(step=OTHER, reserve=s.usd(3)), s.confirmed(step=OTHER), READ, s.lost(quiet_at=20)),
         s.started(at=200, attempt=2, effect="read", reserve=s.usd(2), resend=True)),
    ],
)  # fmt: skip
def test_a_start_that_was_refused_leaves_everything_as_it_was(before: tuple[e.Entry, ...], start: e.Entry) -> None:
    state, untouched = s.run(*before), s.run(*before)

    taken_back(state, start)

    assert as_told(state) == as_told(untouched)


def test_what_others_spend_meanwhile_stays_spent() -> None:
    before = (GRANT, s.started(step=OTHER, reserve=s.usd(3)), READ, s.lost(quiet_at=20))
    state = s.run(*before)

    taken_back(
        state, s.started(at=200, attempt=2, effect="read", reserve=s.usd(2), resend=True), s.confirmed(step=OTHER)
    )

    assert state.ledger.spent == s.usd(3)


def test_what_a_person_settles_meanwhile_stays_settled() -> None:
    """Their word is on record, the start is not: memory must say what the record says, or it would be sent again."""
    before = (GRANT, s.started(reserve=s.usd(2)), s.lost(quiet_at=20))
    settled = s.confirmed(attempt=2, by="person ann", spent=s.usd(1))
    state, recorded = s.run(*before), s.run(*before, settled)

    taken_back(state, s.started(at=200, attempt=2, resend=True), settled)

    assert as_told(state) == as_told(recorded)
