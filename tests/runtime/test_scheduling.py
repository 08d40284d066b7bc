"""Schedules as workers keep them: each tick once, whoever comes first."""

from datetime import datetime

import pytest

import milepost as mp
from milepost.core.duration import to_ms
from milepost.runtime.scheduling import Scheduler
from milepost.stores.api import Query
from milepost.stores.fleet import Declare
from tests.runtime.stage import Stage, until

SEEN: list[str] = []


@pytest.fixture(autouse=True)
def nothing_was_seen() -> None:
    SEEN.clear()


@mp.workflow(version="1")
async def report(run: mp.Run, day: str) -> str:
    SEEN.append(day)
    return day


def day_of(tick: datetime) -> str:
    return f"{tick:%d %H:%M}"


def nightly(stage: Stage, **options: object) -> mp.App:
    app = stage.app(report, still=True)
    app.schedule(report, "0 2 * * *", day_of, key="nightly", **options)  # type: ignore[call-overload]
    return app


def set_clock(stage: Stage, text: str) -> None:
    stage.clock.advance(f"{to_ms(datetime.fromisoformat(text)) - stage.clock.now()}ms")


async def seen(*days: str) -> None:
    async def ask() -> bool:
        return sorted(days) == sorted(SEEN)  # what is caught up with goes at once

    await until(ask, f"{days}, found {SEEN}")


async def test_each_tick_starts_one_run_with_the_input_of_its_moment(stage: Stage) -> None:
    set_clock(stage, "2040-01-05T12:00Z")
    async with nightly(stage) as app:
        set_clock(stage, "2040-01-06T02:00Z")
        await seen("06 02:00")
        set_clock(stage, "2040-01-07T02:00:01Z")
        await seen("06 02:00", "07 02:00")
        runs = await app.inspect.runs(Query())
    assert sorted(run.key or "" for run in runs) == ["nightly@2040-01-06T02:00:00Z", "nightly@2040-01-07T02:00:00Z"]


async def test_of_two_workers_one_starts_the_run_of_a_tick(stage: Stage) -> None:
    set_clock(stage, "2040-01-05T12:00Z")
    async with nightly(stage), nightly(stage):
        for day in ("06", "07", "08", "09"):
            set_clock(stage, f"2040-01-{day}T02:00Z")
            await seen(*[f"{n:02} 02:00" for n in range(6, int(day) + 1)])
    assert stage.rows("SELECT count(*) FROM mp_runs WHERE run > 0") == [(4,)]


@pytest.mark.parametrize(("catch_up", "days"), [("latest", ["09"]), ("all", ["06", "07", "08", "09"]), ("none", [])])
async def test_what_was_missed_is_caught_up_with_as_declared(stage: Stage, catch_up: str, days: list[str]) -> None:
    """Requirement 36."""
    set_clock(stage, "2040-01-05T12:00Z")
    async with nightly(stage, catch_up=catch_up):
        pass
    set_clock(stage, "2040-01-09T12:00Z")
    async with nightly(stage, catch_up=catch_up):

        async def caught_up() -> bool:
            return stage.rows("SELECT next_at FROM mp_schedules") == [
                (to_ms(datetime.fromisoformat("2040-01-10T02:00Z")),)
            ]

        await until(caught_up)
        set_clock(stage, "2040-01-10T02:00Z")
        await seen(*[f"{day} 02:00" for day in [*days, "10"]])


async def test_a_schedule_that_was_declared_otherwise_since_is_left_alone(stage: Stage) -> None:
    set_clock(stage, "2040-01-05T12:00Z")
    app = nightly(stage)
    async with app.client():
        engine = app._need_engine()
        older = Scheduler(engine, list(app._schedules.values()))
        await older.open()
        newer = Declare("nightly", "report", "{}", to_ms(datetime.fromisoformat("2040-01-06T05:00Z")), 0)
        await engine.writer.durable(newer)
        set_clock(stage, "2040-01-06T02:00Z")

        assert not await older.tick()
        assert not await older.tick()
        (row,) = await engine.store.schedules()

    assert (row.spec, row.last_at) == ("{}", None)
    assert stage.rows("SELECT count(*) FROM mp_runs WHERE run > 0") == [(0,)]


async def test_who_comes_second_waits_for_the_next_tick(stage: Stage) -> None:
    set_clock(stage, "2040-01-05T12:00Z")
    app = nightly(stage)
    async with app.client():
        first, second = (Scheduler(app._need_engine(), list(app._schedules.values())) for _ in range(2))
        await first.open()
        await second.open()
        set_clock(stage, "2040-01-06T02:00Z")
        assert await first.tick()
        assert not await second.tick()
        set_clock(stage, "2040-01-07T02:00Z")

        assert await second.tick()
        assert not await first.tick()

    assert stage.rows("SELECT count(*) FROM mp_runs WHERE run > 0") == [(2,)]


async def test_an_input_that_cannot_be_made_is_logged_and_tried_again_later(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    broken = [True]

    def made(tick: datetime) -> str:
        if broken:
            raise RuntimeError("no input today")
        return "made"

    set_clock(stage, "2040-01-05T12:00Z")
    app = stage.app(report, still=True)
    app.schedule(report, "0 2 * * *", made)
    async with app:
        set_clock(stage, "2040-01-06T02:00Z")

        async def logged() -> bool:
            return "no input today" in caplog.text

        await until(logged)
        broken.clear()
        stage.clock.advance("61s")
        await seen("made")


async def test_a_scheduled_run_stands_where_its_schedule_says(stage: Stage) -> None:
    set_clock(stage, "2040-01-05T12:00Z")
    async with nightly(stage, queue="slow", priority=2, group="all", tags={"by": "cron"}):
        set_clock(stage, "2040-01-06T02:00Z")
        await seen("06 02:00")
    assert stage.rows("SELECT queue, priority, grp, tags FROM mp_runs WHERE run > 0") == [
        ("slow", 2, "all", '{"by":"cron"}')
    ]
