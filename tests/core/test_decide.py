"""The next act is a pure function of the record, of what the world shows today, and of the time."""

from dataclasses import replace

import msgspec
import pytest

from milepost.core import entries as e
from milepost.core.decide import (
    Decision,
    Enter,
    Release,
    Rest,
    Settle,
    World,
    decide,
    may_act,
    move_for,
    recover,
    rest_on,
    verify_move,
)
from milepost.core.outcome import Ask, Facts, Person, ProvenAbsent, Resend, Wait
from milepost.core.state import RunState, fold
from milepost.errors import Damaged
from tests.core import samples as say

HOUR = 3_600_000
KEYED = Facts(effect="keyed", key_ttl_ms=24 * HOUR, visible_ms=1_000, reconcilable=True, version="1")
QUERYABLE = Facts(effect="queryable", visible_ms=1_000, reconcilable=True, version="1")
FINAL = Facts(effect="irreversible", version="1")


def world(now: int = 100, facts: Facts = KEYED, **changes: object) -> World:
    return replace(World(now, {"charge": facts}), **changes)  # type: ignore[arg-type]


# ---------------------------------------------------------------- what a new owner appends first


def test_an_effect_found_started_is_unknown_always() -> None:
    """Requirement 26. Requirement 10."""
    state = say.run(say.started())

    (entry,) = recover(state, world(100))

    assert isinstance(entry, e.EffectUnknown)
    assert (entry.step, entry.attempt, entry.quiet_at, entry.died) == (say.STEP, 1, None, False)
    assert "taken over" in entry.why


def test_an_attempt_of_a_worker_that_is_proven_dead_is_quiet_from_now() -> None:
    state = say.run(say.started())

    (entry,) = recover(state, world(100, dead=frozenset({"worker-1"})))

    assert isinstance(entry, e.EffectUnknown)
    assert (entry.quiet_at, entry.died) == (100, True)
    assert "died" in entry.why


def test_an_unknown_attempt_is_quiet_once_its_worker_is_proven_dead() -> None:
    state = say.run(say.started(), say.lost(), say.claimed(30, 2, "worker-2"))

    assert recover(state, world(100)) == []
    (entry,) = recover(state, world(100, dead=frozenset({"worker-1"})))
    assert entry == e.AttemptQuieted(at=100, step=say.STEP, attempt=1, quiet_at=100, died=True)


def test_the_moment_when_an_attempt_became_quiet_is_not_moved_by_a_later_claim() -> None:
    state = say.run(say.started(), say.lost(quiet_at=25))

    assert recover(state, world(100, dead=frozenset({"worker-1"}))) == []


def test_settled_effects_and_reads_need_nothing_at_recovery() -> None:
    read = e.ReadReturned(at=30, step=":1", path="pay/look#1", tool="look", digest="d", result=say.NULL)
    state = say.run(say.started(), say.confirmed(), read)

    assert recover(state, world(100)) == []


def test_recovering_twice_appends_nothing_the_second_time() -> None:
    """Requirement 63."""
    state = say.run(say.started())
    for entry in recover(state, world(100, dead=frozenset({"worker-1"}))):
        state.apply(entry)

    assert recover(state, world(200, dead=frozenset({"worker-1"}))) == []


# ---------------------------------------------------------------- what is done next


def test_a_run_that_nothing_stops_enters_its_segment() -> None:
    assert decide(say.run(), world()) == Decision((), Enter("pay"))


def test_unknown_effects_do_not_keep_a_segment_from_being_entered() -> None:
    """The segment settles them itself, and its other branches go on meanwhile."""
    assert decide(say.run(say.started(), say.lost()), world()).perform == Enter("pay")


def test_the_decision_needs_no_transcript_and_no_model() -> None:
    """Requirement 38. The same record and the same world give the same decision, from bytes alone."""
    record = [say.created(), say.claimed(), say.started(), say.lost(quiet_at=20)]

    decisions = {repr(decide(fold(say.RUN, record), world())) for _ in range(3)}

    assert len(decisions) == 1


def test_a_failed_segment_waits_for_its_backoff() -> None:
    state = say.run(e.SegmentFailed(at=50, why="boom", attempt=1, retry_at=500))

    assert decide(state, world(499)).perform == Rest("time", 500)
    assert decide(state, world(500)).perform == Enter("pay")


def test_a_blocked_run_is_left_alone_whatever_is_unknown() -> None:
    state = say.run(say.started(), say.lost(), e.RunStopped(at=60, status="blocked", code="diverged", why="x"))

    assert decide(state, world()) == Decision((), Release())


@pytest.mark.parametrize("status", ["failed", "cancelled", "killed"])
def test_a_run_that_ended_is_released(status: str) -> None:
    state = say.run(e.RunStopped(at=60, status=status, code=status, why="x"))

    assert decide(state, world(ended=True)) == Decision((), Release())


def test_of_a_run_that_ended_the_unknown_effects_are_still_looked_up() -> None:
    """Requirement 39."""
    stopped = e.RunStopped(at=60, status="killed", code="killed", why="x", epoch=2)
    state = say.run(say.started(), stopped)

    assert say.effect(state).outcome == "unknown"
    assert decide(state, world(facts=QUERYABLE, ended=True)).perform == Settle((say.STEP,))


def test_for_a_run_that_ended_nothing_is_sent_again() -> None:
    stopped = e.RunStopped(at=60, status="killed", code="killed", why="x", epoch=2)
    state = say.run(say.started(), stopped)
    blind = Facts(effect="keyed", key_ttl_ms=24 * HOUR, version="1")

    assert move_for(say.effect(state), world(facts=KEYED, ended=True)) == Ask()
    assert move_for(say.effect(state), world(facts=blind, ended=True)) == Person(
        "the run ended, and the tool has no reconciler"
    )


def test_for_a_run_that_ended_an_unfinished_read_is_over() -> None:
    state = say.run(say.started(effect="read"), e.RunStopped(at=60, status="killed", code="killed", why="x"))
    read = Facts(effect="read", version="1")

    move = move_for(say.effect(state), world(facts=read, ended=True))

    assert isinstance(move, ProvenAbsent)
    assert move.final


def test_what_a_person_was_called_for_stays_theirs_after_the_run_ended() -> None:
    needed = e.PersonNeeded(at=40, step=say.STEP, why="found twice")
    state = say.run(say.started(), say.lost(), needed, e.RunStopped(at=60, status="failed", code="x", why="x"))

    assert move_for(say.effect(state), world(ended=True)) == Person("found twice")


def test_a_cancelled_run_ends_at_its_boundary() -> None:
    state = say.run(e.CancelAsked(at=50, by="ann", why="wrong customer"))

    decision = decide(state, world(100))

    assert decision.perform == Release()
    assert decision.append == (
        e.RunStopped(at=100, status="cancelled", code="cancelled", why="wrong customer", by="ann"),
    )


def test_a_cancelled_run_settles_its_effects_before_it_ends() -> None:
    state = say.run(say.started(), say.lost(), e.CancelAsked(at=50, by="ann", why="wrong customer"))

    assert decide(state, world(facts=QUERYABLE)) == Decision((), Settle((say.STEP,)))


def test_a_cancelled_run_asks_once_more_about_what_was_sent_again() -> None:
    state = say.run(
        say.started(), say.lost(quiet_at=20), *say.absent(50), say.started(60, 2), say.confirmed(70, 2),
        e.CancelAsked(at=80, by="ann", why="wrong customer"),
    )  # fmt: skip

    assert decide(state, world(1_069)).perform == Rest("unknown", 1_070)
    assert decide(state, world(1_070)).perform == Settle((say.STEP,))


def test_a_read_in_doubt_is_given_up_with_its_run_and_holds_nothing_up() -> None:
    state = say.run(say.started(effect="read"), say.lost(), e.CancelAsked(at=50, by="ann", why="wrong customer"))

    given_up, stopped = decide(state, world(100)).append

    assert isinstance(given_up, e.EffectFailed)
    assert (given_up.step, given_up.attempt, given_up.reason, given_up.final) == (say.STEP, 1, "absent", True)
    assert isinstance(stopped, e.RunStopped)
    for entry in (given_up, stopped):
        state.apply(entry)
    assert (say.effect(state).outcome, state.status) == ("failed", "cancelled")


def test_a_run_whose_deadline_passed_fails_at_its_boundary() -> None:
    decision = decide(say.run(), world(100, deadline=100))

    (stopped,) = decision.append
    assert isinstance(stopped, e.RunStopped)
    assert (stopped.status, stopped.code) == ("failed", "deadline")
    assert decide(say.run(), world(99, deadline=100)).perform == Enter("pay")


def test_what_the_code_of_today_may_not_go_on_with_blocks_and_names_every_reason() -> None:
    """Requirement 35. Requirement 40."""
    decision = decide(say.run(), world(100, blocks=("version 1 became 2", "segment pay is gone")))

    assert decision == Decision(
        (e.RunStopped(at=100, status="blocked", code="incompatible", why="version 1 became 2; segment pay is gone"),),
        Release(),
    )


def test_a_cancelled_run_ends_even_where_the_code_of_today_may_not_go_on() -> None:
    state = say.run(e.CancelAsked(at=50, by="ann", why="x"))

    (stopped,) = decide(state, world(blocks=("gone",))).append

    assert isinstance(stopped, e.RunStopped)
    assert stopped.status == "cancelled"


def test_an_attached_run_is_driven_by_its_host_and_only_settled_here() -> None:
    idle = decide(say.run(), world(attached=True)).perform
    doubtful = decide(say.run(say.started(), say.lost()), world(facts=QUERYABLE, attached=True)).perform

    assert isinstance(idle, Rest)
    assert (idle.reason, idle.until) == ("signal", None)
    assert doubtful == Settle((say.STEP,))


def test_an_attached_run_that_was_cancelled_ends_once_nothing_of_it_is_in_doubt() -> None:
    asked = e.CancelAsked(at=50, by="ann", why="x")

    doubtful = decide(say.run(say.started(), say.lost(), asked), world(facts=QUERYABLE, attached=True))
    (stopped,) = decide(say.run(asked), world(attached=True)).append

    assert doubtful == Decision((), Settle((say.STEP,)))
    assert isinstance(stopped, e.RunStopped)
    assert (stopped.status, stopped.by, stopped.why) == ("cancelled", "ann", "x")


def test_a_boundary_that_names_no_segment_stops_and_is_not_guessed_around() -> None:
    """Requirement 58."""
    with pytest.raises(Damaged, match="names no segment"):
        decide(say.run(segment=None), world())


# ---------------------------------------------------------------- what may be done about one effect


def test_an_effect_whose_tool_is_gone_waits_for_a_person() -> None:
    state = say.run(say.started(), say.lost())

    move = move_for(say.effect(state), World(100))

    assert isinstance(move, Person)
    assert "not listed" in move.why


def test_an_effect_that_another_version_of_the_tool_sent_waits_for_a_person() -> None:
    """Requirement 40."""
    state = say.run(say.started(), say.lost())

    move = move_for(say.effect(state), world(facts=msgspec.structs.replace(KEYED, version="2")))

    assert isinstance(move, Person)
    assert "version '1'" in move.why
    assert "'2'" in move.why


def test_a_keyed_effect_in_doubt_is_sent_again_while_its_run_goes_on() -> None:
    state = say.run(say.started(), say.lost(quiet_at=20, died=True))

    assert move_for(say.effect(state), world()) == Resend()


def test_what_was_sent_again_after_an_absence_is_asked_about_one_bound_after_it_is_quiet() -> None:
    state = say.run(say.started(), say.lost(quiet_at=20), *say.absent(50), say.started(60, 2), say.confirmed(70, 2))

    assert say.effect(state).verify_from == 70
    assert move_for(say.effect(state), world(1_069)) == Wait(1_070)
    assert move_for(say.effect(state), world(1_070)) == Ask()


def test_the_last_question_waits_where_the_reconciler_asked_for_time() -> None:
    state = say.run(
        say.started(), say.lost(quiet_at=20), *say.absent(50), say.started(60, 2), say.confirmed(70, 2),
        say.found(1_100, "still_unknown", ask_at=5_000),
    )  # fmt: skip

    assert move_for(say.effect(state), world(4_999)) == Wait(5_000)
    assert move_for(say.effect(state), world(5_000)) == Ask()


def test_the_last_question_without_a_bound_is_asked_at_once() -> None:
    state = say.run(say.started(), say.confirmed(70))

    assert verify_move(Facts(effect="queryable", reconcilable=True), say.effect(state), 70) == Ask()


def test_the_last_question_goes_to_a_person_where_the_tool_lost_its_reconciler() -> None:
    state = say.run(say.started(), say.lost(quiet_at=20), *say.absent(50), say.started(60, 2), say.confirmed(70, 2))

    assert isinstance(move_for(say.effect(state), world(facts=FINAL)), Person)


def test_a_lost_read_is_called_again_by_whoever_waits_for_it_and_by_nobody_else() -> None:
    state = say.run(say.started(effect="read"), say.lost())

    assert move_for(say.effect(state), world(facts=Facts(effect="read", version="1"))) == Resend()
    assert not may_act(say.effect(state), Resend())


def test_that_the_code_of_today_lacks_a_tool_calls_nobody_for_good() -> None:
    """Whoever deploys the tool again lets it go on."""
    state = say.run(say.started(), say.lost())

    assert not may_act(say.effect(state), move_for(say.effect(state), World(100)))
    assert may_act(say.effect(state), Person("nobody can say"))


@pytest.mark.parametrize("move", [Ask(), Resend(), ProvenAbsent(final=False, why="x")])
def test_what_can_be_done_about_an_effect_is_done(move: Ask | Resend | ProvenAbsent) -> None:
    assert may_act(say.effect(say.run(say.started(), say.lost())), move)


def test_waiting_is_not_doing() -> None:
    assert not may_act(say.effect(say.run(say.started(), say.lost())), Wait(900))


# ---------------------------------------------------------------- what a run rests on


def test_a_run_rests_until_the_earliest_moment_at_which_something_may_be_done() -> None:
    one, other = say.effect(say.run(say.started())), say.effect(say.run(say.started(step=":1")), ":1")

    assert rest_on("run-1", [(one, Wait(900)), (other, Wait(400))]) == Rest("unknown", 400)
    assert rest_on("run-1", [(one, Wait(None))]) == Rest("unknown", None)


def test_a_run_that_needs_a_person_says_what_to_type_for_each_effect() -> None:
    """Requirement 39."""
    one, other = say.effect(say.run(say.started())), say.effect(say.run(say.started(step=":1")), ":1")

    rest = rest_on("run-1", [(one, Person("x")), (other, Person("y"))])

    assert rest.reason == "unknown"
    assert f"milepost resolve run-1 {one.path}" in rest.ask
    assert f"milepost resolve run-1 {other.path}" in rest.ask


def test_that_a_person_is_needed_is_written_down_once_and_then_rested_on() -> None:
    """Requirement 39."""
    state = say.run(say.started(), e.RunStopped(at=60, status="killed", code="killed", why="x"))

    assert decide(state, world(facts=FINAL, ended=True)).perform == Settle((say.STEP,))
    state.apply(e.PersonNeeded(at=70, step=say.STEP, why="nobody can say"))

    rest = decide(state, world(facts=FINAL, ended=True)).perform
    assert isinstance(rest, Rest)
    assert rest.reason == "unknown"
    assert "milepost resolve run-1 pay/charge#1" in rest.ask


def test_the_state_is_not_changed_by_deciding() -> None:
    state = say.run(say.started(), say.lost())
    before = repr(state)

    decide(state, world())
    recover(state, world(dead=frozenset({"worker-1"})))

    assert repr(state) == before
    assert isinstance(state, RunState)
