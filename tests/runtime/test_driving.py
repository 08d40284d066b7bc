"""`App.advance`: what an engine that schedules calls, once or twice, here and there, in any order."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import milepost as mp
from milepost.runtime.driving import Draining, Driving
from milepost.stores.api import Query
from tests.runtime.stage import Stage, names, until

calls: list[str] = []
going = asyncio.Event()


@mp.tool(effect="keyed", key_ttl="24h")
async def pay(order: str) -> str:
    calls.append(order)
    await going.wait()
    return f"{order} paid"


@mp.workflow(version="1", tools=[pay])
async def paying(run: mp.Run, order: str) -> str:
    return await pay(order)


@mp.workflow(version="1")
async def asking(run: mp.Run, name: str) -> str:
    return await run.receive(name, str)


@mp.workflow(version="1")
async def sleeping(run: mp.Run, span: str) -> str:
    await run.sleep(span)
    return "awake"


@mp.workflow(version="1", queue="narrow")
async def narrow(run: mp.Run, name: str) -> str:
    return await run.receive(name, str)


counting = mp.Workflow("counting", version="1", input=int, result=int)


@counting.segment
async def step(run: mp.Run, left: int) -> mp.Next[int]:
    return mp.go(step, left - 1) if left else mp.done(0)


@pytest.fixture(autouse=True)
def fresh() -> None:
    global going  # noqa: PLW0603  an event belongs to the loop of its test
    calls.clear()
    going = asyncio.Event()


def app_on(stage: Stage) -> mp.App:
    return stage.app(paying, asking, sleeping, counting, narrow)


@asynccontextmanager
async def started(
    stage: Stage, workflow: mp.Workflow[str, str], given: str
) -> AsyncIterator[tuple[mp.App, str, Driving]]:
    app = app_on(stage)
    async with app.driven() as driving:
        yield app, (await app.start(workflow, given)).id, driving


async def test_a_run_is_driven_until_it_rests_and_told_what_it_waits_for(stage: Stage) -> None:
    async with started(stage, asking, "name") as (app, run, _):
        resting = await app.advance(run)

        assert (resting.status, resting.reason, resting.due, resting.wait_ms) == ("parked", "signal", None, None)
        assert (resting.ended, resting.held_by) == (False, None)


async def test_a_run_that_rests_is_looked_at_without_a_line_in_its_record(stage: Stage) -> None:
    async with started(stage, sleeping, "1h") as (app, run, _):
        first = await app.advance(run)
        before = await names(app, run)

        again = await app.advance(run)

        assert await names(app, run) == before
        assert (first.due, again.due) == (first.due, first.due)
        assert again.wait_ms is not None
        assert 3_500_000 < again.wait_ms <= 3_600_000


async def test_a_run_that_is_due_in_a_moment_is_waited_for(stage: Stage) -> None:
    async with started(stage, sleeping, "1200ms") as (app, run, _):
        resting = await app.advance(run)
        while not resting.ended:
            resting = await app.advance(run)

        assert resting.status == "done"
        assert (await names(app, run)).count("claimed") <= 2


async def test_two_calls_at_once_wait_for_the_same_driving(stage: Stage) -> None:
    async with started(stage, paying, "book") as (app, run, _):
        both = asyncio.gather(app.advance(run), app.advance(run))
        await until(_has_called)
        third = asyncio.create_task(app.advance(run))
        going.set()

        assert {one.status for one in [*await both, await third]} == {"done"}
        assert calls == ["book"]


async def test_who_asked_may_leave_without_stopping_what_it_asked_for(stage: Stage) -> None:
    async with started(stage, paying, "book") as (app, run, _):
        asked = asyncio.create_task(app.advance(run))
        await until(_has_called)

        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        going.set()

        assert (await app.advance(run)).status == "done"
        assert calls == ["book"]


async def test_a_run_that_is_held_elsewhere_is_not_touched_and_looked_at_when_its_lease_ends(stage: Stage) -> None:
    async with started(stage, paying, "book") as (app, run, _):
        driven = asyncio.create_task(app.advance(run))
        await until(_has_called)

        async with app_on(stage).driven() as other:
            resting = await other.advance(run)

        going.set()
        assert resting.held_by is not None
        assert resting.wait_ms is not None
        assert 1_000 <= resting.wait_ms <= 100_000  # the lease lasts as long as the call may take
        assert (await driven).status == "done"
        assert calls == ["book"]


async def test_a_run_whose_turn_has_not_come_is_left_as_it_is_and_told_of_when_it_has(stage: Stage) -> None:
    found: list[tuple[str, str | None]] = []
    app = app_on(stage)
    app.limit("narrow", together=1, while_waiting=True)
    async with app.driven(lambda run, was: found.append((run, was))):
        first, second = [(await app.start(narrow, name)).id for name in ("first", "second")]
        assert (await app.advance(first)).reason == "signal"

        resting = await app.advance(second)
        assert (resting.status, resting.due, resting.wait_ms, resting.turned_away) == ("ready", None, None, True)
        assert await names(app, second) == ["run_created"]

        await app.send(first, "first", "")
        assert (await app.advance(first)).ended
        found.clear()
        await until(lambda: _is(found))
        assert set(found) == {(second, None)}
        assert (await app.advance(second)).turned_away is False


async def test_a_run_that_waits_for_another_start_is_told_when_that_may_be(stage: Stage) -> None:
    app = stage.app(narrow, still=True)
    app.limit("narrow", starts=1, per="1m")
    async with app.driven():
        first, second = [(await app.start(narrow, name)).id for name in ("first", "second")]
        began = stage.clock.now()
        await app.advance(first)

        resting = await app.advance(second)
        assert (resting.due, resting.wait_ms, resting.turned_away) == (began + 60_000, 60_000, True)

        stage.clock.advance("1m")
        assert (await app.advance(second)).reason == "signal"


async def test_the_run_of_a_schedules_tick_is_told_of_like_others(stage: Stage) -> None:
    found: list[tuple[str, str | None]] = []
    app = stage.app(narrow, still=True)
    app.schedule(narrow, "0 * * * *", "tick", key="hourly")
    async with app.driven(lambda run, was: found.append((run, was))):
        stage.clock.advance("1h")
        await until(lambda: _is(found))

        (run,) = {run for run, _ in found}
        assert (await app.advance(run)).reason == "signal"
        (only,) = await app.inspect.runs(Query())
        assert (only.id, (only.key or "").partition("@")[0]) == (run, "hourly")


async def test_only_so_many_segments_are_driven_and_the_run_is_due_at_once(stage: Stage) -> None:
    app = app_on(stage)
    async with app.driven():
        run = (await app.start(counting, 10)).id

        some = await app.advance(run, segments=3)
        left = [await app.advance(run, segments=3) for _ in range(3)]

        assert (some.status, some.wait_ms, some.ended) == ("ready", 0, False)
        assert [one.ended for one in left] == [False, False, True]


async def test_what_can_move_is_told_and_not_driven(stage: Stage) -> None:
    found: list[tuple[str, str | None]] = []
    app = app_on(stage)
    async with app.driven(lambda run, was: found.append((run, was))):
        run = (await app.start(paying, "book")).id

        await until(lambda: _is(found))

        assert set(found) == {(run, None)}
        assert calls == []


async def test_a_worker_that_leaves_gives_back_what_it_drives_and_begins_nothing(stage: Stage) -> None:
    async with started(stage, paying, "book") as (app, run, driving):
        driven = asyncio.create_task(app.advance(run))
        await until(_has_called)
        leaving = asyncio.create_task(driving.drain())
        await asyncio.sleep(0)
        going.set()
        await leaving

        assert (await driven).status in {"ready", "done"}
        fresh = (await app.start(paying, "pen")).id
        with pytest.raises(Draining):
            await app.advance(fresh)
        assert calls == ["book"]


async def test_a_run_of_code_that_is_not_here_is_refused_as_it_is(stage: Stage) -> None:
    async with started(stage, paying, "book") as (app, run, _):
        async with stage.app(asking).driven() as other:
            with pytest.raises(mp.UnknownWorkflow):
                await other.advance(run)

        assert await names(app, run) == ["run_created"]


async def test_an_app_that_drives_by_itself_or_not_at_all_advances_nothing(stage: Stage) -> None:
    app = app_on(stage)
    async with app.client():
        run = (await app.start(paying, "book")).id
        with pytest.raises(mp.InvalidDeclaration, match=r"app\.driven"):
            await app.advance(run)


async def _has_called() -> bool:
    return bool(calls)


async def _is(found: list[tuple[str, str | None]]) -> bool:
    return bool(found)
