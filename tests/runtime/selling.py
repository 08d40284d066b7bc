"""What tests of shared budgets share: a shop that sells for a dollar each, and how its ceilings are set and read."""

from collections.abc import Mapping
from decimal import Decimal

import milepost as mp
from milepost.core.pools import Per
from milepost.operations.budgets import pools
from milepost.operations.recounting import recount

USD1 = {"usd": Decimal(1)}
RICH = {"usd": 1_000}
BOT = mp.Authority("bot", tenant="acme")


class Shop:
    """Sells for a dollar each; `mode` says how it answers."""

    def __init__(self) -> None:
        self.sold: list[str] = []
        self.really: Mapping[str, Decimal] = {}

    def tool(self, **options: object) -> mp.Tool[[str], str]:
        @mp.tool(name="buy", **{"cost": USD1, "effect": "keyed", "key_ttl": "24h", **options})  # type: ignore[call-overload, untyped-decorator]
        async def buy(call: mp.Call, what: str) -> str:
            self.sold.append(what)
            if what == "refused":
                raise mp.Rejected("sold out")
            if what == "lost":
                raise RuntimeError("line broke")
            if what == "late" and call.attempt == 1:
                raise mp.NotSent("no route")
            if self.really:
                call.spent(**self.really)
            return f"{what} sold"

        tool: mp.Tool[[str], str] = buy
        return tool


def buying(tool: mp.Tool[[str], str]) -> mp.Workflow[list[str], list[str]]:
    @mp.workflow(version="1", name="flow", tools=[tool])
    async def flow(run: mp.Run, things: list[str]) -> list[str]:
        return [await tool(thing) for thing in things]

    return flow


async def limit(app: mp.App, pool: str = "total", per: Per = "ever", **units: Decimal | int | None) -> int:
    return await app._operator().set_ceiling(pool, units, per=per, by="ann", why="a try")


async def stands(app: mp.App) -> dict[str, tuple[str, str]]:
    """Return what is spent and reserved, and hold the rows against the journals."""
    engine = app._need_engine()
    assert await recount(engine.store) == []
    views = await pools(engine.store, engine.clock.now())
    return {f"{view.pool} {view.per}": (f"{view.spent:f}", f"{view.reserved:f}") for view in views}
