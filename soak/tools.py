"""The tools of the soak: those of the fault scenarios, one that can be undone, one whose provider goes away."""

from typing import Any

import milepost as mp
from faults.tools import Door, keyed, parcels, payments
from faults.tools import irreversible as at_once
from soak.scene import Scene


class Tools:
    """The tools over one scene."""

    def __init__(self, scene: Scene) -> None:
        setup = scene.setup
        self.charge, self.refund = payments(setup)
        self.ship, _ = parcels(setup)
        self.press, _ = at_once(setup)
        self.book = booking(scene)
        self.order = stock(scene)
        self.pay_out = paying_out(scene)

        @mp.tool(effect="transactional")
        def note(tx: mp.Tx, name: str) -> int:
            (row,) = tx.execute("INSERT INTO notes (name) VALUES ($1) RETURNING number", [name])
            return int(row[0])

        self.note = note
        self.all: tuple[mp.Tool[..., Any], ...] = (
            self.charge, self.refund, self.ship, self.press, self.book, self.order, self.pay_out, self.note,
        )  # fmt: skip


def booking(scene: Scene) -> mp.Tool[[str], str]:
    """Return a tool that another one undoes."""

    @mp.tool(**keyed(scene.setup))
    async def take_back(call: mp.Call, name: str) -> str:
        args = {"name": name}
        return await call.resource(Door).change(call, "keyed", "take_back", args, **{"Idempotency-Key": call.key})

    @mp.tool(**keyed(scene.setup))
    async def book(call: mp.Call, name: str) -> str:
        args = {"name": name}
        return await call.resource(Door).change(call, "keyed", "book", args, **{"Idempotency-Key": call.key})

    book.compensate(take_back)
    return book


def stock(scene: Scene) -> mp.Tool[[str], str]:
    """Return a tool whose provider is away at times: then nothing was sent."""

    @mp.tool(**keyed(scene.setup))
    async def order(call: mp.Call, name: str) -> str:
        if scene.outage.exists():
            raise mp.NotSent("the provider is away")
        args = {"name": name}
        return await call.resource(Door).change(call, "keyed", "order", args, **{"Idempotency-Key": call.key})

    return order


def paying_out(scene: Scene) -> mp.Tool[[str, int], str]:
    """Return a tool that a person must approve."""

    @mp.tool(**keyed(scene.setup), approval=True)
    async def pay_out(call: mp.Call, name: str, cents: int) -> str:
        args = {"name": name, "cents": cents}
        return await call.resource(Door).change(call, "keyed", "pay_out", args, **{"Idempotency-Key": call.key})

    return pay_out
