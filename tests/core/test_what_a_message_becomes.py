"""The entries that a message becomes, with every field: who said it and why stands in the record, word for word."""

import msgspec
import pytest

from milepost.core import entries as e
from milepost.core import messages as m
from milepost.core.inbox import journal
from milepost.core.state import RunState
from tests.core import samples as say

NOW = 1_000
VALUE = msgspec.Raw(b'"late"')
ASKED = e.ApprovalAsked(at=11, step=say.STEP, id="ap-1", tool_version="1", digest="d1")


def evidence(saw: str, why: str = "seen late", path: str = say.PATH) -> m.Evidence:
    return m.Evidence(
        at=900, by="worker-1", visit=0, step=say.STEP, path=path, attempt=1, saw=saw, value=VALUE, why=why
    )


def contradicted(message: m.Evidence) -> list[e.Entry]:
    return journal(say.run(say.started(), say.failed(final=True)), message, NOW)


def test_a_verdict_is_written_down_with_who_gave_it_and_why() -> None:
    yes, no = (
        m.Answer(at=99, by="ann", approval="ap-1", why="it is too much", approved=verdict) for verdict in (True, False)
    )

    given = journal(say.run(say.planned(), ASKED), yes, NOW)
    denied = journal(say.run(say.planned(), ASKED), no, NOW)

    assert given == [e.ApprovalAnswered(at=NOW, id="ap-1", approved=True, by="ann", why="it is too much", said_at=99)]
    assert denied == [
        e.ApprovalAnswered(at=NOW, id="ap-1", approved=False, by="ann", why="it is too much", said_at=99),
        e.EffectFailed(
            at=NOW, step=say.STEP, attempt=0, why="denied by ann: it is too much", reason="denied", final=True,
            by="person ann",
        ),
    ]  # fmt: skip


def test_a_child_that_failed_says_why() -> None:
    state = say.run(e.ChildStarted(at=9, step=":0", child="c1", workflow="w", digest="d"))

    assert journal(state, m.Child(at=99, child="c1", status="failed", why="boom"), NOW) == [
        e.ChildEnded(at=NOW, child="c1", status="failed", result=say.NULL, why="boom")
    ]


def test_what_an_attempt_saw_too_late_is_written_down_as_it_saw_it() -> None:
    unknown = say.run(say.started(), say.lost())

    assert journal(unknown, evidence("returned"), NOW) == [
        e.EffectConfirmed(at=NOW, step=say.STEP, attempt=1, result=VALUE, by="evidence", why="seen late")
    ]
    assert journal(unknown, evidence("not_sent"), NOW) == [
        e.AttemptQuieted(at=NOW, step=say.STEP, attempt=1, quiet_at=900),
        e.AttemptSettled(at=NOW, step=say.STEP, attempt=1, reason="not_sent", why="seen late"),
        e.EffectFailed(
            at=NOW, step=say.STEP, attempt=1, why="seen late", reason="not_sent", final=False, retry_at=NOW,
            by="evidence",
        ),
    ]  # fmt: skip


@pytest.mark.parametrize(("why", "said"), [("seen late", "seen late"), ("", "late evidence of success")])
def test_what_contradicts_the_record_blocks_the_run_with_its_reason(why: str, said: str) -> None:
    _, blocked = contradicted(evidence("returned", why))

    assert blocked == e.RunStopped(at=NOW, status="blocked", code="contradicted", why=f"{say.PATH}: {said}")


def test_the_tool_that_a_late_contradiction_names_is_the_last_part_of_the_path() -> None:
    path = "pay/each/2/charge#1"
    marker = e.Marker(path, "failed", "d", say.NULL)
    state = say.run(e.Checkpointed(at=50, boundary=say.boundary(visit=1, segment="mail", finished=(marker,))))

    against, _ = journal(state, evidence("returned", path=path), NOW)

    assert isinstance(against, e.Contradicted)
    assert (against.step, against.tool) == ("", "charge")


def blocked_by_contradiction() -> RunState:
    against = e.Contradicted(at=80, step=say.STEP, evidence="it returned after all", by="worker-1")
    stopped = e.RunStopped(at=80, status="blocked", code="contradicted", why="x")
    return say.run(say.started(), say.failed(final=True), against, stopped)


@pytest.mark.parametrize("answer", ["did_not_happen", "rejected"])
def test_a_person_who_looked_into_a_contradiction_says_what_was_seen_and_lets_the_run_go_on(answer: str) -> None:
    looked = m.Resolve(at=99, by="ann", path=say.PATH, answer=answer, why="it is not in the ledger")

    assert journal(blocked_by_contradiction(), looked, NOW) == [
        e.FindingRecorded(at=NOW, step=say.STEP, answer=answer, evidence="it is not in the ledger", by="person ann"),
        e.Retried(at=NOW, by="ann", why=f"{say.PATH} was looked into: it is not in the ledger"),
    ]
