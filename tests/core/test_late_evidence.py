"""A worker that lost its run still says what it saw; the owner journals it, and it may settle what is unknown."""

from collections.abc import Callable

import msgspec
import pytest

from milepost.core import entries as e
from milepost.core import messages as m
from milepost.core.inbox import journal
from milepost.core.state import RunState
from tests.core import samples as say

NOW = 1_000


def evidence(saw: str, attempt: int = 1, *, visit: int = 0, step: str = say.STEP, at: int = 900) -> m.Evidence:
    return m.Evidence(
        at=at, by="worker-1", visit=visit, step=step, path=say.PATH, attempt=attempt, saw=saw,
        value=msgspec.Raw(b'"late"'), why="seen late",
    )  # fmt: skip


def settle(state: RunState, message: m.Evidence) -> list[type[e.Entry]]:
    entries = journal(state, message, NOW)
    for entry in entries:
        state.apply(entry)
    return [type(entry) for entry in entries]


def resent(*more: e.Entry) -> RunState:
    """Return an effect that was lost, and then sent again by the next owner."""
    return say.run(
        say.started(), say.lost(), say.claimed(25, 2, "worker-2"), say.started(30, 2, resend=True, epoch=2), *more
    )


def retried_after_absence(*more: e.Entry) -> RunState:
    """Return an effect that was lost, proven absent, and then tried again."""
    return say.run(say.started(), say.lost(quiet_at=20), *say.absent(50), say.started(60, 2), *more)


# ---------------------------------------------------------------- what it settles


def test_late_evidence_of_success_confirms_an_unknown_effect() -> None:
    state = say.run(say.started(), say.lost())

    assert settle(state, evidence("returned")) == [e.EffectConfirmed]
    effect = say.effect(state)
    assert (effect.outcome, bytes(effect.result), effect.by) == ("confirmed", b'"late"', "evidence")


@pytest.mark.parametrize(("saw", "final", "retry_at"), [("not_sent", False, NOW), ("rejected", True, None)])
def test_late_evidence_that_it_did_not_happen_fails_an_effect_of_one_attempt(
    *, saw: str, final: bool, retry_at: int | None
) -> None:
    state = say.run(say.started(), say.lost())

    assert settle(state, evidence(saw)) == [e.AttemptQuieted, e.AttemptSettled, e.EffectFailed]
    effect = say.effect(state)
    assert (effect.outcome, effect.reason, effect.final, effect.retry_at) == ("failed", saw, final, retry_at)


def test_late_evidence_about_one_of_two_attempts_settles_that_one_alone() -> None:
    state = resent()

    assert settle(state, evidence("rejected", 1)) == [e.AttemptQuieted, e.AttemptSettled]
    assert say.effect(state).outcome == "unknown"
    assert [attempt.settled for attempt in say.effect(state).doubt.attempts] == ["rejected", ""]


def test_when_the_last_unsettled_attempt_is_proven_not_to_have_happened_the_effect_failed() -> None:
    state = resent(e.AttemptSettled(at=40, step=say.STEP, attempt=2, reason="rejected"))

    assert settle(state, evidence("not_sent", 1)) == [e.AttemptQuieted, e.AttemptSettled, e.EffectFailed]
    assert say.effect(state).outcome == "failed"


def test_an_attempt_that_saw_nothing_is_at_least_quiet_now() -> None:
    state = say.run(say.started(), say.lost())

    assert settle(state, evidence("unknown", at=777)) == [e.AttemptQuieted]
    assert say.effect(state).doubt.attempts[0].quiet_at == 777


def test_a_second_word_about_a_quiet_and_settled_attempt_adds_nothing() -> None:
    state = resent(e.AttemptSettled(at=40, step=say.STEP, attempt=2, reason="rejected"))

    assert settle(state, evidence("rejected", 2)) == []
    assert settle(state, evidence("unknown", 2)) == []


def test_evidence_of_what_is_known_already_adds_nothing() -> None:
    state = say.run(say.started(), say.confirmed())

    for saw in ("returned", "unknown", "not_sent"):
        assert settle(state, evidence(saw)) == []


def test_a_keyed_effect_that_two_attempts_saw_succeed_happened_once() -> None:
    """The same key, so the provider answered both with the same effect."""
    state = resent(say.confirmed(40, 2))

    assert settle(state, evidence("returned", 1)) == []
    assert say.effect(state).outcome == "confirmed"


# ---------------------------------------------------------------- what it contradicts


def blocks(state: RunState, message: m.Evidence) -> e.Contradicted:
    against, stopped = journal(state, message, NOW)
    assert isinstance(against, e.Contradicted)
    assert isinstance(stopped, e.RunStopped)
    assert (stopped.status, stopped.code) == ("blocked", "contradicted")
    for entry in (against, stopped):
        state.apply(entry)
    assert state.status == "blocked"
    return against


@pytest.mark.parametrize("reason", ["absent", "rejected", "not_sent", "person"])
def test_evidence_of_success_after_failed_blocks_the_run(reason: str) -> None:
    state = say.run(say.started(), say.lost(quiet_at=20), say.failed(30, reason=reason, final=True))

    against = blocks(state, evidence("returned"))

    assert (against.step, against.tool, against.by) == (say.STEP, "charge", "worker-1")
    assert (say.effect(state).outcome, say.effect(state).contradicted) == ("failed", True)


def test_evidence_that_an_absent_attempt_happened_blocks_while_its_retry_is_in_flight() -> None:
    state = retried_after_absence()

    blocks(state, evidence("returned", 1))

    assert (say.effect(state).outcome, say.effect(state).contradicted) == ("started", True)


def test_evidence_that_an_absent_attempt_happened_blocks_while_its_retry_is_unknown() -> None:
    state = retried_after_absence(say.lost(70, 2))

    blocks(state, evidence("returned", 1))

    assert (say.effect(state).outcome, say.effect(state).doubt.person != "") == ("unknown", True)


def test_evidence_that_an_absent_attempt_happened_blocks_after_its_retry_was_confirmed() -> None:
    """It happened twice, and nobody may find out by chance."""
    state = retried_after_absence(say.confirmed(70, 2))

    blocks(state, evidence("returned", 1))

    assert (say.effect(state).outcome, say.effect(state).contradicted) == ("confirmed", True)


def test_what_is_contradicted_stays_so_when_the_retry_in_flight_is_confirmed() -> None:
    state = retried_after_absence()
    blocks(state, evidence("returned", 1))

    state.apply(say.confirmed(90, 2))

    assert say.effect(state).contradicted


def test_a_contradiction_in_a_run_that_ended_is_written_down_and_the_run_stays_ended() -> None:
    state = say.run(say.started(), say.failed(final=True), e.RunStopped(at=60, status="cancelled", code="x", why="x"))

    assert settle(state, evidence("returned")) == [e.Contradicted]
    assert state.status == "cancelled"


# ---------------------------------------------------------------- what comes after the segment ended


def ended_segment(outcome: str, key: str = "") -> RunState:
    marker = e.Marker(say.PATH, outcome, "d", say.NULL, key)
    boundary = say.boundary(visit=1, segment="mail", finished_segment="pay", finished=(marker,))
    return say.run(e.Checkpointed(at=50, boundary=boundary), say.started(60))


def test_evidence_of_success_for_a_failed_effect_of_the_segment_before_blocks_the_run() -> None:
    state = ended_segment("failed")

    against = blocks(state, evidence("returned"))

    assert (against.step, against.tool) == ("", "charge")
    assert (say.effect(state).outcome, say.effect(state).contradicted) == ("started", False)


@pytest.mark.parametrize(
    ("recorded", "said", "is_it"), [("k1", "k1", True), ("", "k1", True), ("k1", "", True), ("k1", "k2", False)]
)
def test_where_a_record_or_a_message_of_before_has_no_key_the_path_says_which_effect_it_was(
    recorded: str,
    said: str,
    is_it: bool,  # noqa: FBT001
) -> None:
    message = msgspec.structs.replace(evidence("returned"), key=said)

    assert (settle(ended_segment("failed", recorded), message)[0] is e.Contradicted) is is_it


def test_a_late_contradiction_in_a_run_that_ended_leaves_it_ended() -> None:
    state = ended_segment("failed")
    state.apply(e.RunStopped(at=70, status="killed", code="killed", why="x"))

    assert settle(state, evidence("returned")) == [e.Contradicted]
    assert state.status == "killed"


@pytest.mark.parametrize(
    ("outcome", "saw"), [("failed", "unknown"), ("confirmed", "returned"), ("confirmed", "not_sent")]
)
def test_evidence_about_what_was_settled_before_is_written_down_as_refused(outcome: str, saw: str) -> None:
    assert settle(ended_segment(outcome), evidence(saw)) == [e.MessageRefused]


@pytest.mark.parametrize("attempt", [0, -1, 2])
def test_evidence_of_an_attempt_that_never_was_changes_nothing(attempt: int) -> None:
    state = say.run(say.started(), say.lost())

    assert settle(state, evidence("returned", attempt)) == [e.MessageRefused]
    assert say.effect(state).outcome == "unknown"


def test_evidence_about_a_step_that_is_no_effect_changes_nothing() -> None:
    state = say.run(e.SleepStarted(at=9, step=say.STEP, until=99))

    assert settle(state, evidence("returned")) == [e.MessageRefused]


def test_late_evidence_settles_an_effect_of_a_run_that_ended_for_good() -> None:
    state = say.run(say.started(), say.lost(), e.RunStopped(at=60, status="killed", code="killed", why="x"))

    settle(state, evidence("not_sent"))

    assert (say.effect(state).outcome, say.effect(state).final, state.status) == ("failed", True, "killed")


# ---------------------------------------------------------------- of an effect that was given up, and made anew


def entered_again(*more: e.Entry) -> RunState:
    """Return a run whose effect (key k1) is proven absent for good, and whose segment was entered again."""
    gone = say.failed(final=True, reason="absent")
    return say.run(say.started(), say.lost(quiet_at=20), gone, e.Retried(at=30, by="ann", why="again"), *more)


def anew(*more: e.Entry) -> RunState:
    """Return the same, where the segment has made another effect (key k2) at its step since."""
    plan = msgspec.structs.replace(say.planned(40), key="k2")
    return entered_again(say.started(40, plan=plan), say.lost(at=50), *more)


def of(key: str) -> m.Evidence:
    return msgspec.structs.replace(evidence("returned"), key=key)


@pytest.mark.parametrize("again", [entered_again, anew])
def test_success_of_an_effect_that_was_given_up_contradicts_it_and_confirms_no_other(
    again: Callable[[], RunState],
) -> None:
    """Requirement 51. The new effect has another key: what is known of the old one says nothing about it."""
    state = again()

    assert settle(state, of("k1")) == [e.Contradicted, e.RunStopped]
    assert state.code == "contradicted"
    assert [effect.outcome for effect in state.effects()] == (["unknown"] if state.steps else [])


def test_success_of_the_new_effect_is_its_own() -> None:
    state = anew()

    assert settle(state, of("k2")) == [e.EffectConfirmed]
    assert say.effect(state).key == "k2"


def test_behind_the_next_boundary_the_key_tells_the_two_apart() -> None:
    """Requirement 51. Else what is known to have happened would block the run when it is told once more."""
    marker = e.Marker(say.PATH, "failed", "d1", say.NULL, "k1")
    state = say.run(e.Checkpointed(at=60, boundary=say.boundary(visit=1, segment="mail", finished=(marker,))))

    assert settle(state, of("k2")) == [e.MessageRefused]
    assert settle(state, of("k1")) == [e.Contradicted, e.RunStopped]


def test_a_rewind_keeps_what_was_given_up_before_it() -> None:
    asked = e.RewindAsked(at=60, to=0, by="ann", why="x", boundary=say.boundary(), undo=())
    state = entered_again(asked)

    assert [marker.key for marker in state.finished] == ["k1"]
    assert settle(state, of("k1")) == [e.Contradicted, e.RunStopped]
