"""When a run that a shared budget refused looks again by itself, and what it leaves behind each time it is refused."""

import asyncio
from datetime import datetime, timedelta
from decimal import Decimal

import milepost as mp
from milepost.core.pools import day_of, next_day
from milepost.runtime.pools import LATER_MS, SOON_MS
from tests.runtime.selling import RICH, USD1, Shop, buying, limit
from tests.runtime.stage import Stage, has_entry, names, parked, until


def ms(moment: datetime | None) -> int:
    assert moment is not None
    return round(moment.timestamp() * 1_000)


class Holder:
    """A call that keeps its dollar until it is let go."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()

        @mp.tool(name="hold", effect="keyed", key_ttl="24h", cost=USD1)
        async def hold(call: mp.Call) -> str:
            await self.go_on.wait()
            call.spent(usd=Decimal(0))
            return "given back"

        @mp.workflow(version="1", name="holding", tools=[hold])
        async def holding(run: mp.Run) -> str:
            return await hold()

        self.flow = holding


async def test_it_looks_again_soon_where_what_others_hold_may_suffice_and_later_where_it_cannot(stage: Stage) -> None:
    holder, shop = Holder(), Shop()
    flow = buying(shop.tool())
    async with stage.app(flow, holder.flow, still=True) as app:
        await limit(app, usd=1)
        other = await app.start(holder.flow, budget=RICH)
        await has_entry(app, other.id, "effect_started")
        waiting = await parked(await app.start(flow, ["a"], budget=RICH), "budget")
        assert ms(waiting.until) == stage.clock.now() + SOON_MS

        await limit(app, usd=0)
        waiting = await parked(await app.start(flow, ["b"], budget=RICH), "budget")
        assert ms(waiting.until) == stage.clock.now() + LATER_MS
        holder.go_on.set()


async def test_one_who_is_refused_again_and_again_looks_ever_more_rarely(stage: Stage) -> None:
    shop = Shop()
    flow = buying(shop.tool())
    async with stage.app(flow, still=True) as app:
        await limit(app, usd=0)
        handle = await app.start(flow, ["a"], budget=RICH)
        for times in (1, 2, 4, 8, 10, 10):
            waiting = await parked(handle, "budget")
            assert ms(waiting.until) == stage.clock.now() + times * LATER_MS
            before = (await names(app, handle.id)).count("run_parked")
            stage.clock.advance(timedelta(milliseconds=times * LATER_MS))
            await has_entry(app, handle.id, "run_parked", before + 1)

        await limit(app, usd=1)
        assert await handle.result(timeout="30s") == ["a sold"]


async def test_it_looks_when_the_day_ends_only_where_the_ceiling_is_for_a_day(stage: Stage) -> None:
    shop = Shop()
    flow = buying(shop.tool())
    now = stage.clock.now()
    midnight = next_day(now)
    stage.clock.advance(timedelta(milliseconds=midnight - now - 30_000))
    assert day_of(stage.clock.now()) == day_of(now)
    async with stage.app(flow, still=True) as app:
        await limit(app, usd=0)
        waiting = await parked(await app.start(flow, ["a"], budget=RICH), "budget")
        assert ms(waiting.until) == midnight + 30_000

        await limit(app, usd=9)
        await limit(app, per="day", usd=0)
        waiting = await parked(await app.start(flow, ["b"], budget=RICH), "budget")
        assert ms(waiting.until) == midnight


async def test_a_run_in_memory_looks_again_at_that_very_moment(stage: Stage) -> None:
    holder, shop, hold = Holder(), Shop(), asyncio.Event()
    tool = shop.tool()

    async def busy() -> str:
        await hold.wait()
        return "busy"

    @mp.workflow(version="1", name="flow", tools=[tool])
    async def flow(run: mp.Run) -> list[str]:
        return list(await run.gather(tool("a"), busy()))

    async with stage.app(flow, holder.flow, still=True) as app:
        await limit(app, usd=1)
        other = await app.start(holder.flow, budget=RICH)
        await has_entry(app, other.id, "effect_started")
        handle = await app.start(flow, budget=RICH)
        await has_entry(app, handle.id, "effect_planned")
        holder.go_on.set()
        assert await other.result(timeout="30s") == "given back"
        assert shop.sold == []

        stage.clock.advance(timedelta(milliseconds=SOON_MS))

        async def sold() -> bool:
            return shop.sold == ["a"]

        await until(sold)
        hold.set()
        assert await handle.result(timeout="30s") == ["a sold", "busy"]


async def test_a_call_that_is_refused_again_is_planned_once(stage: Stage) -> None:
    shop = Shop()
    flow = buying(shop.tool(cost={"usd": 2}))
    async with stage.app(flow, still=True) as app:
        await limit(app, usd=0)
        handle = await app.start(flow, ["a"], budget=RICH)
        assert (await parked(handle, "budget")).ask == "milepost budget set total usd=2 --why …"
        before = (await names(app, handle.id)).count("run_parked")

        await limit(app, usd=1)
        await has_entry(app, handle.id, "run_parked", before + 1)
        await limit(app, usd=2)

        assert await handle.result(timeout="30s") == ["a sold"]
        assert (await names(app, handle.id)).count("effect_planned") == 1
