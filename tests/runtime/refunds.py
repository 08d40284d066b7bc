"""A desk that can take back what it did, and the outside world in which it did it: one list, oldest first."""

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import milepost as mp
from tests.runtime.stage import has_entry, parked


@dataclass
class Outside:
    """What was done, and how the next calls of a tool go: an exception, or a function to call first."""

    done: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    next: dict[str, list[Any]] = field(default_factory=dict)

    async def do(self, tool: str, call: mp.Call, what: str) -> None:
        """Do something, as the test said it goes."""
        planned = self.next.get(tool, [])
        answer = planned.pop(0) if planned else None
        if callable(answer):
            await answer()
        elif isinstance(answer, mp.Rejected | mp.NotSent):
            raise answer
        self.keys.append(call.key)
        self.done.append(f"{tool} {what}")
        if isinstance(answer, Exception):
            raise answer


def desk_of(outside: Outside, *, version: str = "1", **undoing: Any) -> mp.Workflow[str, str]:  # noqa: C901
    """Return a desk of three segments: `charging` charges twice, `shipping` ships, `closing` waits for a word.

    `undoing` are options of `refund`, which undoes `charge`; `unship`, which undoes `ship`, has none.
    """

    @mp.tool(effect="keyed", key_ttl="24h", once="order")
    async def charge(call: mp.Call, order: str, cents: int) -> str:
        await outside.do("charge", call, order)
        return f"receipt {order}"

    @mp.tool(**{"effect": "keyed", "key_ttl": "24h", **undoing})
    async def refund(call: mp.Call, receipt: str) -> None:
        await outside.do("refund", call, receipt)

    charge.compensate(refund)

    @mp.tool(effect="keyed", key_ttl="24h")
    async def ship(call: mp.Call, parcel: str) -> dict[str, Any]:
        await outside.do("ship", call, parcel)
        return {"parcel": parcel, "label": "x" * 2_000}

    @mp.tool(effect="keyed", key_ttl="24h")
    async def unship(call: mp.Call, shipped: dict[str, Any]) -> None:
        await outside.do("unship", call, shipped["parcel"])

    ship.compensate(unship)

    @mp.tool(approval=True)
    async def mail(call: mp.Call, to: str) -> None:
        await outside.do("mail", call, to)

    desk = mp.Workflow("desk", version=version, input=str, result=str, tools=[charge, ship, mail])

    @desk.segment
    async def charging(run: mp.Run, order: str) -> mp.Next[str]:
        one, two = await charge(f"{order}-1", 100), await charge(f"{order}-2", 200)
        return mp.go(shipping, [one, two])

    @desk.segment
    async def shipping(run: mp.Run, receipts: list[str]) -> mp.Next[str]:
        await ship(receipts[0])
        return mp.go(closing, receipts)

    @desk.segment
    async def closing(run: mp.Run, receipts: list[str]) -> mp.Next[str]:
        word = await run.receive("word", str)
        if word == "mail":
            await mail("ann")
        if word == "fail":
            return mp.fail("as it was told")
        return mp.done(f"{len(receipts)} {word}")

    return desk


@dataclass
class Money:
    """Costs of the tools in `spending_of`."""

    charge: Decimal = Decimal(5)
    refund: Decimal = Decimal(1)


def spending_of(outside: Outside, money: Money) -> mp.Workflow[str, str]:
    """Return a desk whose two tools cost money and need scopes."""

    @mp.tool(effect="keyed", key_ttl="24h", cost={"usd": money.charge}, scopes=["charge"], approval=True)
    async def charge(call: mp.Call, order: str) -> str:
        await outside.do("charge", call, order)
        return order

    @mp.tool(effect="keyed", key_ttl="24h", cost={"usd": money.refund}, scopes=["refund"], approval=True)
    async def refund(call: mp.Call, receipt: str) -> None:
        await outside.do("refund", call, receipt)

    charge.compensate(refund)
    desk = mp.Workflow("spending", version="1", input=str, result=str, tools=[charge])

    @desk.segment
    async def paying(run: mp.Run, order: str) -> mp.Next[str]:
        return mp.go(paid, await charge(order))

    @desk.segment
    async def paid(run: mp.Run, receipt: str) -> mp.Next[str]:
        return mp.done(f"{receipt} {await run.receive('word', str)}")

    return desk


async def at_closing(app: mp.App, desk: mp.Workflow[str, str], **options: Any) -> mp.Handle[str]:
    """Start a run and let it come to its last segment, where it waits."""
    handle = await app.start(desk, "o", **options)
    await parked(handle, "signal")
    return handle


async def rewound(app: mp.App, run_id: str, times: int = 1) -> None:
    """Wait until a run has gone back so many times."""
    await has_entry(app, run_id, "rewound", times)
