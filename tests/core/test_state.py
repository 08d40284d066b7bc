"""`fold` says what is true of a run: every entry changes what it says it changes, and nothing else does."""

import msgspec
import pytest

from milepost.core import codec
from milepost.core import entries as e
from milepost.core.state import IMPORTED, RunState, fold
from milepost.core.steps import ChildStart, ChildWait, Read, Receive, Sleep, Value
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
        epoch=1, owner="worker-1", finished_root="r" * 64,
    )  # fmt: skip

    state = say.run(say.started(), say.confirmed(), ASKED, e.Checkpointed(at=30, boundary=next_boundary))

    assert (state.visit, state.segment, bytes(state.state)) == (1, "mail", b'"s"')
    assert (state.steps, dict(state.approvals)) == ({}, {})
    assert (state.finished_segment, state.finished, state.finished_root) == ("pay", (marker,), "r" * 64)
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


SHORT = e.RunParked(at=9, reason="budget", until=99)


@pytest.mark.parametrize(
    ("since", "times"),
    [
        ((SHORT,), 2),
        ((say.started(), say.confirmed(), SHORT), 1),
        ((say.started(), say.failed(final=True), SHORT), 1),
        ((say.planned(), say.failed(final=True), SHORT), 2),
        ((e.RunParked(at=10, reason="signal"), SHORT), 1),
    ],
)
def test_how_often_a_run_was_short_of_money_is_counted_since_it_last_got_some(
    since: tuple[e.Entry, ...], times: int
) -> None:
    assert say.run(SHORT, *since).short == times


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


def test_a_read_that_a_rule_denied_says_so() -> None:
    denied = e.ReadFailed(
        at=9, step=":0", path="p", tool="look", digest="d", attempt=1, why="no", by="policy never", policy="1+ab"
    )

    assert say.run(denied).steps[":0"] == Read("p", "look", "d", "failed", None, "no", 1, None, "policy never")


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


def test_an_approval_that_was_used_lets_no_further_attempt_start_after_an_import() -> None:
    """Requirement 49. Where the run came from, that attempt may have been made: another person must say so here."""
    asked = e.ApprovalAsked(at=5, step=say.STEP, id="ap-1", tool_version="1", digest="d1")
    answered = e.ApprovalAnswered(at=6, id="ap-1", approved=True, by="ann")
    imported = e.RunStopped(at=90, status="blocked", code=IMPORTED, why="from another store")
    tried = [say.planned(), asked, answered, say.started(plan=None, approval="ap-1"), say.failed(final=False)]

    before, after = say.run(*tried), say.run(*tried, imported)

    assert (say.effect(before).approval, say.effect(after).approval) == ("ap-1", None)
    assert after.approvals["ap-1"].verdict == "used"
    assert after.generation == before.generation + 1, "else the next question would have the id of the one used"

    after.apply(imported)

    assert after.generation == before.generation + 2, "it may be taken in from one store after the other"


def test_an_import_keeps_what_was_denied_and_the_approval_of_what_is_still_to_be_settled() -> None:
    """Requirement 49."""
    asked = [e.ApprovalAsked(at=5, step=f":{n}", id=f"ap-{n}", tool_version="1", digest="d1") for n in range(3)]
    answers = [e.ApprovalAnswered(at=6, id=f"ap-{n}", approved=n != 1, by="ann") for n in range(3)]
    imported = e.RunStopped(at=90, status="blocked", code=IMPORTED, why="from another store")

    state = say.run(*asked, *answers, say.started(approval="ap-0"), say.lost(), imported)

    assert {id_: approval.verdict for id_, approval in state.approvals.items()} == {"ap-0": "used", "ap-1": "denied"}
    assert (say.effect(state).outcome, say.effect(state).approval) == ("unknown", "ap-0")


def test_a_run_is_taken_for_imported_until_its_next_boundary() -> None:
    imported = e.RunStopped(at=90, status="blocked", code=IMPORTED, why="from another store", manifest="m2")
    state = say.run(imported)
    assert (state.imported, state.refused_digest) == (True, "m2")

    state.apply(e.Checkpointed(at=95, boundary=say.boundary(visit=1)))

    assert (state.imported, state.refused_digest) == (False, "")


def test_an_answer_was_given_when_it_says_and_else_when_it_was_recorded() -> None:
    told = [e.ApprovalAnswered(at=9, id="ap-1", approved=True, by="ann", said_at=said_at) for said_at in (5, 0)]

    assert [say.run(ASKED, one).approvals["ap-1"].said_at for one in told] == [5, 9]
