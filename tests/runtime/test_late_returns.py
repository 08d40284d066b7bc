"""An attempt that returns after its time ended, while its process still holds the run and other arms keep it busy."""

import asyncio
import threading
from typing import Any

import pytest

import milepost as mp
from tests.runtime.stage import Stage, has_entry, has_outcome, names, status_of, until


class Slow:
    """A call in a thread that outlives its time, beside an arm that keeps the run loaded."""

    def __init__(self, result: object = "late", **options: Any) -> None:
        self.result = result
        self.go_on = threading.Event()
        self.hold = asyncio.Event()
        self.returned: list[int] = []

        @mp.tool(**{"name": "act", "timeout": "50ms", **options})
        def act(call: mp.Call) -> Any:
            self.go_on.wait(60)
            self.returned.append(call.attempt)
            return self.result

        @mp.tool(effect="read")
        async def busy() -> str:
            await self.hold.wait()
            return "x"

        @mp.workflow(version="1", name="flow", tools=[act, busy])
        async def flow(run: mp.Run) -> list[Any]:
            return list(await run.gather(act(), busy()))

        self.flow = flow

    async def come_back(self) -> None:
        """Let the call go on, and wait until it has returned."""
        self.go_on.set()

        async def returned() -> bool:
            return bool(self.returned)

        await until(returned)


async def fields(app: mp.App, run_id: str, name: str) -> dict[str, Any]:
    (line,) = (line for line in await app.inspect.journal(run_id) if line.name == name)
    return {"at": line.at, **line.fields}


async def test_a_thread_whose_time_ended_is_not_quiet_before_it_returns(stage: Stage) -> None:
    slow = Slow()
    async with stage.app(slow.flow) as app:
        handle = await app.start(slow.flow)
        await has_entry(app, handle.id, "person_needed")
        assert "quiet_at" not in await fields(app, handle.id, "effect_unknown")

        await slow.come_back()
        await has_outcome(app, handle.id, "flow/act#1", "confirmed")
        slow.hold.set()

        assert await handle.result(timeout="30s") == ["late", "x"]
        confirmed = await fields(app, handle.id, "effect_confirmed")
        assert (confirmed["attempt"], confirmed["result"]) == (1, "late")


async def test_what_was_refused_for_good_and_then_returns_contradicts_the_record(stage: Stage) -> None:
    """Requirement 39."""
    slow = Slow()
    async with stage.app(slow.flow) as app:
        handle = await app.start(slow.flow)
        await has_entry(app, handle.id, "person_needed")
        await app.resolve(handle.id, "flow/act#1", mp.rejected("bounced"), by="bo", why="bounced")
        await has_outcome(app, handle.id, "flow/act#1", "failed")

        await slow.come_back()

        await status_of(handle, "blocked")
        assert (
            "attempt 1 returned after it was settled as rejected"
            in (await fields(app, handle.id, "contradicted"))["evidence"]
        )
        assert [switch.scope for switch in await app.inspect.switches()] == ["tool:act"]
        slow.hold.set()


async def test_what_a_person_confirmed_and_then_returns_contradicts_nothing(stage: Stage) -> None:
    slow = Slow()
    async with stage.app(slow.flow) as app:
        handle = await app.start(slow.flow)
        await has_entry(app, handle.id, "person_needed")
        await app.resolve(handle.id, "flow/act#1", mp.happened("by phone"), by="bo", why="rang them")
        await has_outcome(app, handle.id, "flow/act#1", "confirmed")

        await slow.come_back()
        slow.hold.set()

        assert await handle.result(timeout="30s") == ["by phone", "x"]
        assert "contradicted" not in await names(app, handle.id)


async def test_a_costed_read_that_failed_and_then_returns_contradicts_nothing(stage: Stage) -> None:
    slow = Slow(effect="read", cost={"usd": 1}, retry=mp.Retry(1))
    async with stage.app(slow.flow) as app:
        handle = await app.start(slow.flow, budget={"usd": 5})
        await has_outcome(app, handle.id, "flow/act#1", "failed")

        await slow.come_back()
        slow.hold.set()

        with pytest.raises(mp.RunFailed, match="no answer"):
            await handle.result(timeout="30s")
        assert "contradicted" not in await names(app, handle.id)


async def test_a_result_that_cannot_be_stored_is_in_doubt_and_its_attempt_is_over(stage: Stage) -> None:
    @mp.tool
    async def act() -> Any:
        return float("nan")

    @mp.workflow(version="1", name="flow", tools=[act])
    async def flow(run: mp.Run) -> Any:
        return await act()

    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await has_entry(app, handle.id, "person_needed")

        unknown = await fields(app, handle.id, "effect_unknown")
        assert unknown["quiet_at"] == unknown["at"]
        assert "cannot be stored" in unknown["why"]
