"""A run that is taken back: two effects of different classes, each with a compensation of its own.

`pay` drives the run to its end. `go_back` asks, once, for the boundary where it was decided to pay, drives the run
back there, says no this time, and prints the result. Both play the operator, so each line of a rewind is written by a
process that a test kills.
"""

import asyncio
import json
import sys

import milepost as mp
from tests.crash.desk import store_of
from tests.crash.world import World, here, point

WORLD = World()
PAUSE_S = 0.01
KEY = "order-1"


@mp.tool(effect="keyed", key_ttl="24h", once="order")
async def charge(call: mp.Call, order: str) -> str:
    WORLD.apply("charge", call.key, call.attempt, {"order": order}, known_by_key=True)
    return f"receipt for {order}"


@mp.tool(effect="keyed", key_ttl="24h")
async def refund(call: mp.Call, receipt: str) -> None:
    point("refund", "before", call.attempt)
    WORLD.apply("refund", call.key, call.attempt, {"receipt": receipt}, known_by_key=True)
    point("refund", "applied", call.attempt)
    await asyncio.sleep(0)
    point("refund", "return", call.attempt)


charge.compensate(refund)


@mp.tool(effect="queryable", visible_within="0s")
def ship(call: mp.Call, parcel: str) -> str:
    WORLD.apply("ship", call.key, call.attempt, {"parcel": parcel})
    return parcel


@ship.reconcile
def _shipped(parcel: str) -> mp.Finding[str]:
    return mp.happened(parcel) if WORLD.find("ship", parcel=parcel) else mp.did_not_happen()


@mp.tool(effect="queryable", visible_within="0s")
def call_back(call: mp.Call, parcel: str) -> str:
    point("call_back", "before", call.attempt)
    WORLD.apply("call_back", call.key, call.attempt, {"parcel": parcel})
    point("call_back", "applied", call.attempt)
    point("call_back", "return", call.attempt)
    return parcel


@call_back.reconcile
def _called_back(parcel: str) -> mp.Finding[str]:
    point("call_back", "reconcile")
    return mp.happened(parcel) if WORLD.find("call_back", parcel=parcel) else mp.did_not_happen()


ship.compensate(call_back)

order = mp.Workflow("order", version="1", input=str, result=str, tools=[charge, ship])


@order.segment
async def asking(run: mp.Run, name: str) -> mp.Next[str]:
    return mp.go(deciding, name)


@order.segment
async def deciding(run: mp.Run, name: str) -> mp.Next[str]:
    word = await run.receive("word", str)
    return mp.go(paying, name) if word == "yes" else mp.done("not paid")


@order.segment
async def paying(run: mp.Run, name: str) -> mp.Next[str]:
    await charge(name)
    return mp.go(shipping, name)


@order.segment
async def shipping(run: mp.Run, name: str) -> mp.Next[str]:
    await ship(name)
    return mp.done("paid")


def app_of() -> mp.App:
    return mp.App(store_of(here()), workflows=[order])


async def pay() -> None:
    """Drive the run to its end."""
    async with app_of() as app:
        handle = await app.start(order, "first", key=KEY)
        await app.send(handle.id, "word", "yes", id="one")
        sys.stdout.write(json.dumps(await handle.result(timeout="60s")))


async def go_back() -> None:
    """Take the run back to where it was decided, and decide otherwise."""
    async with app_of() as app:
        handle = await app.start(order, "first", key=KEY)
        if not await _asked(app, handle.id):
            await app.rewind(handle.id, to="deciding", by="ann", why="the wrong customer")
        while "rewound" not in await _told(app, handle.id):  # noqa: ASYNC110  the store has no event to wait for
            await asyncio.sleep(PAUSE_S)
        if (await handle.status()).status != "done":
            await app.send(handle.id, "word", "no", id="two")
        sys.stdout.write(json.dumps(await handle.result(timeout="60s")))


async def _asked(app: mp.App, run_id: str) -> bool:
    """Whether the run was asked to go back, by a process before this one."""
    waiting = await app._need_engine().store.inbox(run_id)
    return bool(waiting) or "rewind_asked" in await _told(app, run_id)


async def _told(app: mp.App, run_id: str) -> list[str]:
    return [line.name for line in await app.inspect.journal(run_id)]
