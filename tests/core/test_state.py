"""`fold` says what is true of a run: every entry changes what it says it changes, and nothing else does."""

from decimal import Decimal
from typing import Any

import msgspec
import pytest

from milepost.core import codec
from milepost.core import entries as e
from milepost.core.state import RunState, fold
from milepost.core.steps import ChildStart, ChildWait, Read, Receive, Sleep, Value
from milepost.errors import Damaged, IllegalOutcome
from tests.core import samples as say

ASKED = e.ApprovalAsked(at=11, step=say.STEP, id="ap-1", tool_version="1", digest="d1")
SIGNAL = e.Signal("s1", "go", msgspec.Raw(b"7"))


# ---------------------------------------------------------------- the life of a run


def test_a_new_run_is_ready_and_stands_at_its_first_segment() -> None:
    state = fold(say.RUN, [say.created(granted=say.usd(5), visits={"triage": 1})])

    assert (state.status, state.segment, state.visit) == ("ready", "pay", 0)
    assert (state.about_digest, state.manifest_digest) == ("a" * 64, "m" * 64)
    assert bytes(state.state) == b"7"
    assert state.ledger.granted == say.usd(5)
    assert state.visits == {"triage": 1}
    assert not state.ended


def test_a_claim_makes_the_run_running_under_its_epoch_and_owner() -> None:
    state = say.run()

    assert (state.status, state.epoch, state.owner) == ("running", 1, "worker-1")


def test_a_claim_of_an_ended_run_leaves_it_ended() -> None:
    stopped = e.RunStopped(at=2, status="killed", code="killed", why="x", epoch=2)

    state = say.run(stopped, say.claimed(3, 3))

    assert (state.status, state.epoch) == ("killed", 3)
    assert state.ended


def test_a_checkpoint_leaves_the_segment_behind_and_keeps_what_lasts() -> None:
    """Requirement 2. Requirement 45."""
    marker = e.Marker("triage/look#1", "confirmed", "d", msgspec.Raw(b"1"))
    next_boundary = say.boundary(
        visit=1, segment="mail", state=msgspec.Raw(b'"s"'), finished_segment="pay", finished=(marker,),
        visits={"pay": 1},
        granted=say.usd(5), spent=say.usd(1), signals=(SIGNAL,), children={"c1": "running"}, cancel=("ann", "x"),
        epoch=1, owner="worker-1",
    )  # fmt: skip

    state = say.run(say.started(), say.confirmed(), ASKED, e.Checkpointed(at=30, boundary=next_boundary))

    assert (state.visit, state.segment, bytes(state.state)) == (1, "mail", b'"s"')
    assert (state.steps, state.approvals) == ({}, {})
    assert (state.finished_segment, state.finished) == ("pay", (marker,))
    assert (state.ledger.granted, state.ledger.spent, state.ledger.reserved) == (say.usd(5), say.usd(1), {})
    assert (state.signals, state.children, state.cancel) == ([SIGNAL], {"c1": "running"}, ("ann", "x"))
    assert (state.epoch, state.owner, state.status) == (1, "worker-1", "running")


def test_folding_from_the_latest_boundary_gives_what_folding_everything_gives() -> None:
    """Requirement 3. Requirement 5. The boundary is self-contained: what was before it is not needed."""
    before = [say.created(), say.claimed(), say.started(), say.confirmed()]
    after: list[e.Entry] = [
        e.Checkpointed(at=30, boundary=say.boundary(visit=1, segment="mail", epoch=1, owner="worker-1")),
        e.ValueRecorded(at=31, step=":0", kind="now", value=msgspec.Raw(b"1")),
        say.started(32, step=":1"),
        say.lost(33, step=":1"),
    ]

    whole, tail = fold(say.RUN, [*before, *after]), fold(say.RUN, after)

    ignored = {"seq", "owners", "status"}
    assert {k: getattr(whole, k) for k in RunState.__slots__ if k not in ignored} == {
        k: getattr(tail, k) for k in RunState.__slots__ if k not in ignored
    }
    assert (whole.status, tail.status) == ("running", "running")


def test_a_tail_that_was_read_back_from_bytes_folds_to_the_same_state() -> None:
    record = [
        say.created(granted=say.usd("1.50")),
        say.claimed(),
        say.started(),
        say.lost(),
        say.found(30, "still_unknown"),
    ]

    read_back = [codec.decode(codec.encode(entry)) for entry in record]

    assert fold(say.RUN, read_back) == fold(say.RUN, record)


def test_a_checkpoint_keeps_the_results_of_children_that_still_matter() -> None:
    started = e.ChildStarted(at=10, step=":0", child="c1", workflow="w", digest="d")
    ended = e.ChildEnded(at=11, child="c1", status="done", result=msgspec.Raw(b"1"))
    kept = e.Checkpointed(at=12, boundary=say.boundary(visit=1, children={"c1": "done"}))
    dropped = e.Checkpointed(at=12, boundary=say.boundary(visit=1))

    assert say.run(started, ended, kept).child_results == {"c1": ended}
    assert say.run(started, ended, dropped).child_results == {}


@pytest.mark.parametrize("status", ["ready", "parked"])
def test_a_checkpoint_of_a_run_that_rested_makes_it_running(status: str) -> None:
    first: list[e.Entry] = [say.created()]
    if status == "parked":
        first.append(e.RunParked(at=2, reason="time", until=9))

    assert fold(say.RUN, [*first, e.Checkpointed(at=3, boundary=say.boundary(visit=1))]).status == "running"


def test_a_parked_run_says_what_it_waits_for() -> None:
    state = say.run(e.RunParked(at=9, reason="signal", until=99, ask="milepost send"))

    assert (state.status, state.waits_for, state.until, state.ask) == ("parked", "signal", 99, "milepost send")


@pytest.mark.parametrize("status", ["killed", "blocked"])
def test_parking_does_not_hide_that_a_run_ended_or_is_blocked(status: str) -> None:
    state = say.run(e.RunStopped(at=9, status=status, code="x", why="y"), e.RunParked(at=10, reason="unknown"))

    assert state.status == status


def test_a_run_that_is_done_has_its_result() -> None:
    done = e.RunDone(
        at=9, boundary=say.boundary(visit=1, segment=None), result=msgspec.Raw(b'"r"'), result_root="d" * 64
    )

    state = say.run(done)

    assert (state.status, bytes(state.result or b""), state.result_root) == ("done", b'"r"', "d" * 64)
    assert state.ended


def test_a_kill_leaves_what_was_in_flight_unknown_and_what_was_settled_as_it_is() -> None:
    """Requirement 66."""
    killed = e.RunStopped(at=30, status="killed", code="killed", why="runaway", by="ann", epoch=2)

    state = say.run(say.started(), say.started(step=":1"), say.confirmed(step=":1"), killed)

    assert (state.status, state.code, state.why, state.epoch) == ("killed", "killed", "runaway", 2)
    assert say.effect(state).outcome == "unknown"
    assert "killed" in say.effect(state).why
    assert say.effect(state, ":1").outcome == "confirmed"


def test_a_stop_that_is_no_kill_leaves_effects_as_they_are() -> None:
    state = say.run(say.started(), say.lost(), e.RunStopped(at=30, status="failed", code="x", why="y"))

    assert say.effect(state).outcome == "unknown"


def test_a_cancel_is_remembered_with_the_first_reason() -> None:
    state = say.run(e.CancelAsked(at=9, by="ann", why="first"), e.CancelAsked(at=10, by="bob", why="second"))

    assert state.cancel == ("ann", "first")


def test_what_a_person_granted_widens_scopes_and_budget() -> None:
    state = say.run(e.Widened(at=9, by="ann", scopes=("b", "a"), budget=say.usd(3)), granted=say.usd(2))

    assert state.scopes == ("a", "b")
    assert state.ledger.granted == say.usd(5)


def test_an_entry_that_only_tells_changes_nothing() -> None:
    before = say.run()
    after = say.run(e.MessageRefused(at=9, kind="send", why="ended"))

    assert after.seq == before.seq + 1
    after.seq = before.seq
    assert after == before


# ---------------------------------------------------------------- effects


def test_a_planned_effect_is_known_and_not_started() -> None:
    effect = say.effect(say.run(say.planned(once="o1")))

    assert (effect.outcome, effect.attempt, effect.key, effect.once) == ("not_started", 0, "k1", "o1")
    assert not effect.open


def test_a_planned_effect_starts_without_a_second_plan() -> None:
    effect = say.effect(say.run(say.planned(), say.started(plan=None)))

    assert (effect.outcome, effect.attempt, effect.key) == ("started", 1, "k1")
    assert effect.open


def test_an_attempt_names_the_owner_of_its_epoch() -> None:
    state = say.run(say.started(), say.lost(), say.claimed(30, 2, "worker-2"), say.started(40, 2, resend=True, epoch=2))

    assert [attempt.owner for attempt in say.effect(state).doubt.attempts] == ["worker-1", "worker-2"]


def test_an_attempt_of_the_boundary_s_own_epoch_names_the_boundary_s_owner() -> None:
    checkpoint = e.Checkpointed(at=3, boundary=say.boundary(visit=1, epoch=4, owner="worker-4"))

    state = fold(say.RUN, [checkpoint, say.started(epoch=4)])

    assert say.effect(state).doubt.attempts[0].owner == "worker-4"


def test_a_confirmed_effect_keeps_its_result_and_the_provider_s_own_id() -> None:
    """Requirement 55."""
    effect = say.effect(say.run(say.started(), say.confirmed(external="ch_9", by="answer")))

    assert (effect.outcome, bytes(effect.result), effect.external, effect.final) == ("confirmed", b'"ok"', "ch_9", True)
    assert effect.doubt.attempts[0].settled == "returned"
    assert effect.doubt.attempts[0].quiet_at == 20


def test_a_result_without_confirmation_from_outside_leaves_the_effect_unknown() -> None:
    """Requirement 11."""
    effect = say.effect(say.run(say.started(), say.lost(quiet_at=20)))

    assert (effect.outcome, effect.result, effect.open) == ("unknown", None, True)


def test_another_step_s_confirmation_confirms_what_never_started() -> None:
    effect = say.effect(say.run(say.planned(once="o1"), say.confirmed(attempt=0, by="once", spent={})))

    assert (effect.outcome, effect.attempt) == ("confirmed", 0)


def test_a_failure_that_is_not_final_is_tried_again_with_the_same_key_and_a_clean_slate() -> None:
    """Requirement 13."""
    state = say.run(say.started(), say.lost(quiet_at=20), *say.absent(50), say.started(60, 2))

    effect = say.effect(state)
    assert (effect.outcome, effect.key, effect.attempt, effect.retry_at) == ("started", "k1", 2, None)
    assert (effect.doubt.asks, effect.doubt.absences, effect.doubt.person) == (0, [], "")
    assert effect.doubt.attempts[0].settled == "absent"


def test_a_person_who_was_asked_before_a_retry_is_not_asked_about_the_retry() -> None:
    needed = e.PersonNeeded(at=30, step=say.STEP, why="nobody can say")
    denied = say.failed(40, reason="person", by="person ann")

    state = say.run(say.started(), say.lost(), needed, denied, say.started(50, 2))

    assert say.effect(state).doubt.person == ""


def test_a_final_failure_cannot_be_tried_again() -> None:
    with pytest.raises(IllegalOutcome):
        say.run(say.started(), say.failed(final=True), say.started(30, 2))


def test_a_retry_moment_and_the_count_of_attempts_survive_in_the_record() -> None:
    """Requirement 36."""
    effect = say.effect(say.run(say.started(), say.failed(retry_at=5_000)))

    assert (effect.retry_at, effect.attempt, effect.final) == (5_000, 1, False)


def test_a_resend_keeps_the_effect_unknown_while_the_earlier_attempt_is_unsettled() -> None:
    effect = say.effect(say.run(say.started(), say.lost(quiet_at=20), say.started(30, 2, resend=True)))

    assert (effect.outcome, effect.attempt) == ("unknown", 2)


def test_a_resend_that_was_refused_settles_itself_alone() -> None:
    settled = e.AttemptSettled(at=40, step=say.STEP, attempt=2, reason="rejected", why="no such order")
    effect = say.effect(say.run(say.started(), say.lost(quiet_at=20), say.started(30, 2, resend=True), settled))

    assert effect.outcome == "unknown"
    assert [attempt.settled for attempt in effect.doubt.attempts] == ["", "rejected"]
    assert effect.doubt.attempts[1].quiet_at == 40


def test_the_moment_of_quiet_is_fixed_once() -> None:
    quieted = e.AttemptQuieted(at=90, step=say.STEP, attempt=1, quiet_at=90, died=True)
    again = say.lost(95, quiet_at=95)

    attempt = say.effect(say.run(say.started(), say.lost(), quieted, quieted, again)).doubt.attempts[0]
    early = say.effect(say.run(say.started(), say.lost(quiet_at=20), quieted)).doubt.attempts[0]

    assert attempt.quiet_at == 90
    assert (early.quiet_at, early.died) == (20, True)


def test_settling_does_not_move_a_moment_of_quiet_that_is_known() -> None:
    settled = e.AttemptSettled(at=80, step=say.STEP, attempt=2, reason="not_sent")
    state = say.run(
        say.started(), say.lost(quiet_at=20), say.started(30, 2, resend=True), say.lost(40, 2, quiet_at=41), settled,
        say.failed(90, 2, reason="absent"), say.started(95, 3), say.lost(96, 3, quiet_at=97), say.confirmed(99, 3),
    )  # fmt: skip

    assert [attempt.quiet_at for attempt in say.effect(state).doubt.attempts] == [20, 41, 97]


def test_what_was_sent_again_after_an_absence_is_to_be_asked_about_once_more() -> None:
    again = [say.started(), say.lost(quiet_at=20), *say.absent(50), say.started(60, 2)]

    assert say.effect(say.run(*again, say.confirmed(70, 2))).verify_from == 70
    assert say.effect(say.run(*again, say.confirmed(70, 2), say.found(80, "happened"))).verify_from is None
    assert say.effect(say.run(*again, say.confirmed(70, 2), say.found(80, "did_not_happen"))).verify_from is None
    assert say.effect(say.run(*again, say.confirmed(70, 2), say.found(80, "still_unknown"))).verify_from == 70


def test_what_a_person_said_did_not_happen_is_not_asked_about_after_its_retry() -> None:
    state = say.run(
        say.started(),
        say.lost(),
        say.failed(30, reason="person", by="person ann"),
        say.started(40, 2),
        say.confirmed(50, 2),
    )

    assert say.effect(state).verify_from is None
    assert say.effect(state).doubt.attempts[0].settled == "person"


def test_a_person_s_word_ends_the_last_question() -> None:
    looked = say.found(80, "happened", by="person ann")
    state = say.run(
        say.started(), say.lost(quiet_at=20), *say.absent(50), say.started(60, 2), say.confirmed(70, 2), looked
    )

    assert say.effect(state).verify_from is None


def test_findings_are_counted_and_their_absences_kept() -> None:
    effect = say.effect(
        say.run(
            say.started(),
            say.lost(quiet_at=20),
            say.found(30, "did_not_happen"),
            say.found(40, "still_unknown", ask_at=99),
        )
    )

    assert (effect.doubt.asks, effect.doubt.absences, effect.doubt.ask_at) == (2, [30], 99)


def test_a_need_for_a_person_is_a_reason_on_unknown_and_no_outcome() -> None:
    effect = say.effect(say.run(say.started(), say.lost(), e.PersonNeeded(at=30, step=say.STEP, why="found twice")))

    assert (effect.outcome, effect.doubt.person) == ("unknown", "found twice")


def test_a_contradiction_is_written_beside_the_outcome_and_calls_a_person() -> None:
    against = e.Contradicted(at=90, step=say.STEP, evidence="it returned after all", by="worker-1")

    effect = say.effect(say.run(say.started(), say.failed(final=True), against))

    assert (effect.outcome, effect.contradicted, effect.doubt.person) == ("failed", True, "it returned after all")


def test_a_contradiction_of_an_earlier_segment_s_effect_touches_none_of_this_one() -> None:
    against = e.Contradicted(at=90, step="", evidence="it returned after all", by="worker-1")

    state = say.run(say.started(), against)

    assert (say.effect(state).outcome, say.effect(state).contradicted) == ("started", False)


def test_a_credential_s_fingerprint_stays_with_its_effect() -> None:
    used = e.CredentialUsed(at=11, step=say.STEP, name="stripe", fingerprint="f1")

    assert say.effect(say.run(say.started(), used)).credentials == {"stripe": "f1"}


# ---------------------------------------------------------------- money


def test_a_reservation_is_settled_with_what_was_truly_spent() -> None:
    reserved = say.run(say.started(reserve=say.usd(2)), granted=say.usd(5))
    exact = say.run(say.started(reserve=say.usd(2)), say.confirmed(spent=say.usd("0.5")), granted=say.usd(5))
    silent = say.run(say.started(reserve=say.usd(2)), say.confirmed(), granted=say.usd(5))

    assert reserved.ledger.left("usd") == 3
    assert (exact.ledger.spent, exact.ledger.left("usd")) == (say.usd("0.5"), Decimal("4.5"))
    assert (silent.ledger.spent, silent.ledger.left("usd")) == (say.usd(2), Decimal(3))


def test_an_unknown_effect_keeps_its_reservation() -> None:
    state = say.run(say.started(reserve=say.usd(2)), say.lost(), granted=say.usd(5))

    assert state.ledger.reserved == {say.STEP: say.usd(2)}


def test_a_final_failure_gives_its_reservation_back_and_a_passing_one_keeps_it() -> None:
    final = say.run(say.started(reserve=say.usd(2)), say.failed(final=True), granted=say.usd(5))
    charged = say.run(say.started(reserve=say.usd(2)), say.failed(final=True, spent=say.usd(1)), granted=say.usd(5))
    passing = say.run(say.started(reserve=say.usd(2)), say.failed(), granted=say.usd(5))

    assert final.ledger.left("usd") == 5
    assert charged.ledger.left("usd") == 4
    assert passing.ledger.left("usd") == 3


def test_a_costed_read_that_was_lost_is_booked_in_full_when_it_is_called_again() -> None:
    again = say.started(30, 2, resend=True, reserve=say.usd(2))

    state = say.run(say.started(effect="read", reserve=say.usd(2)), say.lost(), again, granted=say.usd(5))

    assert (state.ledger.spent, state.ledger.reserved) == (say.usd(2), {say.STEP: say.usd(2)})
    assert state.ledger.left("usd") == 1


# ---------------------------------------------------------------- approvals


def test_an_approval_is_asked_answered_and_used_once() -> None:
    answered = e.ApprovalAnswered(at=12, id="ap-1", approved=True, by="ann")
    asked, approved = say.run(say.planned(), ASKED), say.run(say.planned(), ASKED, answered)
    used = say.run(say.planned(), ASKED, answered, say.started(plan=None, approval="ap-1"))

    assert asked.approvals["ap-1"].verdict == "asked"
    assert (approved.approvals["ap-1"].verdict, approved.approvals["ap-1"].by) == ("approved", "ann")
    assert used.approvals["ap-1"].verdict == "used"
    assert say.effect(used).approval == "ap-1"


def test_a_denial_keeps_its_reason() -> None:
    denied = e.ApprovalAnswered(at=12, id="ap-1", approved=False, by="ann", why="too much")

    approval = say.run(say.planned(), ASKED, denied).approvals["ap-1"]

    assert (approval.verdict, approval.by, approval.why) == ("denied", "ann", "too much")


# ---------------------------------------------------------------- reads, values, waits, children


def test_a_read_s_answer_stands_in_the_record() -> None:
    returned = e.ReadReturned(at=9, step=":0", path="pay/look#1", tool="look", digest="d", result=msgspec.Raw(b"1"))

    assert say.run(returned).steps[":0"] == Read("pay/look#1", "look", "d", "returned", msgspec.Raw(b"1"))


def test_a_failed_read_is_retried_or_has_failed() -> None:
    def read_failed(retry_at: int | None) -> e.ReadFailed:
        return e.ReadFailed(
            at=9, step=":0", path="p", tool="look", digest="d", attempt=2, why="no route", retry_at=retry_at
        )

    assert say.run(read_failed(99)).steps[":0"] == Read("p", "look", "d", "retrying", None, "no route", 2, 99)
    assert say.run(read_failed(None)).steps[":0"] == Read("p", "look", "d", "failed", None, "no route", 2, None)


def test_a_cancelled_read_is_recorded() -> None:
    cancelled = e.ReadCancelled(at=9, step=":0", path="p", tool="look", digest="d")

    assert say.run(cancelled).steps[":0"] == Read("p", "look", "d", "cancelled")


def test_a_recorded_value_answers_again() -> None:
    recorded = e.ValueRecorded(at=9, step=":0", kind="random", value=msgspec.Raw(b"0.5"))

    assert say.run(recorded).steps[":0"] == Value("random", msgspec.Raw(b"0.5"))


def test_a_sleep_ends_when_the_record_says_so() -> None:
    slept = say.run(e.SleepStarted(at=9, step=":0", until=99), e.SleepEnded(at=99, step=":0"))

    assert say.run(e.SleepStarted(at=9, step=":0", until=99)).steps[":0"] == Sleep(99)
    assert slept.steps[":0"] == Sleep(99, ended=True)


def test_a_signal_waits_until_a_segment_takes_it() -> None:
    other = e.Signal("s2", "go", msgspec.Raw(b"8"))
    awaited = e.SignalAwaited(at=9, step=":0", name="go", until=99)
    sent = [e.SignalSent(at=10, signal=SIGNAL), e.SignalSent(at=11, signal=other)]
    taken = e.SignalReceived(at=12, step=":0", name="go", id="s1", value=msgspec.Raw(b"7"))

    waiting, received = say.run(awaited, *sent), say.run(awaited, *sent, taken)

    assert waiting.signals == [SIGNAL, other]
    assert waiting.steps[":0"] == Receive("go", 99)
    assert received.signals == [other]
    assert received.steps[":0"] == Receive("go", 99, taken=True, id="s1", value=msgspec.Raw(b"7"))


def test_a_wait_for_a_signal_may_end_without_one() -> None:
    awaited = e.SignalAwaited(at=9, step=":0", name="go", until=99)
    ended = e.SignalReceived(at=99, step=":0", name="go", id=None, value=say.NULL)

    assert say.run(awaited, ended).steps[":0"] == Receive("go", 99, taken=True, id=None, value=say.NULL)


def test_a_child_is_running_until_it_ended() -> None:
    started = e.ChildStarted(at=9, step=":0", child="c1", workflow="w", digest="d")
    awaited = e.ChildAwaited(at=10, step=":1", child="c1")
    ended = e.ChildEnded(at=11, child="c1", status="failed", result=say.NULL, why="boom")

    running, over = say.run(started, awaited), say.run(started, awaited, ended)

    assert running.steps == {":0": ChildStart("c1", "w", "d"), ":1": ChildWait("c1")}
    assert (running.children, over.children) == ({"c1": "running"}, {"c1": "failed"})
    assert over.child_results["c1"] is ended


# ---------------------------------------------------------------- failed segments


def read_failed(step: str, retry_at: int | None = None) -> e.ReadFailed:
    return e.ReadFailed(at=12, step=step, path="p", tool="look", digest="d", attempt=1, why="x", retry_at=retry_at)


def finished_and_failed() -> list[e.Entry]:
    return [
        say.started(step=":0"), say.confirmed(step=":0"),
        say.started(step=":1"), say.failed(step=":1", final=True),
        e.ReadReturned(at=12, step=":2", path="p", tool="look", digest="d", result=say.NULL),
        read_failed(":3"), read_failed(":4", retry_at=99), say.started(step=":5"), say.lost(step=":5"),
    ]  # fmt: skip


def test_a_segment_that_is_entered_again_keeps_what_finished_and_forgets_what_failed() -> None:
    """Requirement 23. Requirement 60."""
    state = say.run(*finished_and_failed(), e.SegmentFailed(at=40, why="boom", attempt=1, retry_at=500))

    assert set(state.steps) == {":0", ":2", ":5"}
    assert (state.segment_attempt, state.retry_at, state.why, state.generation) == (1, 500, "boom", 1)


def test_a_person_s_retry_makes_a_failed_run_ready_and_keeps_what_finished() -> None:
    """Requirement 23."""
    stopped = e.RunStopped(at=40, status="failed", code="error", why="boom")

    state = say.run(*finished_and_failed(), stopped, e.Retried(at=50, by="ann"))

    assert set(state.steps) == {":0", ":2", ":5"}
    assert (state.status, state.code, state.why, state.segment_attempt, state.retry_at) == ("ready", "", "", 0, None)


def test_what_failed_and_was_contradicted_is_never_asked_for_anew() -> None:
    """Requirement 19."""
    against = e.Contradicted(at=30, step=say.STEP, evidence="it returned after all", by="worker-1")

    state = say.run(say.started(), say.failed(final=True), against, e.Retried(at=40, by="ann"))

    assert say.effect(state).contradicted


def test_approvals_of_what_is_forgotten_are_forgotten_and_those_of_what_stays_stay() -> None:
    kept = e.ApprovalAsked(at=11, step=":0", id="ap-0", tool_version="1", digest="d1")
    gone = e.ApprovalAsked(at=11, step=":1", id="ap-1", tool_version="1", digest="d1")
    yes = [e.ApprovalAnswered(at=12, id=id_, approved=True, by="ann") for id_ in ("ap-0", "ap-1")]
    used = say.started(step=":0", approval="ap-0")
    failed = [say.started(step=":1", approval="ap-1"), say.failed(step=":1", final=True)]

    state = say.run(kept, gone, *yes, used, *failed, e.SegmentFailed(at=40, why="boom", attempt=1, retry_at=500))

    assert set(state.approvals) == {"ap-0"}


def test_an_effect_that_waits_for_its_approval_is_waited_for_again() -> None:
    state = say.run(say.planned(), ASKED, e.SegmentFailed(at=40, why="boom", attempt=1, retry_at=500))

    assert set(state.approvals) == {"ap-1"}
    assert set(state.steps) == {say.STEP}


def test_a_boundary_starts_the_count_of_segment_attempts_anew() -> None:
    failed = e.SegmentFailed(at=40, why="boom", attempt=2, retry_at=500)

    state = say.run(failed, e.Checkpointed(at=50, boundary=say.boundary(visit=1)))

    assert (state.segment_attempt, state.generation, state.retry_at) == (0, 0, None)


# ---------------------------------------------------------------- records that do not follow from each other

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
