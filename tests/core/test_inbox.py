"""What reaches a run from outside becomes entries, or a refusal that is written down."""

from decimal import Decimal

import msgspec
import pytest

from milepost.core import entries as e
from milepost.core import messages as m
from milepost.core.code_entries import Resumed
from milepost.core.inbox import find_effect, journal
from milepost.core.state import ENDED, IMPORTED, RunState
from tests.core import samples as say

NOW = 1_000
ASKED = e.ApprovalAsked(at=11, step=say.STEP, id="ap-1", tool_version="1", digest="d1")
KILLED = e.RunStopped(at=90, status="killed", code="killed", why="x")


def refusal(state: RunState, message: m.AnyMessage) -> str:
    (entry,) = journal(state, message, NOW)
    assert isinstance(entry, e.MessageRefused)
    return entry.why


def settle(state: RunState, message: m.AnyMessage) -> list[e.Entry]:
    """Journal the message and apply what it became, as its owner does."""
    entries = journal(state, message, NOW)
    for entry in entries:
        state.apply(entry)
    return entries


def resolve(answer: str = "happened", path: str = say.PATH, value: bytes = b'"r1"') -> m.Resolve:
    return m.Resolve(at=99, by="ann", path=path, answer=answer, why="saw the ledger", value=msgspec.Raw(value))


def stopped(status: str) -> e.RunStopped:
    return e.RunStopped(at=90, status=status, code="x", why="x")


# ---------------------------------------------------------------- signals, cancel, grants, children, retry


def test_a_signal_becomes_an_entry() -> None:
    message = m.Send(at=99, id="s1", name="go", value=msgspec.Raw(b"7"))

    assert journal(say.run(), message, NOW) == [e.SignalSent(at=NOW, signal=e.Signal("s1", "go", msgspec.Raw(b"7")))]


def test_a_cancel_becomes_an_entry() -> None:
    assert journal(say.run(), m.Cancel(at=99, by="ann", why="wrong"), NOW) == [
        e.CancelAsked(at=NOW, by="ann", why="wrong")
    ]


@pytest.mark.parametrize("status", sorted(ENDED - {"done"}))
def test_a_run_that_ended_takes_no_signal_and_no_cancel(status: str) -> None:
    ended = say.run(stopped(status))

    assert status in refusal(ended, m.Send(at=99, id="s1", name="go", value=say.NULL))
    assert status in refusal(ended, m.Cancel(at=99, by="ann", why="x"))


def test_a_refusal_says_what_was_refused_and_who_had_asked() -> None:
    (entry,) = journal(say.run(stopped("failed")), m.Cancel(at=99, by="ann", why="x"), NOW)

    assert entry == e.MessageRefused(at=NOW, kind="cancel", why="the run is failed", by="ann")


def test_a_grant_widens_the_run() -> None:
    grant = m.Grant(at=99, by="ann", scopes=("pay",), budget={"usd": Decimal(5)}, why="ok")

    assert journal(say.run(), grant, NOW) == [
        e.Widened(at=NOW, by="ann", scopes=("pay",), budget={"usd": Decimal(5)}, why="ok")
    ]


def test_a_child_s_end_is_heard_once() -> None:
    state = say.run(e.ChildStarted(at=9, step=":0", child="c1", workflow="w", digest="d"))
    over = m.Child(at=99, child="c1", status="done", result=msgspec.Raw(b"1"))

    assert settle(state, over) == [e.ChildEnded(at=NOW, child="c1", status="done", result=msgspec.Raw(b"1"))]
    assert settle(state, over) == []


def test_a_child_that_the_boundary_did_not_name_is_heard_all_the_same() -> None:
    heard = journal(say.run(), m.Child(at=99, child="c9", status="failed", why="boom"), NOW)

    assert heard == [e.ChildEnded(at=NOW, child="c9", status="failed", result=msgspec.Raw(b"null"), why="boom")]


def test_a_failed_run_is_retried_on_a_person_s_word() -> None:
    assert journal(say.run(stopped("failed")), m.Retry(at=99, by="ann", why="mended"), NOW) == [
        e.Retried(at=NOW, by="ann", why="mended")
    ]


def test_a_block_is_lifted_by_resume_and_by_no_retry() -> None:
    blocked = say.run(stopped("blocked"))

    assert journal(blocked, m.Resume(at=99, by="ann", why="mended"), NOW) == [
        Resumed(at=NOW, by="ann", why="mended", was=blocked.code)
    ]
    assert "milepost resume" in refusal(blocked, m.Retry(at=99, by="ann"))


@pytest.mark.parametrize("status", ["failed", "cancelled", "killed"])
def test_what_is_not_blocked_is_not_resumed(status: str) -> None:
    assert status in refusal(say.run(stopped(status)), m.Resume(at=99, by="ann"))


def test_a_segment_whose_condition_failed_is_retried_like_one_that_raised() -> None:
    state = say.run(e.RunStopped(at=60, status="blocked", code="condition_failed", why="x"))

    assert journal(state, m.Retry(at=99, by="ann"), NOW) == [e.Retried(at=NOW, by="ann")]


def test_an_effect_that_could_not_be_undone_is_tried_again_like_a_segment() -> None:
    state = say.run(e.RunStopped(at=60, status="blocked", code="not_undone", why="x"))

    assert journal(state, m.Retry(at=99, by="ann"), NOW) == [e.Retried(at=NOW, by="ann")]


@pytest.mark.parametrize("status", ["cancelled", "killed"])
def test_a_run_that_was_stopped_on_purpose_is_not_retried(status: str) -> None:
    assert status in refusal(say.run(stopped(status)), m.Retry(at=99, by="ann"))


def test_a_running_run_is_not_retried() -> None:
    said = refusal(say.run(), m.Retry(at=99, by="ann"))

    assert said == "the run is running, only a failed segment is entered again"


# ---------------------------------------------------------------- approvals


def test_an_approval_that_is_given_lets_the_effect_start() -> None:
    state = say.run(say.planned(), ASKED)

    entries = settle(state, m.Answer(at=99, by="ann", approval="ap-1", approved=True))

    assert entries == [e.ApprovalAnswered(at=NOW, id="ap-1", approved=True, by="ann", said_at=99)]
    approval = state.approvals["ap-1"]
    assert approval.permits(approval.binding, NOW)


def test_a_denial_fails_the_effect_for_good_and_says_who_denied() -> None:
    state = say.run(say.planned(), ASKED)

    settle(state, m.Answer(at=99, by="ann", approval="ap-1", approved=False, why="too much"))

    effect = say.effect(state)
    assert (effect.outcome, effect.final, effect.reason) == ("failed", True, "denied")
    assert effect.why == "denied by ann: too much"
    approval = state.approvals["ap-1"]
    assert not approval.permits(approval.binding, NOW)


def test_an_approval_is_answered_once() -> None:
    state = say.run(say.planned(), ASKED)
    settle(state, m.Answer(at=99, by="ann", approval="ap-1", approved=True))

    assert "approved already" in refusal(state, m.Answer(at=99, by="bob", approval="ap-1", approved=True))


def test_an_approval_that_was_not_asked_cannot_be_answered() -> None:
    assert "not asked" in refusal(say.run(), m.Answer(at=99, by="ann", approval="ap-9", approved=True))


def test_a_denial_that_comes_after_the_effect_was_given_up_changes_no_outcome() -> None:
    given_up = say.failed(attempt=0, reason="deadline", final=True)
    state = say.run(say.planned(), ASKED, given_up)

    entries = settle(state, m.Answer(at=99, by="ann", approval="ap-1", approved=False, why="no"))

    assert [type(entry) for entry in entries] == [e.ApprovalAnswered]
    assert say.effect(state).reason == "deadline"


def test_a_denial_whose_step_is_gone_is_written_down_and_no_more() -> None:
    entries = journal(say.run(ASKED), m.Answer(at=99, by="ann", approval="ap-1", approved=False), NOW)

    assert [type(entry) for entry in entries] == [e.ApprovalAnswered]


# ---------------------------------------------------------------- a person settles an unknown effect


def test_a_person_may_say_that_an_unknown_effect_happened() -> None:
    """Requirement 39."""
    state = say.run(say.started(), say.lost())

    settle(state, resolve("happened"))

    effect = say.effect(state)
    assert (effect.outcome, bytes(effect.result), effect.by, effect.why) == (
        "confirmed", b'"r1"', "person ann", "saw the ledger"
    )  # fmt: skip


def test_a_person_may_say_that_it_did_not_happen_and_then_it_is_tried_again() -> None:
    state = say.run(say.started(), say.lost())

    settle(state, resolve("did_not_happen"))

    effect = say.effect(state)
    assert (effect.outcome, effect.final, effect.reason, effect.retry_at) == ("failed", False, "person", NOW)


def test_a_person_may_say_that_it_was_refused_for_good() -> None:
    state = say.run(say.started(), say.lost())

    settle(state, resolve("rejected"))

    effect = say.effect(state)
    assert (effect.outcome, effect.final, effect.reason, effect.retry_at) == ("failed", True, "rejected", None)


def test_for_a_run_that_ended_what_did_not_happen_is_not_tried_again() -> None:
    state = say.run(say.started(), say.lost(), KILLED)

    settle(state, resolve("did_not_happen"))

    assert (say.effect(state).final, say.effect(state).reason) == (True, "person")
    assert state.status == "killed"


def test_an_effect_is_found_by_its_path_and_by_its_step() -> None:
    state = say.run(say.started(), say.lost())

    assert find_effect(state, say.PATH) is find_effect(state, say.STEP) is say.effect(state)
    assert find_effect(state, "pay/charge#9") is None


@pytest.mark.parametrize("outcome", ["not_started", "started", "confirmed", "failed"])
def test_only_an_unknown_effect_is_resolved(outcome: str) -> None:
    record: dict[str, list[e.Entry]] = {
        "not_started": [say.planned()],
        "started": [say.started()],
        "confirmed": [say.started(), say.confirmed()],
        "failed": [say.started(), say.failed()],
    }

    assert f"is {outcome}" in refusal(say.run(*record[outcome]), resolve())


def test_an_effect_that_is_not_there_is_not_resolved() -> None:
    assert "no open effect" in refusal(say.run(), resolve())


def test_a_person_may_answer_the_last_question_about_what_was_sent_again() -> None:
    state = say.run(say.started(), say.lost(quiet_at=20), *say.absent(50), say.started(60, 2), say.confirmed(70, 2))
    assert say.effect(state).verify_from == 70

    settle(state, resolve("happened"))

    assert (say.effect(state).outcome, say.effect(state).verify_from) == ("confirmed", None)


# ---------------------------------------------------------------- contradictions, looked into by a person


def contradicted(*outcome: e.Entry, blocked: bool = True) -> RunState:
    against = e.Contradicted(at=80, step=say.STEP, evidence="it returned after all", by="worker-1")
    return say.run(*outcome, against, *([stopped("blocked")] if blocked else []))


def test_a_contradicted_run_is_not_retried_before_a_person_says_what_is_true() -> None:
    """Requirement 19. A retry would send again what may have happened."""
    state = contradicted(say.started(), say.failed(final=True))

    assert f"{say.PATH} may have happened" in refusal(state, m.Retry(at=99, by="ann"))
    assert state.status == "blocked"


def test_a_contradicted_failure_that_did_happen_becomes_confirmed_and_is_not_sent_again() -> None:
    """Requirement 51."""
    state = contradicted(say.started(), say.failed(final=False))

    entries = settle(state, resolve("happened"))

    assert [type(entry) for entry in entries] == [e.EffectConfirmed, e.Retried]
    assert (say.effect(state).outcome, say.effect(state).contradicted) == ("confirmed", False)
    assert (say.effect(state).verify_from, state.status) == (None, "ready")


def test_a_contradicted_failure_that_did_not_happen_is_asked_for_anew() -> None:
    state = contradicted(say.started(), say.failed(final=True))

    entries = settle(state, resolve("did_not_happen"))

    assert [type(entry) for entry in entries] == [e.FindingRecorded, e.Retried]
    assert state.steps == {}
    assert (state.status, state.generation) == ("ready", 1)


def test_a_contradicted_confirmation_is_looked_into_and_stands() -> None:
    state = contradicted(say.started(), say.confirmed())

    entries = settle(state, resolve("happened"))

    assert [type(entry) for entry in entries] == [e.FindingRecorded, e.Retried]
    assert (say.effect(state).outcome, say.effect(state).contradicted, state.status) == ("confirmed", False, "ready")


@pytest.mark.parametrize(("answer", "outcome"), [("happened", "confirmed"), ("rejected", "failed")])
def test_a_contradicted_effect_whose_later_attempt_is_unknown_is_settled_by_the_person(
    answer: str, outcome: str
) -> None:
    state = contradicted(say.started(), say.lost(quiet_at=20), *say.absent(50), say.started(60, 2), say.lost(70, 2))
    assert say.effect(state).outcome == "unknown"
    effect = say.effect(state)

    settle(state, resolve(answer))

    assert (effect.outcome, effect.contradicted, state.status) == (outcome, False, "ready")


def test_a_contradicted_effect_in_flight_is_not_resolved_before_it_is_settled() -> None:
    state = contradicted(say.started(), say.lost(quiet_at=20), *say.absent(50), say.started(60, 2))

    assert "is started" in refusal(state, resolve("happened"))


def test_the_block_is_lifted_only_when_every_contradiction_was_looked_into() -> None:
    both = [say.started(), say.failed(final=True), say.started(step=":1"), say.failed(step=":1", final=True)]
    against = e.Contradicted(at=80, step=":1", evidence="it too", by="worker-1")
    state = contradicted(*both, against)

    first = settle(state, resolve("happened"))
    status_between = state.status
    second = settle(state, resolve("happened", path="pay/charge:1"))

    assert [type(entry) for entry in first] == [e.EffectConfirmed]
    assert status_between == "blocked"
    assert [type(entry) for entry in second] == [e.EffectConfirmed, e.Retried]


def test_looking_into_a_contradiction_does_not_let_an_imported_run_go_on() -> None:
    """Requirement 24. Whether nothing drives it where it came from is another question, which resume answers."""
    imported = e.RunStopped(at=90, status="blocked", code=IMPORTED, why="from another store")
    state = say.run(*contradicted_entries(), imported)

    entries = settle(state, resolve("happened"))
    assert [type(entry) for entry in entries] == [e.EffectConfirmed]
    assert state.status == "blocked"

    assert [type(entry) for entry in settle(state, m.Resume(at=99, by="ann", why="it is stopped there"))] == [Resumed]


def contradicted_entries() -> list[e.Entry]:
    against = e.Contradicted(at=80, step=say.STEP, evidence="it returned after all", by="worker-1")
    return [say.started(), say.failed(final=True), against]


def test_looking_into_a_contradiction_does_not_revive_a_run_that_ended() -> None:
    state = contradicted(say.started(), say.failed(final=True), KILLED, blocked=False)

    entries = settle(state, resolve("happened"))

    assert [type(entry) for entry in entries] == [e.EffectConfirmed]
    assert state.status == "killed"


@pytest.mark.parametrize("status", ["running", *sorted(ENDED)])
def test_to_look_again_changes_nothing_by_itself(status: str) -> None:
    state = say.run(*([] if status == "running" else [stopped(status)]))

    assert journal(state, m.Recheck(at=1, by="worker-1"), NOW) == []
