"""A tool in a thread that nobody can end: what it does late must neither be taken for done nor be forgotten."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from threading import Event

import pytest

import milepost as mp
from milepost.app import open_store
from milepost.core import codec
from milepost.core import entries as e
from milepost.testing.check import check
from tests.crash.world import World

WITHIN_S = 60


class Slow:
    """A tool that times out, applies only when it is let go, and returns then; and a question that may time out too."""

    def __init__(self, folder: Path) -> None:
        self.place = f"sqlite:///{folder}/store.db"
        self.world = World(folder)
        self.go, self.answer, self.rest, self.asked = Event(), Event(), Event(), 0

        @mp.tool(timeout="200ms")
        def press(call: mp.Call, button: str) -> str:
            self.go.wait(WITHIN_S)
            self.world.apply("press", call.key, call.attempt, {"button": button})
            return "pressed"

        @mp.tool(effect="queryable", visible_within="0s", timeout="200ms")
        def place(call: mp.Call, thing: str) -> str:
            self.go.wait(WITHIN_S)
            self.world.apply("place", call.key, call.attempt, {"thing": thing})
            return "placed"

        @place.reconcile
        def _placed(thing: str) -> mp.Finding[str]:
            self.asked += 1
            if self.asked == 1:
                self.answer.wait(WITHIN_S)
                raise ConnectionError("the question came to nothing")
            return mp.happened("placed") if self.world.find("place", thing=thing) else mp.did_not_happen()

        @mp.tool(effect="read", timeout="60s")
        async def busy() -> None:
            await asyncio.to_thread(self.rest.wait, WITHIN_S)

        shop = mp.Workflow("shop", version="1", input=str, result=str, tools=[press, place, busy])

        @shop.segment
        async def pressing(run: mp.Run, button: str) -> mp.Next[str]:
            async def guarded() -> None:
                with suppress(mp.StepFailed):
                    await press(button)

            await run.gather(guarded(), busy())
            return mp.go(waiting, button)

        @shop.segment
        async def waiting(run: mp.Run, button: str) -> mp.Next[str]:
            return mp.done(await run.receive("word", str))

        @mp.workflow(version="1", tools=[place])
        async def placing(run: mp.Run, thing: str) -> str:
            return await place(thing)

        self.shop, self.placing = shop, placing
        self.app = mp.App(self.place, workflows=[shop, placing])

    async def entries(self, run_id: str, kind: type[e.Entry]) -> list[e.Entry]:
        """Return the entries of one kind."""
        store = open_store(self.place)
        try:
            _, stored, _ = await store.chain(run_id)
        finally:
            store.close()
        return [entry for entry in (codec.decode(one.body) for one in stored) if isinstance(entry, kind)]

    async def judged(self) -> list[str]:
        """Return what the checker says."""
        store = open_store(self.place)
        try:
            return [str(violation) for violation in await check(store, self.world.lines())]
        finally:
            store.close()


@pytest.fixture
def slow(tmp_path: Path) -> Slow:
    return Slow(tmp_path)


async def until(ask: Callable[[], Awaitable[object]]) -> None:
    """Ask again and again until it is so."""
    async with asyncio.timeout(WITHIN_S):
        while not await ask():  # noqa: ASYNC110  it asks a store
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "parks", [True, False], ids=["the run was parked meanwhile", "the run was in memory all along"]
)
def test_what_a_thread_does_after_its_segment_ended_contradicts_the_record_and_blocks_the_run(
    slow: Slow, *, parks: bool
) -> None:
    async def scenario() -> None:
        async with slow.app as app:
            handle = await app.start(slow.shop, "red")
            await until(lambda: slow.entries(handle.id, e.PersonNeeded))
            if parks:
                slow.rest.set()
                await until(lambda: slow.entries(handle.id, e.RunParked))
            (effect,) = await app.inspect.open_effects(handle.id)
            await app.resolve(handle.id, effect.path, mp.rejected("it is not there"), by="ann", why="looked for it")
            await until(lambda: slow.entries(handle.id, e.EffectFailed))
            slow.rest.set()
            await until(lambda: slow.entries(handle.id, e.Checkpointed))
            slow.go.set()
            await until(lambda: slow.entries(handle.id, e.Contradicted))
            with pytest.raises(mp.RunBlocked):
                await handle.result(timeout="60s")

    asyncio.run(scenario())
    assert len(slow.world.lines()) == 1
    assert asyncio.run(slow.judged()) == []


def test_a_question_that_ends_late_says_nothing_about_the_thread_that_still_acts(slow: Slow) -> None:
    async def scenario() -> None:
        async with slow.app as app:
            handle = await app.start(slow.placing, "cup")
            await until(lambda: slow.entries(handle.id, e.FindingRecorded))
            slow.answer.set()  # the first question fails now, long after it was given up

            async def asked_again() -> bool:
                return len(await slow.entries(handle.id, e.FindingRecorded)) > 1

            await until(asked_again)
            assert await slow.entries(handle.id, e.AttemptQuieted) == []
            slow.go.set()
            assert await handle.result(timeout="60s") == "placed"
            assert len(await slow.entries(handle.id, e.EffectStarted)) == 1

    asyncio.run(scenario())
    assert [line.attempt for line in slow.world.lines()] == [1]
    assert asyncio.run(slow.judged()) == []
