"""A run that is held and not written to is said to sit still, and is left to who holds it."""

import asyncio

import pytest

import milepost as mp
from milepost.runtime.watchdog import Watchdog, doing
from tests.runtime.stage import Stage, until

STUCK: dict[str, asyncio.Event] = {}


@mp.tool(timeout="10m")
async def slow(name: str) -> str:
    await STUCK[name].wait()
    return name


@mp.workflow(version="1", tools=[slow])
async def calls(run: mp.Run, name: str) -> str:
    return await slow(name)


@mp.workflow(version="1")
async def broods(run: mp.Run, name: str) -> str:
    await STUCK[name].wait()
    return name


async def held(stage: Stage, count: int) -> None:
    async def ask() -> bool:
        return stage.rows("SELECT count(*) FROM mp_runs WHERE owner IS NOT NULL") == [(count,)]

    await until(ask)


async def test_code_that_neither_calls_nor_returns_is_told_of_once_and_left_alone(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    STUCK["a"] = asyncio.Event()
    async with stage.app(broods, calls, still=True, lease="2h") as app:
        handle = await app.start(broods, "a")
        await held(stage, 1)
        engine = app._need_engine()

        async def is_loaded() -> bool:
            return bool(engine.sessions)

        await until(is_loaded)
        dog = Watchdog(engine, 60_000)
        await dog.look()
        assert dog.still == []

        stage.clock.advance("5m")
        await dog.look()
        await dog.look()
        stage.clock.advance("1m")
        await dog.look()

        assert [one.id for one in dog.still] == [handle.id]
        assert caplog.text.count(f"run {handle.id} sits still in broods") == 1
        assert "neither calls nor returns" in caplog.text
        assert stage.rows("SELECT owner FROM mp_runs WHERE run > 0") == [(engine.worker,)]
        STUCK["a"].set()
        assert await handle.result(timeout="30s") == "a"
        await dog.look()
        assert dog.still == []


async def test_a_call_within_its_timeout_is_no_standstill_and_one_beyond_it_is(stage: Stage) -> None:
    STUCK["b"] = asyncio.Event()
    async with stage.app(broods, calls, still=True, lease="2h") as app:
        handle = await app.start(calls, "b")

        async def started() -> bool:
            return bool(stage.rows("SELECT 1 FROM mp_effects WHERE outcome = 'started'"))

        await until(started)
        engine = app._need_engine()
        dog = Watchdog(engine, 60_000)
        stage.clock.advance("5m")
        await dog.look()
        assert dog.still == []

        stage.clock.advance("6m")
        await dog.look()
        assert [one.id for one in dog.still] == [handle.id]
        assert doing(engine.sessions[handle.id]) == "in flight: calls/slow#1"
        assert doing(None) == "it is being claimed or given back"
        STUCK["b"].set()
        await handle.result(timeout="30s")
