"""What a person stops does not start, from the moment on in which they were told so; and who waits goes on at once."""

import asyncio
import time
from contextlib import suppress
from pathlib import Path

import pytest

import milepost as mp
from milepost.errors import NothingStopped, UnknownScope
from milepost.runtime import waits
from milepost.stores import marks
from tests.runtime.stage import Stage, has_entry, names, parked, until


class Desk:
    """A tool that counts its calls, and workflows over it."""

    def __init__(self) -> None:
        self.calls: list[str] = []

        @mp.tool(effect="keyed", key_ttl="24h")
        async def pay(order: str) -> str:
            self.calls.append(order)
            return f"paid {order}"

        @mp.tool(effect="read")
        async def look(order: str) -> str:
            self.calls.append(f"look {order}")
            return order

        @mp.workflow(version="1", tools=[pay])
        async def paying(run: mp.Run, order: str) -> str:
            return await pay(order)

        @mp.workflow(version="1", tools=[look])
        async def looking(run: mp.Run, order: str) -> str:
            return await look(order)

        @mp.workflow(version="1", tools=[pay])
        async def two(run: mp.Run, order: str) -> str:
            first, _ = await run.gather(pay(order), run.sleep("20m"))
            return first

        self.pay, self.paying, self.looking, self.two = pay, paying, looking, two


@pytest.mark.parametrize("scope", ["all", "tool:pay", "workflow:paying", "tenant:acme"])
async def test_what_is_frozen_does_not_start_and_goes_on_at_once_when_it_is_thawed(stage: Stage, scope: str) -> None:
    """The clock stands still: nobody looks again, the thaw itself makes the run due."""
    desk = Desk()
    async with stage.app(desk.paying, still=True) as app:
        await app._operator().freeze(scope, by="ann", why="a bill was paid twice")
        handle = await app.start(desk.paying, "o-1", authority=mp.Authority("bot", tenant="acme"))
        told = await parked(handle, "switch")
        before = await names(app, handle.id)
        assert told.ask == f"milepost thaw {scope} --why … (a bill was paid twice)"
        assert desk.calls == []
        assert before[-1] == "run_parked"

        thrown = await app._operator().thaw(scope, by="ann", why="it was another one")

        assert (thrown.lifted, thrown.woken) == (1, 1)
        assert await handle.result(timeout="30s") == "paid o-1"
        system = [line.name for line in await app.inspect.journal("system")]
        assert system == ["switch_set", "switch_lifted"]


def shown(stops: waits.Stops, how_many: int) -> None:
    """Read what is stopped until it is so much: a server's switches are read as of a tenth of a second ago."""
    deadline = time.monotonic() + 10
    while len(stops.again()) != how_many:
        assert time.monotonic() < deadline


async def test_what_stands_again_before_a_call_has_looked_is_waited_for_as_before(stage: Stage) -> None:
    """The worker saw that nothing stood; the call that it told to look sees that something does, and rests on it."""
    desk, gate = Desk(), asyncio.Event()

    @mp.tool(effect="keyed", key_ttl="24h")
    async def wait_outside(order: str) -> str:
        await gate.wait()
        return order

    @mp.workflow(version="1", tools=[wait_outside, desk.pay])
    async def paying_beside(run: mp.Run, order: str) -> list[str]:
        return list(await run.gather(desk.pay(order), wait_outside(order)))

    async with stage.app(paying_beside, still=True) as app:
        await app._operator().freeze("tool:pay", by="ann", why="a test")
        handle = await app.start(paying_beside, "o-1")
        engine = app._need_engine()

        async def rests() -> bool:
            session = engine.sessions.get(handle.id)
            return session is not None and "switch" in {waiting.reason for waiting in session.waits.values()}

        await until(rests, "the call rests")
        session = engine.sessions[handle.id]
        # From here to the comment below no other task has a turn.
        (row,) = stage.rows("DELETE FROM mp_switches RETURNING scope, kind, about, why, by, at")
        shown(engine.stops, 0)
        await waits.look(session)
        assert not session.stopped
        stage.write("INSERT INTO mp_switches (scope, kind, about, why, by, at) VALUES (?, ?, ?, ?, ?, ?)", *row)
        shown(engine.stops, 1)
        # Now they have.
        gate.set()
        await parked(handle, "switch")
        assert desk.calls == []

        await app._operator().thaw("tool:pay", by="ann", why="a test")

        assert await handle.result(timeout="30s") == ["paid o-1", "o-1"]


async def test_another_scope_is_not_in_its_way(stage: Stage) -> None:
    desk = Desk()
    async with stage.app(desk.paying) as app:
        for scope in ("tool:mail", "workflow:looking", "tenant:globex"):
            await app._operator().freeze(scope, by="ann", why="a test")

        handle = await app.start(desk.paying, "o-1", authority=mp.Authority("bot", tenant="acme"))

        assert await handle.result(timeout="30s") == "paid o-1"


async def test_a_free_read_is_frozen_too(stage: Stage) -> None:
    desk = Desk()
    async with stage.app(desk.looking, still=True) as app:
        await app._operator().freeze("all", by="ann", why="a test")
        handle = await app.start(desk.looking, "o-1")
        await parked(handle, "switch")
        assert desk.calls == []
        await app._operator().thaw("all", by="ann", why="enough")

        assert await handle.result(timeout="30s") == "o-1"


async def test_a_run_in_memory_hears_of_a_thaw_as_well(stage: Stage) -> None:
    """Another arm of it is in flight, so it is not unloaded and nobody can make it due."""
    desk = Desk()
    flying = asyncio.Event()
    land = asyncio.Event()

    @mp.tool(effect="keyed", key_ttl="24h")
    async def fly() -> str:
        flying.set()
        await land.wait()
        return "landed"

    pay = desk.paying.tools["pay"]

    @mp.workflow(version="1", tools=[fly, pay])
    async def both(run: mp.Run, order: str) -> list[str]:
        return list(await run.gather(fly(), pay(order)))

    async with stage.app(both, still=True) as app:
        await app._operator().freeze("tool:pay", by="ann", why="a test")
        handle = await app.start(both, "o-1")
        await flying.wait()
        await asyncio.sleep(0.1)
        assert desk.calls == []
        await app._operator().thaw("tool:pay", by="ann", why="enough")

        async def paid() -> bool:
            return desk.calls == ["o-1"]

        await until(paid, "the other arm goes on while the first is in the air")
        land.set()
        assert await handle.result(timeout="30s") == ["landed", "paid o-1"]


async def test_scopes_that_are_none_and_thaws_of_what_does_not_stand_are_refused(stage: Stage) -> None:
    async with stage.app(Desk().paying) as app:
        for scope in ("", "everything", "tool:", "run:x"):
            with pytest.raises(UnknownScope):
                await app._operator().freeze(scope, by="ann", why="a test")
        with pytest.raises(NothingStopped):
            await app._operator().thaw("tool:pay", by="ann", why="a test")


async def test_a_script_is_told_what_to_type_while_everything_is_frozen(tmp_path: Path) -> None:
    desk = Desk()
    app = mp.App(f"sqlite:///{tmp_path}/store.db", workflows=[desk.paying])
    async with app.client():
        await app._operator().freeze("all", by="ann", why="a test")

    with pytest.raises(mp.NeedsPerson, match="milepost thaw all"):
        await asyncio.to_thread(app.run, desk.paying, "o-1")

    assert desk.calls == []


# ------------------------------------------------------------ the stop file


async def test_while_the_stop_file_stands_nothing_starts_and_then_all_goes_on(stage: Stage) -> None:
    """Requirement 66. Requirement 60. It is looked at before each send, and no database is asked."""
    desk = Desk()
    async with stage.app(desk.paying, desk.looking) as app:
        place = stage.local
        marks.stop(place, marks.Stop("ann", "the database hangs", 1))
        handles = [await app.start(desk.paying, "o-1"), await app.start(desk.looking, "o-2")]
        await asyncio.sleep(0.5)
        assert desk.calls == []
        assert [(await handle.status()).status for handle in handles] == ["ready", "ready"]

        assert marks.lift(place)

        assert [await handle.result(timeout="30s") for handle in handles] == ["paid o-1", "o-2"]


async def test_a_run_that_was_under_way_when_the_stop_file_came_rests(stage: Stage) -> None:
    place = stage.local
    calls: list[int] = []

    @mp.tool(effect="keyed", key_ttl="24h")
    async def step(number: int) -> int:
        calls.append(number)
        if number == 0:
            marks.stop(place, marks.Stop("ann", "a test", 1))
        return number

    @mp.workflow(version="1", tools=[step])
    async def steps(run: mp.Run) -> list[int]:
        return [await step(number) for number in range(3)]

    async with stage.app(steps) as app:
        handle = await app.start(steps)
        told = await parked(handle, "switch")
        assert told.ask == "milepost stop --lift --why …"
        assert calls == [0]
        before = await names(app, handle.id)
        await asyncio.sleep(0.5)
        assert await names(app, handle.id) == before
        marks.lift(place)

        assert await handle.result(timeout="30s") == [0, 1, 2]


async def test_what_nobody_knows_is_neither_sent_again_nor_asked_about_while_the_stop_file_stands(stage: Stage) -> None:
    """Requirement 66. Each resend that was begun and not sent would have been one of its few tries."""
    place = stage.local
    calls: list[int] = []
    asked: list[str] = []

    @mp.tool(effect="keyed", key_ttl="24h")
    async def pay(call: mp.Call, order: str) -> str:
        calls.append(call.attempt)
        if call.attempt == 1:
            raise RuntimeError("the line dropped")
        return order

    @mp.tool(effect="queryable", visible_within="0s")
    async def ship(order: str) -> str:
        marks.stop(place, marks.Stop("ann", "a test", 1))
        raise RuntimeError("the line dropped")

    @ship.reconcile
    def find(order: str) -> mp.Finding[str]:
        asked.append(order)
        return mp.happened("shipped")

    @mp.workflow(version="1", tools=[pay, ship])
    async def both(run: mp.Run, order: str) -> list[str]:
        return list(await run.gather(pay(order), ship(order)))

    async with stage.app(both, still=True) as app:
        handle = await app.start(both, "o-1")
        await has_entry(app, handle.id, "effect_unknown", 2)
        for _ in range(5):
            stage.clock.advance("20s")
            await asyncio.sleep(0.05)
        assert (calls, asked) == ([1], [])
        assert (await names(app, handle.id)).count("effect_started") == 2
        marks.lift(place)
        stage.clock.advance("20s")

        assert await handle.result(timeout="30s") == ["o-1", "shipped"]
    assert (calls, asked) == ([1, 2], ["o-1"])


def test_a_stop_file_made_by_hand_stops_as_well_and_is_shown(tmp_path: Path) -> None:
    place = str(tmp_path / "store.db")
    assert not marks.stopped(place)
    assert marks.read(place) is None
    assert not marks.lift(place)

    Path(marks.stop_path(place)).write_text("ann: please wait\n")

    assert marks.stopped(place)
    assert marks.read(place) == marks.Stop("somebody", "ann: please wait", 0)
    marks.stop(place, marks.Stop("bob", "because", 7))
    assert marks.read(place) == marks.Stop("bob", "because", 7)
    assert [path.name for path in tmp_path.iterdir()] == ["store.db.stop"]


async def test_the_mark_of_a_kill_stands_until_what_was_killed_has_let_go(stage: Stage) -> None:
    """Requirement 66. The worker may see the mark before it has seen which of its runs were killed."""
    sent, land = asyncio.Event(), asyncio.Event()

    @mp.tool
    async def hang() -> None:
        sent.set()
        while not land.is_set():
            with suppress(asyncio.CancelledError):
                await land.wait()

    @mp.workflow(version="1", tools=[hang])
    async def hanging(run: mp.Run) -> None:
        await hang()

    async with stage.app(hanging) as app:
        handle = await app.start(hanging)
        await sent.wait()
        worker = app._worker
        assert worker is not None
        place, name = stage.local, worker.engine.worker
        await app._operator().kill(handle.id, by="ann", why="it hangs")

        await worker._live()
        stands = marks.asked_to_let_go(place, name)
        land.set()

        assert stands

        async def gone() -> bool:
            return not marks.asked_to_let_go(place, name)

        await until(gone, "it has let go")
