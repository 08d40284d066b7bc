"""When one held run moves, what it waits for, and when its segment is unloaded."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import milepost as mp
from milepost.core import entries as e
from milepost.core.duration import from_ms
from milepost.errors import EpochLost, Waiting
from milepost.runtime.session import TURNS, Session, Unloading
from milepost.stores.waits import Awaited
from tests.core import samples as s
from tests.runtime.sessions import NOW, OTHER, STEP, asked, charge, engine_of, held

# ---------------------------------------------------------------- when it moves


RESENDABLE = (s.started(at=NOW - 6_000), s.lost(at=NOW - 5_000, quiet_at=NOW - 5_000))
NEEDS_A_PERSON = (*RESENDABLE, e.PersonNeeded(at=NOW, step=STEP, why="nobody can say"))


def sleeping(until: int, step: str = OTHER) -> e.Entry:
    return e.SleepStarted(at=1, step=step, until=until)


def receiving(until: int | None, step: str = OTHER) -> e.Entry:
    return e.SignalAwaited(at=1, step=step, name="go", until=until)


def retrying(at: int | None, step: str = OTHER) -> e.Entry:
    return e.ReadFailed(at=1, step=step, path="p", tool="charge", digest="d", attempt=1, why="", retry_at=at)


@pytest.mark.parametrize(
    ("entries", "moves"),
    [
        ((), None),
        ((sleeping(NOW + 5),), NOW + 5),
        ((sleeping(NOW + 5), sleeping(NOW + 3, ":2")), NOW + 3),
        ((sleeping(NOW + 5), e.SleepEnded(at=2, step=OTHER)), None),
        ((receiving(NOW + 5),), NOW + 5),
        ((receiving(None),), None),
        ((receiving(NOW + 5), e.SignalReceived(at=2, step=OTHER, name="go", id=None, value=s.NULL)), None),
        ((retrying(NOW + 5),), NOW + 5),
        ((retrying(None),), None),
        ((s.started(), s.failed(retry_at=NOW + 5)), NOW + 5),
        ((s.started(), s.failed(retry_at=NOW)), None),
        ((s.started(), s.failed(final=True, retry_at=None)), None),
        ((s.started(), s.confirmed()), None),
        (RESENDABLE, NOW),
    ],
)  # fmt: skip
def test_what_is_recorded_says_when_a_run_moves(entries: tuple[e.Entry, ...], moves: int | None) -> None:
    assert held(*entries).moves() == moves


@pytest.mark.parametrize("recorded", [sleeping, receiving, retrying])
def test_a_moment_that_passed_moves_only_who_waits_for_it_now(recorded: Callable[[int], e.Entry]) -> None:
    session = held(recorded(NOW))
    assert session.moves() is None

    session.waits[OTHER] = Waiting("time")

    assert session.moves() == NOW


def test_a_look_and_the_end_of_a_request_move_a_run() -> None:
    session = held()
    session.polls["a"] = NOW + 7
    assert session.moves() == NOW + 7

    session.waits["b"] = Waiting("approval", from_ms(NOW + 6))

    assert session.moves() == NOW + 6


@pytest.mark.parametrize(("reason", "moves"), [("time", NOW), ("person", None)])
def test_a_retry_whose_time_has_come_moves_only_who_waits_for_time(reason: Any, moves: int | None) -> None:
    session = held(s.started(), s.failed(retry_at=NOW))
    session.waits[STEP] = Waiting(reason)

    assert session.moves() == moves


def test_what_may_be_settled_now_is_due_now_unless_it_is_looked_at_later() -> None:
    session = held(*RESENDABLE)
    session.polls[STEP] = NOW
    assert session.moves() == NOW

    session.polls[STEP] = NOW + 9

    assert session.moves() == NOW + 9


def test_what_the_policy_held_back_moves_when_it_cannot_be_sent_again_any_more() -> None:
    @mp.tool(name="charge", effect="keyed", key_ttl="6s", version="1")
    async def short() -> str:
        return "ok"

    for tool, moves in ((charge, None), (short, NOW)):
        session = held(*RESENDABLE, tool=tool)
        engine: Any = session.engine
        engine.policy = type("Policy", (), {"turns": 1})
        session.held[STEP] = (1, Waiting("authority", None, "change the policy"))
        due = session.moves()
        assert (due is None or due > NOW) if moves is None else due == moves


def test_what_is_in_doubt_and_may_show_later_moves_then() -> None:
    @mp.tool(name="charge", effect="queryable", visible_within="1m", version="1")
    async def shown() -> str:
        return "ok"

    @shown.reconcile
    async def found() -> mp.Finding[str]:
        return mp.still_unknown()

    asked_again = s.found(NOW - 10, "still_unknown", ask_at=NOW + 400)
    session = held(s.started(), s.lost(quiet_at=20), asked_again, tool=shown)

    assert session.moves() == NOW + 400


@pytest.mark.parametrize(
    ("deadline", "until", "due"),
    [
        (None, None, None),
        (None, NOW + 5, NOW + 5),
        (NOW + 7, None, NOW + 7),
        (NOW + 7, NOW + 5, NOW + 5),
        (3, NOW + 5, 3),
    ],
)
def test_a_run_is_due_at_its_deadline_or_when_it_moves(
    deadline: int | None, until: int | None, due: int | None
) -> None:
    entries = () if until is None else (sleeping(until),)

    assert held(*entries, deadline=deadline).due() == due
    late = held(*entries, deadline=deadline)
    late.late = True
    attached = held(*entries, deadline=deadline, attached=True)
    assert late.due() == attached.due() == until


def test_the_deadline_of_a_run_that_ended_is_nothing_to_wait_for() -> None:
    stopped = e.RunStopped(at=NOW, status="failed", code="x", why="")

    assert held(stopped, deadline=NOW + 7).due() is None


@pytest.mark.parametrize(("deadline", "closing"), [(None, False), (NOW + 1, False), (NOW, True)])
def test_nothing_new_starts_at_the_deadline(deadline: int | None, *, closing: bool) -> None:
    assert held(deadline=deadline).closing is closing


# ---------------------------------------------------------------- what it waits for


def test_a_run_that_waits_for_nothing_in_particular_waits_for_time() -> None:
    assert held().rest() == Waiting("time")
    assert held(sleeping(NOW + 5)).rest() == Waiting("time", from_ms(NOW + 5))


def test_a_run_waits_for_what_needs_a_person_first_and_says_all_of_it_once() -> None:
    session = held(sleeping(NOW + 5))
    session.waits = {"a": Waiting("signal")}
    assert session.rest() == Waiting("signal", from_ms(NOW + 5))

    session.waits |= {step: Waiting("approval", None, ask) for step, ask in (("b", "x"), ("c", "y"), ("d", "x"))}

    assert session.rest() == Waiting("approval", from_ms(NOW + 5), "x; y")


def test_a_run_with_an_effect_that_only_a_person_settles_says_so_and_not_when_its_deadline_is() -> None:
    session = held(*NEEDS_A_PERSON, deadline=NOW + 7, tool=asked)
    session.waits = {"a": Waiting("approval", None, "x")}

    rest = session.rest()

    assert (rest.reason, rest.until) == ("unknown", None)
    assert s.RUN in rest.ask
    session.state.apply(sleeping(NOW + 5))
    assert session.rest() == Waiting("unknown", from_ms(NOW + 5), rest.ask)


def test_a_run_with_an_effect_in_flight_waits_for_that_unless_a_call_waits_for_more() -> None:
    session = held(*RESENDABLE)
    assert session.rest() == Waiting("unknown", from_ms(NOW))

    session.waits = {"a": Waiting("signal")}

    assert session.rest() == Waiting("signal", from_ms(NOW))


def test_what_the_policy_holds_back_is_what_its_run_waits_for() -> None:
    session = held(sleeping(NOW + 5), *RESENDABLE)
    engine: Any = session.engine
    engine.policy = type("Policy", (), {"turns": 1})
    session.held[STEP] = (1, Waiting("authority", None, "change the policy"))
    session.waits = {"a": Waiting("signal")}

    assert session.rest() == Waiting("authority", from_ms(NOW + 5), "change the policy")


def test_what_a_run_rested_on_is_kept_from_when_it_was_looked_at() -> None:
    session = held()
    session.stopped = {"a": Awaited("tool:a"), "b": Awaited("tool:b")}

    session.unload()
    session.stopped.clear()

    assert session.rests_on == (Awaited("tool:a"), Awaited("tool:b"))


# ---------------------------------------------------------------- coming to rest


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def in_a_segment(session: Session, *waits: str) -> asyncio.Task[None]:
    """Give a session a segment whose calls wait."""
    session.waits = {step: Waiting("signal") for step in waits}
    session.segment_task = asyncio.create_task(asyncio.Event().wait())
    await turns()
    return session.segment_task


@pytest.mark.parametrize(
    "moving", ["busy", "inflight", "settlers", "unloading", "no segment", "waits for nothing", "nothing"]
)
async def test_a_segment_unloads_when_nothing_of_it_moves(moving: str) -> None:
    session = held()
    task = await in_a_segment(session, "a")
    match moving:
        case "busy":
            session.busy = 1
        case "inflight":
            session.inflight = 1
        case "settlers":
            session.settlers["a"] = task
        case "unloading":
            session.unloading = True
        case "no segment":
            session.segment_task = None
        case "waits for nothing":
            session.waits.clear()
        case _:
            pass

    session.check_soon()
    await turns()

    assert task.cancelled() == (moving == "nothing")
    assert session.unloading == (moving in {"nothing", "unloading"})
    task.cancel()


async def test_a_branch_that_begins_to_move_while_it_is_looked_keeps_its_segment() -> None:
    session = held()
    task = await in_a_segment(session, "a")

    session.busy = 1
    session.enter_idle()
    await turns(TURNS - 2)
    session.leave_idle()
    await turns()
    assert not task.done()
    session.enter_idle()
    await turns()

    assert (task.cancelled(), session.busy) == (True, 0)


async def test_the_last_call_that_comes_back_has_its_segment_looked_at() -> None:
    session = held()
    task = await in_a_segment(session, "a")
    engine = engine_of(session)

    session.flying(1)
    session.flying(1)
    session.flying(-1)
    await turns()
    assert (task.done(), session.inflight, engine.tools_in_flight) == (False, 1, 1)
    session.flying(-1)
    await turns()

    assert (task.cancelled(), session.inflight, engine.tools_in_flight) == (True, 0, 0)


async def test_what_was_recorded_since_they_last_looked_lets_all_look_again_first() -> None:
    session = held()
    task = await in_a_segment(session, "a")
    session.put(e.SleepStarted(at=NOW, step=":5", until=NOW))
    looked: list[str] = []

    async def waiting() -> None:
        await session.nap()
        looked.append("again")

    waiter = asyncio.create_task(waiting())
    await turns()
    session.check_soon()
    await turns()

    assert (looked, task.done(), engine_of(session).settled) == (["again"], False, 1)
    await waiter
    session.check_soon()
    await turns()
    assert task.cancelled()


@pytest.mark.parametrize(("barriered", "unclaimed"), [(1, {":9"}), (1, set()), (0, {":9"})])
async def test_steps_of_the_record_that_nobody_claims_are_told_of_where_a_branch_waits_at_the_barrier(
    barriered: int, unclaimed: set[str]
) -> None:
    session = held()
    task = await in_a_segment(session, "a")
    session.barriered, session.unclaimed = barriered, unclaimed

    session.check_soon()
    await turns()

    told = bool(barriered and unclaimed)
    assert (engine_of(session).diverged, task.done()) == (int(told), not told)
    task.cancel()


async def test_a_look_at_a_session_without_a_segment_is_not_the_last() -> None:
    session = held()
    session.waits["a"] = Waiting("signal")
    session.check_soon()
    await turns()

    task = await in_a_segment(session, "a")
    session.check_soon()
    await turns()

    assert task.cancelled()


@pytest.mark.parametrize(("due", "lingers"), [(NOW + 1_000, True), (NOW, True), (NOW + 1_001, False), (None, False)])
async def test_a_segment_lingers_for_what_is_due_within_a_moment(due: int | None, *, lingers: bool) -> None:
    session = held(*(() if due is None else (sleeping(due),)))
    task = await in_a_segment(session, OTHER)

    session.check_soon()
    await turns()

    rings = session._timer is not None or engine_of(session).settled == 1  # where a moment is over, perhaps already
    assert (rings, task.done()) == (lingers, not lingers)
    session.unload()
    await turns()
    assert (session._timer, task.cancelled()) == (None, True)


async def test_a_run_that_is_closing_does_not_linger() -> None:
    session = held(sleeping(NOW + 1))
    task = await in_a_segment(session, OTHER)
    session.draining = True

    session.check_soon()
    await turns()

    assert task.cancelled()


async def test_who_lingers_looks_again_when_its_time_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    session = held(sleeping(NOW + 1))
    task = await in_a_segment(session, OTHER)
    napping = asyncio.create_task(session.nap())
    await asyncio.sleep(0)
    loop, spans = asyncio.get_running_loop(), []
    call_later = loop.call_later

    def later(span: float, *what: Any) -> asyncio.TimerHandle:
        spans.append(span)
        return call_later(span, *what)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "call_later", later)
        session.check_soon()
        await turns()
    await asyncio.wait_for(napping, 30)

    assert spans == [0.002]
    assert (session._timer, engine_of(session).settled, task.done()) == (None, 1, False)
    task.cancel()


async def test_no_call_waits_in_a_session_that_unloads() -> None:
    session = held()
    session.unload()

    with pytest.raises(Unloading):
        await asyncio.wait_for(session.nap(), 30)


@pytest.mark.parametrize(("attached", "raised"), [(True, EpochLost), (False, Unloading)])
@pytest.mark.parametrize("told", ["dropped", "fatal"])
async def test_the_host_of_an_attached_run_is_told_why_it_cannot_go_on(
    told: str, raised: type[BaseException], *, attached: bool
) -> None:
    session = held(attached=attached)
    waiter = asyncio.create_task(session.nap())
    await turns()

    (session.drop if told == "dropped" else session.stop)(EpochLost(s.RUN, 1))
    session.changed()

    with pytest.raises(raised):
        await asyncio.wait_for(waiter, 30)


async def test_a_call_that_was_cancelled_leaves_nothing_to_wake() -> None:
    session = held()
    waiter = asyncio.create_task(session.nap())
    await turns()

    waiter.cancel()
    await asyncio.wait([waiter])

    assert (session._parked, session._waking) == (set(), set())


async def test_what_changes_after_it_was_looked_what_a_run_rests_on_has_overtaken_it() -> None:
    session = held()
    session.changed()
    task = await in_a_segment(session, "a")

    session.unload()
    assert not session.overtaken
    session.changed()

    assert session.overtaken
    session.unload()
    assert session.overtaken
    await asyncio.wait([task])
    assert task.cancelled()


async def test_what_a_step_waits_for_is_known_as_long_as_it_waits() -> None:
    session = held()
    go_on = asyncio.Event()
    waiting = Waiting("signal")
    waiter = asyncio.create_task(session.parked("a", waiting, go_on.wait))  # type: ignore[arg-type]
    await turns()
    assert session.waits == {"a": waiting}

    go_on.set()
    await waiter

    assert session.waits == {}
