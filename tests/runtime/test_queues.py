"""Queues, priorities, limits and delayed starts, as workers that drive runs keep them."""

import asyncio
from datetime import timedelta

import pytest

import milepost as mp
from milepost.core.duration import from_ms
from milepost.core.queues import Limit
from milepost.runtime.driver import advance
from milepost.stores.fleet import LimitReached
from tests.runtime.stage import Stage, parked, status_of, until

HERE: list[str] = []


@pytest.fixture(autouse=True)
def nobody_has_been_here() -> None:
    HERE.clear()


@mp.workflow(version="1")
async def note(run: mp.Run, name: str) -> str:
    HERE.append(name)
    return name


@mp.workflow(version="1", queue="mail")
async def wait(run: mp.Run, name: str) -> str:
    HERE.append(name)
    await run.receive("go", bool)
    HERE.append(f"{name} went")
    return name


@mp.tool(effect="read")
async def hang(name: str) -> str:
    HERE.append(name)
    while f"let {name} go" not in HERE:  # noqa: ASYNC110  the test's own list, looked at again and again
        await asyncio.sleep(0.005)
    return name


@mp.workflow(version="1", tools=[hang], queue="mail")
async def hold(run: mp.Run, name: str) -> str:
    return await hang(name)


async def here(*names: str) -> None:
    async def ask() -> bool:
        return set(names) <= set(HERE)

    await until(ask, f"{names}, found {HERE}")


async def test_a_run_begins_when_its_start_said_also_where_a_message_reaches_it_before(stage: Stage) -> None:
    app = stage.app(note, still=True)
    async with app.client():
        ids = [(await app.start(note, "later", begins="1h")).id]
        at = await app.start(note, "at", begins=from_ms(stage.clock.now()) + timedelta(minutes=30))
        ids.append(at.id)
    async with app:
        later, at = (app.handle(id_, note) for id_ in ids)
        await app.send(later.id, "hello", 1)
        waiting = await parked(later, "time")
        assert HERE == []
        stage.clock.advance("31m")
        assert await at.result(timeout="30s") == "at"
        assert HERE == ["at"]
        stage.clock.advance("30m")
        assert await later.result(timeout="30s") == "later"
    assert waiting.until is not None


async def test_a_run_that_has_not_begun_is_cancelled_where_it_stands(stage: Stage) -> None:
    async with stage.app(note) as app:
        handle = await app.start(note, "never", begins="30d")
        await app.cancel(handle.id, why="not needed")
        await status_of(handle, "cancelled")
    assert HERE == []


async def test_the_highest_priority_is_driven_first(stage: Stage) -> None:
    app = stage.app(note)
    async with app.client():
        await app.start(note, "low", priority=-1)
        await app.start(note, "middle")
        await app.start(note, "high", priority=9)
    stop = asyncio.Event()
    serving = asyncio.create_task(app.serve(stop, together=1, grace="5s"))
    await here("low", "middle", "high")
    stop.set()
    await serving
    assert HERE == ["high", "middle", "low"]


async def test_a_worker_of_one_queue_leaves_the_others_alone(stage: Stage) -> None:
    app = stage.app(note)
    async with app.client():
        await app.start(note, "mine", queue="slow")
        other = await app.start(note, "other")
    stop = asyncio.Event()
    serving = asyncio.create_task(app.serve(stop, together=5, grace="5s", queues=["slow"]))
    await here("mine")
    stop.set()
    await serving
    assert HERE == ["mine"]
    async with app.client():
        assert (await app.handle(other.id).status()).status == "ready"


async def test_of_a_queue_no_more_run_together_than_its_limit_over_two_workers(stage: Stage) -> None:
    apps = [stage.app(hold), stage.app(hold)]
    for app in apps:
        app.limit("mail", together=2)
    async with apps[0] as app, apps[1]:
        handles = [await app.start(hold, name) for name in "abcd"]

        async def two() -> bool:
            return len(HERE) == 2

        await until(two)
        rows = stage.rows("SELECT count(*) FROM mp_runs WHERE owner IS NOT NULL")
        seen = list(HERE)
        for _ in range(4):
            HERE.extend(f"let {name} go" for name in list(HERE) if len(name) == 1)
            await asyncio.sleep(0)
        for handle in handles:

            async def ended(handle: mp.Handle[str] = handle) -> bool:
                HERE.extend(f"let {name} go" for name in list(HERE) if len(name) == 1)
                return (await handle.status()).status == "done"

            await until(ended)
    assert rows == [(2,)]
    assert len(seen) == 2
    assert sorted(name for name in HERE if len(name) == 1) == ["a", "b", "c", "d"]


async def test_a_run_that_waits_lets_others_of_its_group_go_unless_its_limit_says_otherwise(stage: Stage) -> None:
    app = stage.app(wait)
    app.limit("mail", by="group", together=1)
    async with app:
        one, two = [await app.start(wait, name, group="ann") for name in "ab"]
        await parked(one, "signal")
        await parked(two, "signal")
        for handle in (one, two):
            await app.send(handle.id, "go", True)
            await handle.result(timeout="30s")


async def test_a_run_keeps_its_place_while_it_waits_where_the_limit_says_so(stage: Stage) -> None:
    app = stage.app(wait)
    app.limit("mail", by="group", together=1, while_waiting=True)
    async with app:
        one, two = [await app.start(wait, name, group="ann") for name in "ab"]
        other = await app.start(wait, "c", group="bob")
        await parked(one, "signal")
        await parked(other, "signal")
        assert (await two.status()).status == "ready"
        assert sorted(HERE) == ["a", "c"]
        await app.send(one.id, "go", True)
        await parked(two, "signal")
        assert HERE[-2:] == ["a went", "b"]


async def test_no_more_begin_within_a_span_than_a_limit_lets_and_the_rest_begin_by_themselves(stage: Stage) -> None:
    app = stage.app(note, still=True)
    app.limit("default", starts=2, per="1m")
    async with app:
        handles = [await app.start(note, name) for name in "abc"]
        await handles[0].result(timeout="30s")
        await handles[1].result(timeout="30s")
        stage.clock.advance("59s")
        await app.start(note, "d", queue="other")
        await here("d")
        assert sorted(HERE) == ["a", "b", "d"]
        stage.clock.advance("2s")
        await handles[2].result(timeout="30s")


async def test_a_limit_is_decided_by_the_claim_also_for_who_drives_a_run_by_hand(stage: Stage) -> None:
    app = stage.app(wait)
    app.limit("mail", together=1, while_waiting=True)
    async with app.client():
        ids = [(await app.start(wait, name)).id for name in "ab"]
        engine = app._need_engine()
        assert (await advance(engine, ids[0])).status == "parked"
        with pytest.raises(LimitReached, match="queue 'mail'"):
            await advance(engine, ids[1])


async def test_a_child_stands_where_its_parent_says(stage: Stage) -> None:
    @mp.workflow(version="1")
    async def parent(run: mp.Run) -> str:
        child = await run.start(wait, "child", priority=3, group="ann")
        return await child.result()

    async with stage.app(parent, wait) as app:
        await app.start(parent)
        await here("child")
        (row,) = stage.rows("SELECT queue, priority, grp FROM mp_runs WHERE parent IS NOT NULL")
    assert row == ("mail", 3, "ann")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "limits nothing"),
        ({"together": 0}, "let nothing through"),
        ({"together": True}, "let nothing through"),
        ({"starts": 1}, "belong together"),
        ({"together": 1, "per": "1m"}, "belong together"),
        ({"starts": 1, "per": "soon"}, "no span of time"),
        ({"starts": 1, "per": "0s"}, "no time at all"),
        ({"together": 1, "by": "run"}, "Write by="),
        ({"starts": 1, "per": "1m", "while_waiting": True}, "what together= counts"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused_where_it_is_declared(
    stage: Stage, options: dict[str, object], said: str
) -> None:
    with pytest.raises(mp.InvalidDeclaration, match=said):
        stage.app(note).limit("mail", **options)  # type: ignore[arg-type]


def test_a_limit_says_what_it_counts(stage: Stage) -> None:
    app = stage.app(note)

    app.limit("mail", by="group", together=1, while_waiting=True)
    app.limit("mail", starts=5, per="1s")

    assert app._serving(("mail",)).limits == (Limit("mail", True, 1, True), Limit("mail", False, None, False, 5, 1_000))
    with pytest.raises(mp.InvalidDeclaration, match="queue name"):
        app.limit("no queue", together=1)


@pytest.mark.parametrize("options", [{"queue": "no queue"}, {"priority": 1_001}, {"priority": True}, {"group": ""}])
async def test_a_start_that_stands_nowhere_is_refused(stage: Stage, options: dict[str, object]) -> None:
    async with stage.app(note).client() as app:
        with pytest.raises(mp.InvalidValue):
            await app.start(note, "x", **options)  # type: ignore[call-overload]


async def test_a_limit_is_declared_before_the_app_is_entered(stage: Stage) -> None:
    async with stage.app(note) as app:
        with pytest.raises(mp.InvalidDeclaration, match="before the app is entered"):
            app.limit("mail", together=1)
