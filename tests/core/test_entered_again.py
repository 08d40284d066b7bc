"""What the record says of a run whose segment is entered again, of its children, and of effects that failed."""

import pytest

from milepost.core import entries as e
from milepost.core.state import RunState, fold
from tests.core import samples as say

FAILED_ONCE = e.SegmentFailed(at=40, why="boom", attempt=1, retry_at=500)


def with_children(*more: e.Entry) -> RunState:
    """Return a run with three children: one done, one failed, one that still runs."""
    started = [e.ChildStarted(at=9, step=f":{n}", child=f"c{n}", workflow="w", digest="d") for n in (1, 2, 3)]
    ended = [
        e.ChildEnded(at=20, child="c1", status="done", result=say.NULL),
        e.ChildEnded(at=21, child="c2", status="failed", result=say.NULL, why="boom"),
    ]
    return say.run(*started, *ended, *more)


def test_a_child_that_failed_may_be_retried_and_is_waited_for_again() -> None:
    before, after = with_children(), with_children(FAILED_ONCE)

    assert before.children == {"c1": "done", "c2": "failed", "c3": "running"}
    assert set(before.child_results) == {"c1", "c2"}
    assert after.children == {"c1": "done", "c2": "running", "c3": "running"}
    assert set(after.child_results) == {"c1"}


def test_each_time_a_segment_is_entered_again_its_effects_get_new_keys() -> None:
    twice = say.run(FAILED_ONCE, e.SegmentFailed(at=60, why="boom", attempt=2, retry_at=900))

    assert twice.generation == 2


@pytest.mark.parametrize("before", [[], [e.RunParked(at=5, reason="time", until=9)], [say.claimed(5, 1)]])
def test_whatever_moves_by_itself_is_running_once_it_is_claimed(before: list[e.Entry]) -> None:
    state = fold(say.RUN, [say.created(), *before, say.claimed(10, 2)])

    assert state.status == "running"


def test_a_blocked_run_stays_blocked_when_it_is_claimed() -> None:
    blocked = e.RunStopped(at=5, status="blocked", code="diverged", why="x")

    assert say.run(blocked, say.claimed(10, 2)).status == "blocked"


def test_a_failure_says_since_when_its_attempt_is_quiet() -> None:
    attempts = say.effect(say.run(say.started(), say.failed(33))).doubt.attempts

    assert [(attempt.settled, attempt.quiet_at) for attempt in attempts] == [("not_sent", 33)]


def test_a_failure_calls_off_the_person_except_where_the_record_is_contradicted() -> None:
    needed = e.PersonNeeded(at=30, step=say.STEP, why="nobody can say")
    against = e.Contradicted(at=31, step=say.STEP, evidence="it returned after all", by="worker-1")

    plain = say.effect(say.run(say.started(), say.lost(), needed, say.failed(40, reason="absent", by="finding")))
    doubted = say.effect(say.run(say.started(), say.lost(), against, say.failed(40, reason="absent", by="finding")))

    assert plain.doubt.person == ""
    assert (doubted.contradicted, doubted.doubt.person) == (True, "it returned after all")


def test_a_resend_does_not_wait_for_a_question_that_was_put_off() -> None:
    put_off = say.found(30, "still_unknown", ask_at=9_000)

    resent = say.effect(say.run(say.started(), say.lost(quiet_at=20), put_off, say.started(40, 2, resend=True)))

    assert (resent.doubt.asks, resent.doubt.ask_at) == (1, 0)
