"""An idle worker costs its store next to nothing, and is still quick where there is a reason to look."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

import milepost as mp
from milepost.runtime.idling import BUSY_MOST_S, IDLE_MOST_S, Idling
from milepost.stores.fleet import WorkerRow
from tests.runtime.stage import Stage, until

TICK_S = 0.1


@mp.workflow(version="1")
async def note(run: mp.Run, name: str) -> str:
    return name


def looks(idling: Idling, seconds: int, since_s: float = 0.0, next_due: int | None = None) -> list[float]:
    """Return when an idle worker looks that is asked ten times a second."""
    moments = []
    for tick in range(int(seconds / TICK_S)):
        now_s = since_s + tick * TICK_S
        if idling.is_time(now_s):
            moments.append(now_s)
            idling.looked(now_s, next_due)
    return moments


async def test_an_idle_worker_looks_ever_more_rarely(stage: Stage) -> None:
    async with stage.app(note).client() as app:
        idling = Idling(app._need_engine(), TICK_S)

        moments = looks(idling, 600)

    settled = [at for at in moments if 120 <= at < 180]
    pauses = [later - earlier for earlier, later in pairwise(moments)]
    assert len(settled) <= 60 / IDLE_MOST_S + 1
    assert max(pauses) <= IDLE_MOST_S + 2 * TICK_S
    assert pauses[0] < 1


@pytest.mark.sqlite("the hint that others wrote is the file's")
async def test_a_reason_to_look_makes_it_quick_again(stage: Stage) -> None:
    app = stage.app(note, still=True)
    other = stage.app(note)
    async with app.client(), other.client():
        engine = app._need_engine()
        idling = Idling(engine, TICK_S)
        looks(idling, 60)
        assert not idling.is_time(60.0)

        engine.woken.set()
        assert idling.is_time(60.1)
        idling.looked(60.1)
        assert not idling.is_time(60.1)

        await other.start(note, "by another process")
        assert idling.is_time(60.2)
        idling.looked(60.2, engine.clock.now() + 1_000)
        assert not idling.is_time(60.2)

        stage.clock.advance("1s")
        assert idling.is_time(60.3)
        idling.looked(60.3, None, [WorkerRow("far-1-1", "far", 1, 0, engine.clock.now() + 1_000)])
        assert not idling.is_time(60.3)

        stage.clock.advance("2s")
        assert idling.is_time(60.4), "a lease lapsed"
        idling.looked(60.4)
        idling.again(engine.clock.now())
        assert idling.is_time(60.4), "a limit has room again"


async def test_a_look_that_found_something_makes_it_quick_again(stage: Stage) -> None:
    async with stage.app(note).client() as app:
        idling = Idling(app._need_engine(), TICK_S)
        looks(idling, 60)

        idling.looked(60.0, found=True)

        assert idling.is_time(60.0 + TICK_S)


@pytest.mark.sqlite("the hint that others wrote is the file's")
async def test_a_lease_that_another_worker_renews_is_no_reason_to_look(stage: Stage) -> None:
    async with stage.app(note) as other, stage.app(note).client() as app:
        idling = Idling(app._need_engine(), TICK_S)
        looks(idling, 60)
        engine = other._need_engine()

        engine.store.renew(engine.worker, engine.clock.now() + 999_000)
        assert not idling.is_time(60.0)

        await other.start(note, "news")
        assert idling.is_time(60.0)


async def test_a_worker_that_drives_runs_looks_for_their_messages_at_least_each_second(stage: Stage) -> None:
    async with stage.app(note).client() as app:
        engine = app._need_engine()
        engine.sessions["somebody"] = None  # type: ignore[assignment]
        try:
            pauses = looks(Idling(engine, TICK_S), 60)[-10:]
        finally:
            engine.sessions.clear()

    assert max(later - earlier for earlier, later in pairwise(pauses)) <= BUSY_MOST_S + 2 * TICK_S


@pytest.mark.sqlite("its connection tells of each query")
async def test_a_look_of_an_idle_worker_is_three_queries_so_it_makes_no_more_than_thirty_a_minute(stage: Stage) -> None:
    asked: list[str] = []

    def trace(_cursor: Any, sql: str, _bindings: Any) -> bool:
        if "data_version" not in sql:  # the hint: it reads one number of the file's header
            asked.append(sql)
        return True

    async with stage.app(note) as app:
        await (await app.start(note, "first")).result(timeout="30s")
        engine = app._need_engine()

        async def rests() -> bool:
            before = len(asked)
            await asyncio.sleep(3 * TICK_S)
            return len(asked) == before

        engine.store._reader.exec_trace = trace  # type: ignore[attr-defined]
        await until(rests, "an idle worker that asks nothing for a moment")
        asked.clear()
        engine.woken.set()

        async def looked() -> bool:
            return bool(asked)

        await until(looked)
        await asyncio.sleep(0)
        a_look = [sql for sql in asked if "FROM mp_journal" not in sql]

    renewals = 60_000 / (engine.lease_ms / 3)
    looks = a_look.count(a_look[0])  # more than one, where the machine had much to do
    assert len(a_look) == 3 * looks, a_look
    assert 3 * 60 / IDLE_MOST_S + 2 * renewals <= 30  # of each it sees that it is no news
