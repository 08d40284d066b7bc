"""What a run was allowed when it came to rest is asked again when another worker takes it up: nothing is inherited."""

from typing import Any

import pytest

import milepost as mp
from tests.runtime.policies import Outside, mailing
from tests.runtime.stage import Stage, names, parked, status_of


@pytest.fixture
def outside() -> Outside:
    return Outside()


def waiting(tool: mp.Tool[[str], str]) -> mp.Workflow[str, str]:
    """A workflow that rests until it is told to go, and then calls."""

    @mp.workflow(version="1", name="flow", tools=[tool])
    async def flow(run: mp.Run, to: str) -> str:
        await run.receive("go", bool)
        return await tool(to)

    return flow


async def rested(stage: Stage, flow: mp.Workflow[str, str], **options: Any) -> str:
    """Start a run under one worker, and let it rest; the worker leaves."""
    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow, "ann", **options)
        await parked(handle, "signal")
    return handle.id


async def test_an_authority_that_expired_while_the_run_rested_permits_nothing(stage: Stage, outside: Outside) -> None:
    """Requirement 25. Requirement 49."""
    flow = waiting(mailing(outside, scopes=["mail:send"]))
    run = await rested(stage, flow, authority=mp.Authority("bot", scopes=["mail:send"], expires="1h"))
    stage.clock.advance("2h")
    async with stage.app(flow, still=True) as app:
        await app.send(run, "go", True)
        waits = await parked(app.handle(run, flow), "authority")
        assert "expired" in waits.ask or "grant" in waits.ask
    assert outside.sent == []


async def test_a_scope_that_the_tool_needs_by_now_is_not_taken_for_granted(stage: Stage, outside: Outside) -> None:
    """Requirement 25. Requirement 49. The permission scope is compared with what is declared today."""
    run = await rested(
        stage, waiting(mailing(outside, scopes=["mail:send"])), authority=mp.Authority("bot", scopes=["mail:send"])
    )
    flow = waiting(mailing(outside, scopes=["mail:send", "mail:outside"]))
    async with stage.app(flow, still=True) as app:
        await app.send(run, "go", True)
        waits = await parked(app.handle(run, flow), "authority")
        assert waits.ask == f"milepost grant {run} mail:outside"
        assert outside.sent == []
        await app.grant(run, by="ann", scopes=["mail:outside"])
        assert await app.handle(run, flow).result(timeout="30s") == "sent ann"


async def test_a_budget_is_counted_anew_from_the_record(stage: Stage, outside: Outside) -> None:
    """Requirement 49. An execution limit: what was spent before the rest stays spent after it."""
    tool = mailing(outside, cost={"usd": 3})

    @mp.workflow(version="1", name="flow", tools=[tool])
    async def flow(run: mp.Run, to: str) -> str:
        await tool("first")
        await run.receive("go", bool)
        return await tool(to)

    run = await rested(stage, flow, budget={"usd": 5})
    async with stage.app(flow, still=True) as app:
        await app.send(run, "go", True)
        waits = await parked(app.handle(run, flow), "budget")
        assert waits.ask == f"milepost grant {run} --budget usd=1"
    assert outside.sent == ["first"]


async def test_a_deadline_that_passed_while_the_run_rested_ends_it(stage: Stage, outside: Outside) -> None:
    """Requirement 49. A stop condition."""
    flow = waiting(mailing(outside))
    run = await rested(stage, flow, deadline="1h")
    stage.clock.advance("2h")
    async with stage.app(flow, still=True).client() as app:
        await app.send(run, "go", True)
    async with stage.app(flow, still=True) as app:
        seen = await status_of(app.handle(run, flow), "failed")
        assert seen.status == "failed"
        assert "effect_started" not in await names(app, run)
    assert outside.sent == []


async def test_a_cancellation_that_came_while_nobody_drove_the_run_stops_it(stage: Stage, outside: Outside) -> None:
    """Requirement 49. A stop condition: it stands before what the run waited for."""
    flow = waiting(mailing(outside))
    run = await rested(stage, flow)
    async with stage.app(flow, still=True).client() as app:
        await app.send(run, "go", True)
        await app.cancel(run, why="not needed")
    async with stage.app(flow, still=True) as app:
        await status_of(app.handle(run, flow), "cancelled")
        assert "effect_started" not in await names(app, run)
    assert outside.sent == []
