"""A run's own limits, made tighter: they hold at once, on resume, and after going back."""

import asyncio

import pytest

import milepost as mp
from milepost.operations import budgets
from tests.runtime.selling import RICH, USD1, Shop, buying, limit, stands
from tests.runtime.stage import Stage, has_outcome, parked, until


@pytest.fixture
def shop() -> Shop:
    return Shop()


async def revoke(app: mp.App, run_id: str, *scopes: str, **ceilings: int) -> bool:
    return await app._operator().revoke(run_id, by="ann", why="too much", scopes=scopes, ceilings=ceilings)


async def test_a_ceiling_that_was_lowered_holds_at_once_over_boundaries_and_on_resume(stage: Stage, shop: Shop) -> None:
    """Requirement 83. Requirement 49. What was spent counts; only a new grant lifts it."""
    tool = shop.tool()
    flow = mp.Workflow("flow", version="1", input=int, result=str, tools=[tool])

    @flow.segment
    async def first(run: mp.Run, n: int) -> mp.Next[str]:
        await tool("a")
        await run.receive("go", int)
        return mp.go(second, n)

    @flow.segment
    async def second(run: mp.Run, n: int) -> mp.Next[str]:
        return mp.done(await tool("b"))

    async with stage.app(flow) as app:
        handle = await app.start(flow, 1, budget={"usd": 10})
        await parked(handle, "signal")
        assert await revoke(app, handle.id, usd=1)
    async with stage.app(flow) as app:
        handle = app.handle(handle.id, flow)
        await app.send(handle.id, "go", 1)
        assert (await parked(handle, "budget")).ask == f"milepost grant {handle.id} --budget usd=1"
        assert shop.sold == ["a"]
        detail = await app.inspect.detail(handle.id)
        assert (detail.stage, detail.granted, detail.spent) == ("second", {"usd": "1"}, {"usd": "1"})
        await app.grant(handle.id, by="ann", budget={"usd": 1})
        assert await handle.result(timeout="30s") == "b sold"


async def test_a_scope_that_was_revoked_stays_revoked_wherever_it_came_from(stage: Stage, shop: Shop) -> None:
    """Requirement 49. Gone at once, over a boundary, and in a new process, until somebody grants it anew."""
    tool = shop.tool(cost=None, scopes=["shop:buy"])
    flow = mp.Workflow("flow", version="1", input=int, result=str, tools=[tool])

    @flow.segment
    async def first(run: mp.Run, n: int) -> mp.Next[str]:
        await tool("a")
        await run.receive("go", int)
        return mp.go(second, n)

    @flow.segment
    async def second(run: mp.Run, n: int) -> mp.Next[str]:
        await run.receive("on", int)
        return mp.done(await tool("b"))

    granted = mp.Authority("bot", scopes=["shop:buy", "shop:look"])
    async with stage.app(flow) as app:
        handle = await app.start(flow, 1, authority=granted)
        await parked(handle, "signal")
        assert await revoke(app, handle.id, "shop:buy")
        await app.send(handle.id, "go", 1)

        async def over_the_boundary() -> bool:
            return (await app.inspect.detail(handle.id)).stage == "second"

        await until(over_the_boundary)
        await parked(handle, "signal")
    async with stage.app(flow) as app:
        handle = app.handle(handle.id, flow)
        detail = await app.inspect.detail(handle.id)
        assert (detail.scopes, detail.about.authority.scopes) == (("shop:look",), ("shop:look",))
        await app.send(handle.id, "on", 1)
        assert (await parked(handle, "authority")).ask == f"milepost grant {handle.id} shop:buy"
        assert shop.sold == ["a"]
        await app.grant(handle.id, by="ann", scopes=["shop:buy"])
        assert await handle.result(timeout="30s") == "b sold"


async def test_a_child_does_not_get_what_its_parent_has_lost(stage: Stage, shop: Shop) -> None:
    tool = shop.tool(cost=None, scopes=["shop:buy"])
    flow = buying(tool)

    @mp.workflow(version="1", tools=[tool])
    async def parent(run: mp.Run) -> list[str]:
        await run.receive("go", int)
        child = await run.start(flow, ["a"])
        return await child.result()

    async with stage.app(flow, parent) as app:
        handle = await app.start(parent, authority=mp.Authority("bot", scopes=["shop:buy"]))
        await parked(handle, "signal")
        await revoke(app, handle.id, "shop:buy")
        await app.send(handle.id, "go", 1)
        await parked(handle, "child")

        async def child_waits() -> bool:
            return any(f.outcome == "not_started" for f in await app.inspect.open_effects())

        await until(child_waits)
        assert shop.sold == []


async def test_an_effect_that_was_sent_is_not_sent_again_without_the_scope_that_it_had(
    stage: Stage, shop: Shop
) -> None:
    tool = shop.tool(cost=None, scopes=["shop:buy"], effect="irreversible", key_ttl=None)
    flow = buying(tool)
    async with stage.app(flow) as app:
        handle = await app.start(flow, ["lost"], authority=mp.Authority("bot", scopes=["shop:buy"]))
        await has_outcome(app, handle.id, "flow/buy#1", "unknown")
        await parked(handle, "unknown")
        await revoke(app, handle.id, "shop:buy")
        await app.resolve(handle.id, "flow/buy#1", mp.did_not_happen(), by="ann", why="looked")
        await parked(handle, "authority")
        assert shop.sold == ["lost"]


async def test_revoking_from_a_run_that_is_driven_right_now_holds_when_it_returns(stage: Stage) -> None:
    """Requirement 83. Requirement 49. What is in flight finishes; nothing starts after it."""
    sent: list[str] = []
    go = asyncio.Event()

    @mp.tool(scopes=["shop:buy"], cost=USD1)
    async def buy(what: str) -> str:
        sent.append(what)
        await go.wait()
        return what

    @mp.workflow(version="1", tools=[buy])
    async def flow(run: mp.Run) -> list[str]:
        return [await buy("a"), await buy("b")]

    async with stage.app(flow) as app:
        handle = await app.start(flow, authority=mp.Authority("bot", scopes=["shop:buy"]), budget=RICH)
        await has_outcome(app, handle.id, "flow/buy#1", "started")
        assert await revoke(app, handle.id, "shop:buy", usd=1)
        go.set()
        await parked(handle, "authority")
        await app.grant(handle.id, by="ann", scopes=["shop:buy"])
        await parked(handle, "budget")
        assert sent == ["a"]


async def test_revoking_says_where_the_worker_has_not_taken_it_yet(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    @mp.workflow(version="1")
    async def flow(run: mp.Run) -> None:
        await run.receive("go", int)

    monkeypatch.setattr(budgets, "TAKEN_WITHIN_S", 0.05)
    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await parked(handle, "signal")
    stage.write("UPDATE mp_runs SET owner = 'a worker that does not answer' WHERE id = ?", handle.id)
    async with stage.app(flow).client() as app:
        assert await revoke(app, handle.id, "shop:buy") is False


# ---------------------------------------------------------------- taken back, and from elsewhere


async def test_a_rewind_brings_back_neither_money_nor_scopes(stage: Stage, shop: Shop) -> None:
    """Requirement 49. Requirement 83. What was spent stays spent, what was revoked stays revoked; reservations go."""
    undone: list[str] = []

    @mp.tool(name="unbuy", effect="keyed", key_ttl="24h")
    async def unbuy(what: str) -> None:
        undone.append(what)

    tool = shop.tool(scopes=["shop:buy"], retry=mp.Retry(3, first="1h"))
    tool.compensate(unbuy)
    flow = mp.Workflow("flow", version="1", input=int, result=str, tools=[tool])

    @flow.segment
    async def first(run: mp.Run, n: int) -> mp.Next[str]:
        return mp.go(second, n)

    @flow.segment
    async def second(run: mp.Run, n: int) -> mp.Next[str]:
        await tool("a")
        return mp.done(await tool("late"))

    async with stage.app(flow) as app:
        await limit(app, usd=10)
        handle = await app.start(flow, 1, budget={"usd": 2}, authority=mp.Authority("bot", scopes=["shop:buy"]))
        await parked(handle, "time")
        assert await stands(app) == {"total ever": ("1", "1")}
        assert await revoke(app, handle.id, "shop:buy", usd=1)
        await app.rewind(handle.id, to="second", by="ann", why="again")
        await parked(handle, "authority")
        assert undone == ["a sold"]
        assert await stands(app) == {"total ever": ("1", "0")}
        detail = await app.inspect.detail(handle.id)
        assert (detail.scopes, detail.granted, detail.spent) == ((), {"usd": "1"}, {"usd": "1"})
