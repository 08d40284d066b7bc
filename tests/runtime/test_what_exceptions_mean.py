"""What a tool raises decides what is known: not sent, rejected, or nothing at all."""

import asyncio
import threading
from collections.abc import Callable

import httpx
import pytest

import milepost as mp
from milepost.core.duration import to_ms
from tests.runtime.stage import Stage, has_entry, names, parked, status_of

QUICK = mp.Retry(3, first="1ms")


def one_call(tool: mp.Tool[[], str]) -> mp.Workflow[None, str]:
    @mp.workflow(version="1", name="flow", tools=[tool])
    async def flow(run: mp.Run) -> str:
        return await tool()

    return flow


def raising(
    ledger: list[int], error: Callable[[int], Exception | None], effect: str = "irreversible", **options: object
) -> mp.Tool[[], str]:
    @mp.tool(name="act", effect=effect, retry=QUICK, **options)  # type: ignore[call-overload, untyped-decorator]
    async def act(call: mp.Call) -> str:
        ledger.append(call.attempt)
        wrong = error(call.attempt)
        if wrong is not None:
            raise wrong
        return "done"

    tool: mp.Tool[[], str] = act
    return tool


async def test_not_sent_is_failed_and_tried_again(stage: Stage) -> None:
    """Requirement 65. A fault that is known not to have acted is retryable."""
    sent: list[int] = []
    flow = one_call(raising(sent, lambda n: mp.NotSent("no route") if n < 3 else None))
    async with stage.app(flow) as app:
        handle = await app.start(flow)

        assert await handle.result(timeout="30s") == "done"
        assert sent == [1, 2, 3]
        assert (await names(app, handle.id)).count("effect_failed") == 2
        assert "effect_unknown" not in await names(app, handle.id)


async def test_retries_of_not_sent_are_bounded(stage: Stage) -> None:
    """Requirement 60. Requirement 68. A tool that never recovers ends, and costs no more than its tries."""
    sent: list[int] = []
    flow = one_call(raising(sent, lambda _: mp.NotSent("no route")))
    async with stage.app(flow) as app:
        with pytest.raises(mp.RunFailed, match="no route"):
            await (await app.start(flow)).result(timeout="30s")
        assert sent == [1, 2, 3]


async def test_rejected_is_failed_and_final(stage: Stage) -> None:
    """Requirement 30. Requirement 65. A refusal before acting is terminal, and the segment sees why."""
    sent: list[int] = []
    flow = one_call(raising(sent, lambda _: mp.Rejected("card stolen")))
    async with stage.app(flow) as app:
        handle = await app.start(flow)

        with pytest.raises(mp.RunFailed, match="flow/act#1: card stolen"):
            await handle.result(timeout="30s")
        assert sent == [1]


@pytest.mark.parametrize("error", [RuntimeError("odd"), KeyError("x"), OSError("pipe"), ValueError("bad")], ids=repr)
async def test_any_other_exception_is_unknown_and_waits_for_a_person(stage: Stage, error: Exception) -> None:
    """Requirement 31. Requirement 26. Requirement 46. That it was started is no proof of anything."""
    sent: list[int] = []
    flow = one_call(raising(sent, lambda _: error))
    async with stage.app(flow) as app:
        handle = await app.start(flow)
        waiting = await parked(handle, "unknown")

        assert sent == [1]
        assert f"milepost resolve {handle.id} flow/act#1" in waiting.ask
        open_effect = (await app.inspect.open_effects(handle.id))[0]
        assert (open_effect.outcome, open_effect.path) == ("unknown", "flow/act#1")
        assert type(error).__name__ in (open_effect.why or "")


@pytest.mark.parametrize(
    ("error", "tried"),
    [
        (httpx.ConnectError("refused"), 3),
        (httpx.HTTPStatusError("x", request=httpx.Request("POST", "http://x"), response=httpx.Response(403)), 1),
    ],
    ids=["connect", "403"],
)
async def test_httpx_errors_go_through_the_table(stage: Stage, error: Exception, tried: int) -> None:
    """Requirement 18. A provider that is away is survived: what never left is tried again, within bounds."""
    sent: list[int] = []
    flow = one_call(raising(sent, lambda _: error))
    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await status_of(handle, "failed")

        assert len(sent) == tried


async def test_a_read_error_of_httpx_is_unknown(stage: Stage) -> None:
    sent: list[int] = []
    flow = one_call(raising(sent, lambda _: httpx.ReadTimeout("slow")))
    async with stage.app(flow) as app:
        await parked(await app.start(flow), "unknown")
        assert sent == [1]


@pytest.mark.parametrize("in_thread", [False, True])
async def test_a_timeout_is_unknown_never_failed(stage: Stage, *, in_thread: bool) -> None:
    """Requirement 31. Requirement 10."""
    hold = asyncio.Event()

    @mp.tool(name="act", timeout="100ms")
    async def act_async() -> str:
        await hold.wait()
        return "late"

    go_on = threading.Event()

    @mp.tool(name="act", timeout="100ms")
    def act_thread() -> str:
        go_on.wait(60)
        return "late"

    flow = one_call(act_thread if in_thread else act_async)
    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await parked(handle, "unknown")
        assert "no answer within 0.1 s" in ((await app.inspect.open_effects(handle.id))[0].why or "")
        if in_thread:
            go_on.set()
            assert await handle.result(timeout="30s") == "late"


async def test_a_free_read_is_called_again_whatever_it_raises(stage: Stage) -> None:
    calls: list[int] = []
    flow = one_call(raising(calls, lambda n: RuntimeError("odd") if n < 3 else None, effect="read"))
    async with stage.app(flow) as app:
        handle = await app.start(flow)

        assert await handle.result(timeout="30s") == "done"
        assert len(calls) == 3


async def test_a_free_read_that_keeps_failing_fails_its_step_and_reentry_sees_the_same(stage: Stage) -> None:
    calls: list[int] = []
    tool = raising(calls, lambda _: RuntimeError("odd"), effect="read")
    seen = []

    @mp.workflow(version="1", tools=[tool])
    async def flow(run: mp.Run) -> None:
        try:
            await tool()
        except mp.StepFailed as failed:
            seen.append((failed.path, failed.why))
        await run.receive("go", int)

    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await parked(handle, "signal")
        await app.send(handle.id, "go", 1)
        await handle.result(timeout="30s")

        assert len(calls) == 3
        assert seen == [("flow/act#1", "RuntimeError: odd")] * 2


async def test_a_backoff_survives_a_restart(stage: Stage) -> None:
    """Requirement 36. The next try's moment is data: a restart neither forgets it nor shortens it."""
    sent: list[int] = []

    @mp.tool(retry=mp.Retry(3, first="60s"))
    async def act(call: mp.Call) -> str:
        sent.append(stage.clock.now())
        if call.attempt == 1:
            raise mp.NotSent("no route")
        return "done"

    flow = one_call(act)
    start = stage.clock.now()
    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow)
        waiting = await parked(handle, "time")
        assert waiting.until is not None
        due = to_ms(waiting.until)
        assert start + 30_000 <= due <= start + 60_000
    stage.clock.advance("29s")
    async with stage.app(flow, still=True) as app:
        handle = app.handle(handle.id, flow)
        assert (await parked(handle, "time")).until == waiting.until
        assert sent == [start]
        stage.clock.set(waiting.until)
        assert await handle.result(timeout="30s") == "done"
        assert sent == [start, due]


async def test_retry_after_is_a_floor_of_the_backoff(stage: Stage) -> None:
    @mp.tool(retry=mp.Retry(3, first="1s"))
    async def act(call: mp.Call) -> str:
        if call.attempt == 1:
            raise mp.NotSent("too many", retry_after="10m")
        return "done"

    flow = one_call(act)
    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow)
        waiting = await parked(handle, "time")
        assert waiting.until is not None
        assert to_ms(waiting.until) == stage.clock.now() + 600_000
        stage.clock.advance("10m")
        assert await handle.result(timeout="30s") == "done"


async def test_a_read_backs_off_over_a_restart_too(stage: Stage) -> None:
    calls = []

    @mp.tool(effect="read", retry=mp.Retry(2, first="60s"))
    async def act() -> str:
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError("odd")
        return "done"

    flow = one_call(act)
    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow)
        await has_entry(app, handle.id, "read_failed")
        await parked(handle, "time")
    async with stage.app(flow, still=True) as app:
        handle = app.handle(handle.id, flow)
        await parked(handle, "time")
        stage.clock.advance("60s")
        assert await handle.result(timeout="30s") == "done"
        assert len(calls) == 2


async def test_what_a_tool_noted_and_spent_stands_in_the_record(stage: Stage) -> None:
    """Requirement 55. The outside system's own id is kept with the outcome."""

    @mp.tool(effect="keyed", key_ttl="1h")
    async def act(call: mp.Call) -> str:
        call.note("ch_123")
        return "done"

    flow = one_call(act)
    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await handle.result(timeout="30s")
        confirmed = [line.fields for line in await app.inspect.journal(handle.id) if line.name == "effect_confirmed"]
        assert confirmed[0]["external"] == "ch_123"
