"""Decisions about several effects at once, about reads in doubt of a run that ended, and about code that changed."""

import msgspec
import pytest

from milepost.core import entries as e
from milepost.core.decide import Rest, Settle, World, decide, may_act, move_for, recover, rest_on
from milepost.core.outcome import Facts, Person, Wait
from tests.core import samples as say

READ = Facts(effect="read", version="1")
KEYED = Facts(effect="keyed", key_ttl_ms=86_400_000, reconcilable=True, version="1")
CANCELLED = e.CancelAsked(at=50, by="ann", why="wrong customer")
DEAD = frozenset({"worker-1"})


def test_every_effect_in_flight_is_unknown_at_recovery_whatever_stands_before_it() -> None:
    state = say.run(say.started(), say.confirmed(), say.started(step=":1"), say.started(step=":2"))

    entries = recover(state, World(100))

    assert [entry.step for entry in entries if isinstance(entry, e.EffectUnknown)] == [":1", ":2"]


def test_every_attempt_of_a_dead_worker_is_quiet_at_recovery_whatever_stands_before_it() -> None:
    state = say.run(
        say.started(), say.lost(), say.started(30, 2, resend=True), say.lost(40, 2),
        say.started(step=":1"), say.started(step=":2"), say.lost(step=":2"),
    )  # fmt: skip

    entries = recover(state, World(100, dead=DEAD))

    assert [(entry.step, entry.attempt) for entry in entries if isinstance(entry, e.AttemptQuieted)] == [
        (say.STEP, 1), (say.STEP, 2), (":2", 1),
    ]  # fmt: skip
    assert [entry.step for entry in entries if isinstance(entry, e.EffectUnknown)] == [":1"]


@pytest.mark.parametrize("before", [[], [CANCELLED]], ids=["by itself", "after a cancel"])
def test_a_read_in_doubt_of_a_run_that_ended_is_settled_and_not_left(before: list[e.Entry]) -> None:
    killed = e.RunStopped(at=60, status="killed", code="killed", why="x")
    state = say.run(say.started(effect="read"), *before, killed)

    assert decide(state, World(100, {"charge": READ}, ended=True)).perform == Settle((say.STEP,))


def test_a_read_in_doubt_of_an_attached_run_is_its_host_s_even_after_a_cancel() -> None:
    state = say.run(say.started(effect="read"), say.lost(), CANCELLED)

    assert decide(state, World(100, {"charge": READ}, attached=True)).perform == Rest("unknown", None)


def test_an_attached_run_says_who_drives_it() -> None:
    idle = decide(say.run(), World(100, attached=True)).perform

    assert isinstance(idle, Rest)
    assert "host of run run-1" in idle.ask


def test_a_read_that_is_given_up_was_found_and_not_said_by_a_person() -> None:
    state = say.run(say.started(effect="read"), say.lost(), CANCELLED)

    given_up, _ = decide(state, World(100, {"charge": READ})).append

    assert isinstance(given_up, e.EffectFailed)
    assert given_up.by == "finding"


def test_that_the_code_of_today_has_another_version_of_a_tool_calls_nobody_for_good() -> None:
    """Whoever deploys the old version again lets it go on."""
    state = say.run(say.started(), say.lost())

    move = move_for(say.effect(state), World(100, {"charge": msgspec.structs.replace(KEYED, version="2")}))

    assert not may_act(say.effect(state), move)


def test_a_run_that_needs_a_person_for_one_effect_still_wakes_for_another() -> None:
    state = say.run(say.started(), say.started(step=":1"), say.started(step=":2"))
    one, two, three = (say.effect(state, step) for step in (say.STEP, ":1", ":2"))

    rest = rest_on("run-1", [(one, Person("x")), (two, Wait(900)), (three, Person("y"))])

    assert rest.until == 900
    assert [ask.split(" --")[0] for ask in rest.ask.split("; ")] == [
        f"milepost resolve run-1 {effect.path}" for effect in (one, three)
    ]
