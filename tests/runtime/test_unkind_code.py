"""Code of users that misbehaves: it costs its own step or run, and nothing else."""

import asyncio
import sys
import threading

import pytest

import milepost as mp
from tests.runtime.stage import Stage, has_entry, names, parked, status_of, until


class Mute(Exception):
    """An exception that cannot even say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def raising(error: BaseException, *, in_thread: bool = False) -> mp.Workflow[None, str]:
    @mp.tool(name="act")
    async def act() -> str:
        raise error

    @mp.tool(name="act")
    def act_in_thread() -> str:
        raise error

    tool = act_in_thread if in_thread else act

    @mp.workflow(version="1", name="flow", tools=[tool])
    async def flow(run: mp.Run) -> str:
        return await tool()

    return flow


@pytest.mark.parametrize("in_thread", [False, True], ids=["async", "thread"])
@pytest.mark.parametrize(
    "error",
    [
        Mute(),
        asyncio.CancelledError(),
        StopAsyncIteration(),
        ExceptionGroup("two", [ValueError("a")]),
        ValueError("\ud800"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_whatever_a_tool_raises_is_unknown(stage: Stage, error: BaseException, *, in_thread: bool) -> None:
    """Requirement 31. A cancellation that nobody asked for is an exception like any other."""
    flow = raising(error, in_thread=in_thread)
    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await parked(handle, "unknown")
        await app.resolve(handle.id, "flow/act#1", mp.happened("done"), by="ann", why="looked")
        assert await handle.result(timeout="30s") == "done"


async def test_a_tool_that_exits_its_thread_does_not_end_the_worker(stage: Stage) -> None:
    @mp.tool
    def leave() -> str:
        sys.exit(3)

    @mp.workflow(version="1", tools=[leave])
    async def flow(run: mp.Run) -> str:
        return await leave()

    @mp.workflow(version="1")
    async def other(run: mp.Run) -> int:
        return 1

    async with stage.app(flow, other) as app:
        await parked(await app.start(flow), "unknown")
        assert await (await app.start(other)).result(timeout="30s") == 1


async def test_a_segment_that_leaks_a_cancellation_fails_and_is_let_go(stage: Stage) -> None:
    @mp.workflow(version="1")
    async def flow(run: mp.Run) -> int:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        future.cancel()
        return await future

    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await status_of(handle, "failed")
        assert stage.rows("SELECT owner FROM mp_runs") == [(None,)]


async def test_a_segment_whose_error_has_no_words_fails(stage: Stage) -> None:
    @mp.workflow(version="1")
    async def flow(run: mp.Run) -> int:
        raise Mute

    async with stage.app(flow) as app:
        await status_of(await app.start(flow), "failed")


async def test_a_read_that_a_leaving_worker_cut_off_is_called_again(stage: Stage) -> None:
    """Requirement 18. The segment did not cancel it, so nothing waits for it to be cancelled again."""
    calls = []

    @mp.tool(effect="read")
    async def look() -> str:
        calls.append(1)
        if len(calls) == 1:
            await asyncio.sleep(60)
        return "seen"

    @mp.workflow(version="1", tools=[look])
    async def flow(run: mp.Run) -> str:
        return await look()

    app = stage.app(flow)
    stop = asyncio.Event()
    serving = asyncio.create_task(app.serve(stop, together=10, grace="50ms"))
    client = stage.app(flow)
    async with client.client():
        handle = await client.start(flow)

        async def called() -> bool:
            return bool(calls)

        await until(called)
        stop.set()
        await serving
        assert "read_cancelled" not in await names(client, handle.id)
    async with stage.app(flow) as again:
        assert await again.handle(handle.id, flow).result(timeout="30s") == "seen"


async def test_a_retried_parent_looks_at_its_retried_child_again(stage: Stage) -> None:
    works = [False]

    @mp.workflow(version="1")
    async def child(run: mp.Run) -> str:
        if not works[0]:
            raise ValueError("not yet")
        return "now"

    started: list[str] = []

    @mp.workflow(version="1")
    async def parent(run: mp.Run) -> str:
        handle = await run.start(child)
        started.append(handle.id)
        return await handle.result()

    async with stage.app(parent, child) as app:
        handle = await app.start(parent)
        await status_of(handle, "failed")
        works[0] = True
        await app.retry(started[0], by="ann")
        await status_of(app.handle(started[0]), "done")
        await app.retry(handle.id, by="ann")
        await status_of(handle, "done")
        assert await handle.result(timeout="30s") == "now"
        assert len(set(started)) == 1


async def test_a_run_that_swallows_every_exception_is_still_unloaded_killed_and_cancelled(stage: Stage) -> None:
    """Requirement 66. A segment that catches what unwinds it cannot keep its run."""

    @mp.workflow(version="1")
    async def stubborn(run: mp.Run) -> int:
        for _ in range(3):
            try:
                return await run.receive("go", int)
            except BaseException:  # noqa: BLE001, S110  just what must not work
                pass
        return -1

    async with stage.app(stubborn) as app:
        handle = await app.start(stubborn)
        await has_entry(app, handle.id, "signal_awaited")
        assert (await status_of(handle, "parked", "done", "failed")).status == "parked"
        await app.send(handle.id, "go", 5)
        assert await handle.result(timeout="30s") == 5


async def test_a_busy_loop_between_steps_does_not_stop_the_lease(stage: Stage) -> None:
    """The lease is renewed from a thread, so that code which blocks the loop does not lose its runs."""

    @mp.workflow(version="1")
    async def blocking(run: mp.Run) -> int:
        run.now()
        threading.Event().wait(0.6)  # just what a user's code may do
        run.now()
        return 1

    app, other = stage.app(blocking, lease="300ms"), stage.app(blocking, lease="300ms")
    async with app, other.client():
        handle = await app.start(blocking)
        assert await handle.result(timeout="30s") == 1
        assert (await names(app, handle.id)).count("claimed") == 1


async def test_an_answer_in_the_moment_in_which_it_is_given_up_is_not_lost(stage: Stage) -> None:
    """Requirement 31. The thread has returned, and its call is cancelled before it hears of it."""
    begun, answered = threading.Event(), threading.Event()

    @mp.tool
    def mail(to: str) -> str:
        begun.set()
        answered.wait(60)
        return f"sent {to}"

    @mp.workflow(version="1", tools=[mail])
    async def flow(run: mp.Run) -> str:
        step = asyncio.ensure_future(mail("ann"))
        while not begun.is_set():  # noqa: ASYNC110  a thread's event
            await asyncio.sleep(0.005)
        answered.set()
        threading.Event().wait(0.2)  # the answer arrives while the loop is busy
        await asyncio.sleep(0)  # the loop takes it in, and then it is too late for the call to hear of it
        step.cancel()
        try:
            return await step
        except asyncio.CancelledError:
            return "cancelled"

    async with stage.app(flow) as app:
        handle = await app.start(flow)
        assert await handle.result(timeout="30s") in {"sent ann", "cancelled"}
        view = (await app.inspect.effects(handle.id))[0]
        assert (view.outcome, view.result) == ("confirmed", "sent ann")
