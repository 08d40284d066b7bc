"""Sleeping, waiting for signals, and who may send them."""

import asyncio
from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta

import pytest

import milepost as mp
from tests.runtime.stage import Stage, has_entry, names, parked, until


@mp.workflow(version="1")
async def napper(run: mp.Run) -> list[str]:
    before = run.now()
    await run.sleep("8h")
    return [before.isoformat(), run.now().isoformat()]


async def test_a_sleep_goes_on_across_a_restart_and_ends_when_it_should(stage: Stage) -> None:
    """Requirement 36."""
    async with stage.app(napper, still=True) as app:
        handle = await app.start(napper)
        waiting = await parked(handle, "time")
        assert waiting.until == datetime.fromtimestamp(stage.clock.now() / 1000, UTC) + timedelta(hours=8)
    stage.clock.advance("7h")
    async with stage.app(napper, still=True) as app:
        handle = app.handle(handle.id, napper)
        assert (await parked(handle, "time")).until == waiting.until
        stage.clock.advance("1h")
        before, after = await handle.result(timeout="30s")
        assert datetime.fromisoformat(after) - datetime.fromisoformat(before) == timedelta(hours=8)


async def test_a_sleep_may_end_at_a_moment(stage: Stage) -> None:
    moment = datetime.fromtimestamp(stage.clock.now() / 1000, UTC) + timedelta(days=3)

    @mp.workflow(version="1")
    async def flow(run: mp.Run) -> None:
        await run.sleep(moment)

    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow)
        assert (await parked(handle, "time")).until == moment


async def test_a_parked_run_is_released_and_holds_no_memory(stage: Stage) -> None:
    async with stage.app(napper, still=True) as app:
        handle = await app.start(napper)
        await parked(handle, "time")
        assert stage.rows("SELECT owner FROM mp_runs WHERE id = ?", handle.id) == [(None,)]
        assert handle.id not in app._need_engine().sessions


@mp.workflow(version="1")
async def listener(run: mp.Run) -> list[int | None]:
    return [await run.receive("number", int), await run.receive("number", int, timeout="10m")]


async def test_signals_are_received_in_the_order_in_which_they_came(stage: Stage) -> None:
    async with stage.app(listener) as app:
        handle = await app.start(listener)
        waiting = await parked(handle, "signal")
        assert waiting.ask == f"milepost send {handle.id} number VALUE"
        await app.send(handle.id, "other", 9)
        await app.send(handle.id, "number", 1)
        await app.send(handle.id, "number", 2)
        assert await handle.result(timeout="30s") == [1, 2]


async def test_a_signal_sent_before_it_is_waited_for_is_kept(stage: Stage) -> None:
    app = stage.app(listener)
    async with app.client():
        handle = await app.start(listener)
        await app.send(handle.id, "number", 5)
        await app.send(handle.id, "number", 6)
    async with stage.app(listener) as driving:
        assert await driving.handle(handle.id, listener).result(timeout="30s") == [5, 6]


async def test_the_same_message_id_is_the_same_message(stage: Stage) -> None:
    async with stage.app(listener, still=True) as app:
        handle = await app.start(listener)
        await parked(handle, "signal")
        await app.send(handle.id, "number", 1, id="m-1")
        await app.send(handle.id, "number", 1, id="m-1")
        waiting = await parked_with_timeout(handle)
        assert waiting.until is not None
        assert (await names(app, handle.id)).count("signal_sent") == 1
        await app.send(handle.id, "number", 2, id="m-2")
        assert await handle.result(timeout="30s") == [1, 2]


async def parked_with_timeout(handle: mp.Handle[list[int | None]]) -> mp.Waiting:
    async def ask() -> mp.Waiting | None:
        waiting = (await handle.status()).waiting
        return waiting if waiting is not None and waiting.until is not None else None

    return await until(ask)


async def test_a_wait_that_times_out_gives_none_and_does_so_again_on_reentry(stage: Stage) -> None:
    @mp.workflow(version="1")
    async def flow(run: mp.Run) -> list[int | None]:
        first = await run.receive("number", int, timeout="10m")
        return [first, await run.receive("number", int)]

    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow)
        await parked(handle, "signal")
        stage.clock.advance("10m")
        await has_entry(app, handle.id, "signal_received")
        await app.send(handle.id, "number", 3)
        assert await handle.result(timeout="30s") == [None, 3]


async def test_a_value_of_another_type_fails_the_step_and_names_it(stage: Stage) -> None:
    @mp.workflow(version="1")
    async def flow(run: mp.Run) -> int:
        return await run.receive("number", int)

    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await parked(handle, "signal")
        await app.send(handle.id, "number", "seven")
        with pytest.raises(mp.RunFailed, match="number"):
            await handle.result(timeout="30s")


async def test_nothing_can_be_sent_to_a_run_that_ended_or_is_not_there(stage: Stage) -> None:
    @mp.workflow(version="1")
    async def flow(run: mp.Run) -> int:
        return 1

    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await handle.result(timeout="30s")
        with pytest.raises(mp.WrongStatus):
            await app.send(handle.id, "number", 1)
        with pytest.raises(mp.UnknownRun):
            await app.send("nobody", "number", 1)


async def test_a_value_that_cannot_be_stored_is_refused_at_the_sender(stage: Stage) -> None:
    app = stage.app(listener)
    async with app.client():
        handle = await app.start(listener)
        with pytest.raises(mp.InvalidValue):
            await app.send(handle.id, "number", float("nan"))


async def test_signals_that_were_not_received_pass_to_the_next_segment(stage: Stage) -> None:
    flow = mp.Workflow("flow", version="1", input=int, result=list[int])

    @flow.segment
    async def first(run: mp.Run, n: int) -> mp.Next[list[int]]:
        return mp.go(second, await run.receive("a", int))

    @flow.segment
    async def second(run: mp.Run, a: int) -> mp.Next[list[int]]:
        return mp.done([a, await run.receive("b", int)])

    async with stage.app(flow) as app:
        handle = await app.start(flow, 1)
        await app.send(handle.id, "b", 2)
        await app.send(handle.id, "a", 1)
        assert await handle.result(timeout="30s") == [1, 2]


class Arms:
    """Three arms that wait for a moment, and a fourth that is busy until all of them have gone on."""

    def __init__(self, busy: str) -> None:
        self.woken = 0
        self.all = asyncio.Event()
        tries = [mp.NotSent("no route")]

        @mp.tool
        async def long_call() -> None:
            await self.all.wait()

        @mp.tool(effect="keyed", key_ttl="1h", retry=mp.Retry(3, first="50ms"))
        async def flaky() -> str:
            if tries:
                raise tries.pop()
            return "sent"

        async def then_up(wait: Awaitable[object]) -> None:
            await wait
            self.woken += 1
            if self.woken == 3:
                self.all.set()

        @mp.workflow(version="1", tools=[long_call, flaky])
        async def flow(run: mp.Run) -> int:
            waits = [run.sleep("100ms"), flaky(), run.receive("nothing", int, timeout="150ms")]
            other = self.all.wait() if busy == "with no step" else long_call()
            await run.gather(*[then_up(wait) for wait in waits], other)
            return self.woken

        self.flow = flow


@pytest.mark.parametrize("busy", ["with no step", "with a call"])
async def test_an_arm_wakes_in_time_while_another_one_is_busy(stage: Stage, busy: str) -> None:
    """A sleep, a retry and a receive with a time limit; the other arm ends when all three have gone on."""
    arms = Arms(busy)
    async with stage.app(arms.flow) as app:
        assert await (await app.start(arms.flow)).result(timeout="30s") == 3


async def test_a_shorter_sleep_that_begins_later_is_woken_first(stage: Stage) -> None:
    """What the alarm was set for is not what comes first any more."""
    order: list[str] = []
    seen = asyncio.Event()

    async def naps(run: mp.Run, spans: list[str]) -> None:
        for span in spans:
            await run.sleep(span)
            order.append(span)
        seen.set()

    @mp.workflow(version="1")
    async def flow(run: mp.Run) -> None:
        await run.gather(naps(run, ["30s"]), naps(run, ["80ms", "90ms", "70ms"]), seen.wait())

    async with stage.app(flow) as app:
        handle = await app.start(flow)
        async with asyncio.timeout(60):
            await seen.wait()
        await app.kill(handle.id, why="enough was seen")
    assert order == ["80ms", "90ms", "70ms"]
