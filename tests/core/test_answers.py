"""Whatever an answer says, it is written down: as an answer, or with a stable word for why it is none."""

from typing import Any

import pytest

from milepost.core import entries as e
from milepost.core import messages as m
from milepost.core.answers import journal
from milepost.core.approval_entries import ApprovalClosed
from milepost.core.state import RunState
from tests.core import samples as say

NOW = 100
ASKED = e.ApprovalAsked(
    at=11, step=say.STEP, id="ap-1", tool_version="1", digest="d1", tool="charge", effect="keyed", requester="bot",
    expires_at=NOW + 10,
)  # fmt: skip
GIVEN = e.ApprovalAnswered(at=20, id="ap-1", approved=True, by="ann", said_at=19)


def answer(**said: Any) -> m.Answer:
    return m.Answer(**{"at": 99, "by": "ann", "approval": "ap-1", "approved": True, **said})


def code(state: RunState, said: m.Answer, now: int = NOW) -> str:
    (entry,) = journal(state, said, now)
    assert isinstance(entry, e.MessageRefused)
    assert (entry.kind, entry.about, entry.by) == ("answer", said.approval, said.by)
    return entry.code


def state(*more: e.Entry) -> RunState:
    return say.run(say.planned(), ASKED, *more)


CLOSED = {
    standing: ApprovalClosed(at=30, id="ap-1", standing=standing, why="") for standing in ("superseded", "expired")
}


@pytest.mark.parametrize(
    ("entries", "said", "word"),
    [
        ([], {"approval": "ap-2"}, "not_asked"),
        ([], {"digest": "d2"}, "wrong_digest"),
        ([], {"digest": "d2", "approved": False}, "wrong_digest"),
        ([], {"by": "Bot"}, "self_approval"),
        ([GIVEN], {}, "replayed"),
        ([GIVEN, say.started(approval="ap-1")], {}, "replayed"),
        ([GIVEN, say.started(approval="ap-1")], {"approved": False}, "replayed"),
        ([CLOSED["superseded"]], {}, "superseded"),
        ([CLOSED["superseded"]], {"approved": False}, "superseded"),
        ([CLOSED["expired"]], {}, "expired"),
        ([GIVEN, CLOSED["superseded"]], {}, "superseded"),
    ],
)
def test_an_answer_that_does_not_count_is_written_down_with_a_stable_word(
    entries: list[e.Entry], said: dict[str, Any], word: str
) -> None:
    """Requirement 20."""
    assert code(state(*entries), answer(**said)) == word


def test_a_yes_counts_before_it_expires_and_a_no_at_any_time() -> None:
    assert code(state(), answer(), NOW + 10) == "expired"
    assert [type(entry) for entry in journal(state(), answer(), NOW + 9)] == [e.ApprovalAnswered]
    assert [type(entry) for entry in journal(state(), answer(approved=False), NOW + 10)] == [
        e.ApprovalAnswered, e.EffectFailed,
    ]  # fmt: skip


def test_what_was_approved_is_taken_back_as_long_as_it_was_not_used() -> None:
    """Requirement 25."""
    run = state(GIVEN)
    entries = journal(run, answer(approved=False, by="bob", why="no"), NOW)
    for entry in entries:
        run.apply(entry)

    assert run.approvals["ap-1"].verdict == "denied"
    assert (say.effect(run).outcome, say.effect(run).reason) == ("failed", "denied")


def test_who_asks_may_take_the_request_back() -> None:
    assert [type(entry) for entry in journal(state(), answer(approved=False, by="bot"), NOW)] == [
        e.ApprovalAnswered, e.EffectFailed,
    ]  # fmt: skip


def test_an_answer_keeps_its_signature_and_when_it_was_given() -> None:
    (entry,) = journal(state(), answer(digest="d1", signature="s", why="ok"), NOW)

    assert entry == e.ApprovalAnswered(at=NOW, id="ap-1", approved=True, by="ann", why="ok", said_at=99, signature="s")


@pytest.mark.parametrize(("standing", "then"), [("superseded", False), ("expired", False)])
def test_what_is_closed_permits_nothing(standing: str, then: bool) -> None:  # noqa: FBT001
    run = state(GIVEN)
    before = run.approvals["ap-1"].permits(run.approvals["ap-1"].binding, NOW)
    run.apply(CLOSED[standing])

    assert before
    assert run.approvals["ap-1"].permits(run.approvals["ap-1"].binding, NOW) is then
