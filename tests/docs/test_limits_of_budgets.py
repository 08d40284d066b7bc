"""docs/limits.md is true of budgets: what still wins, wins."""

import asyncio
from decimal import Decimal
from pathlib import Path

import pytest

import milepost as mp
from milepost.operations.budgets import pools
from milepost.stores.api import Query
from tests.runtime.stage import until


@mp.tool(effect="keyed", key_ttl="24h", cost={"usd": 1})
async def buy(call: mp.Call, really: int) -> str:
    call.spent(usd=really)
    return "bought"


@mp.workflow(version="1", tools=[buy])
async def buying(_run: mp.Run, really: int) -> str:
    return await buy(really)


def app_at(folder: Path, *more: mp.Workflow[str, str]) -> mp.App:
    return mp.App(f"sqlite:///{folder}/limits.db", workflows=[buying, *more])


def limit(app: mp.App, usd: int) -> None:
    async def setting() -> None:
        async with app.client():
            await app._operator().set_ceiling("total", {"usd": usd}, by="ann", why="a try")

    asyncio.run(setting())


def spent(app: mp.App) -> Decimal:
    async def asking() -> Decimal:
        async with app.client():
            [pool] = await pools(app._need_engine().store, 0)
            return pool.spent

    return asyncio.run(asking())


def test_what_a_tool_spends_beyond_its_worst_case_is_gone_and_stops_the_next_call(tmp_path: Path) -> None:
    app = app_at(tmp_path)
    limit(app, 3)

    app.run(buying, 100, budget={"usd": 200})

    assert spent(app) == 100
    with pytest.raises(mp.NeedsPerson, match="milepost budget set total usd=101"):
        app.run(buying, 1, budget={"usd": 200})


def test_a_ceiling_does_not_know_what_was_spent_before_it_was_set(tmp_path: Path) -> None:
    app = app_at(tmp_path)
    app.run(buying, 100, budget={"usd": 200})

    limit(app, 3)

    assert spent(app) == 0
    assert app.run(buying, 1, budget={"usd": 200}) == "bought"


def test_who_says_to_be_of_another_tenant_is_charged_to_that_one(tmp_path: Path) -> None:
    app = app_at(tmp_path)
    limit(app, 100)

    async def setting() -> None:
        async with app.client():
            await app._operator().set_ceiling("tenant:poor", {"usd": 0}, by="ann", why="a try")

    asyncio.run(setting())
    rich = mp.Authority("bot", tenant="rich")

    assert app.run(buying, 1, budget={"usd": 1}, authority=rich) == "bought"


def test_a_child_that_was_started_before_keeps_the_scope_that_its_parent_lost(tmp_path: Path) -> None:
    @mp.tool(scopes=["shop:buy"])
    async def take(what: str) -> str:
        return f"{what} taken"

    @mp.workflow(version="1", tools=[take])
    async def child(run: mp.Run, what: str) -> str:
        await run.receive("go", int)
        return await take(what)

    @mp.workflow(version="1")
    async def parent(run: mp.Run, what: str) -> str:
        return await (await run.start(child, what)).result()

    async def scene() -> str:
        app = app_at(tmp_path, child, parent)
        async with app:
            handle = await app.start(parent, "one", authority=mp.Authority("bot", scopes=["shop:buy"]))

            async def waits() -> bool:
                return len(await app.inspect.runs(Query(status="parked"))) == 2

            await until(waits, "both wait")
            await app._operator().revoke(handle.id, by="ann", why="x", scopes=["shop:buy"])
            [below] = await app.inspect.runs(Query(parent=handle.id))
            await app.send(below.id, "go", 1)
            return await handle.result(timeout="60s")

    assert asyncio.run(scene()) == "one taken"
