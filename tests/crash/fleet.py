"""Workers that share one store: `python -m tests.crash.fleet LEASE GRACE` serves until SIGTERM.

With STOP_BEFORE_SENDING the worker stops itself (SIGSTOP) in the moment between a `started` that is durable and its
send: a callback looks at the store on every turn of the loop, so it comes between the commit and whoever waits for it.
"""

import asyncio
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path

import apsw

import milepost as mp
from tests.crash.desk import WORLD, ship, store_of
from tests.crash.world import here, point
from tests.polling import eventually

STOP_BEFORE_SENDING = "STOP_BEFORE_SENDING"
STAYS = "STAYS"  # then the process stays when its app has closed, as a program that goes on with something else
CLOSED, DRAINING, GO, GRIPPING = "closed", "draining", "go", "gripping"  # files by which tests and workers speak
LEASE = "SELECT lease_until FROM mp_workers WHERE pid = ?"
STARTED = "SELECT 1 FROM mp_effects WHERE tool = 'press' AND outcome = 'started'"


ERRANDS = 6
SERVICE_S = 0.02  # what a service takes before and after it applies


@mp.tool(timeout="1s")
async def press(call: mp.Call, button: str) -> str:
    point(f"press {button}", "before", call.attempt)
    WORLD.apply("press", call.key, call.attempt, {"button": button})
    point(f"press {button}", "applied", call.attempt)
    return f"{button} pressed"


@mp.tool(effect="queryable", visible_within="0s", timeout="1s")
async def place(call: mp.Call, thing: str) -> str:
    point(f"place {thing}", "before", call.attempt)
    WORLD.apply("place", call.key, call.attempt, {"thing": thing})
    return f"{thing} placed"


@place.reconcile
async def _placed(thing: str) -> mp.Finding[str]:
    return mp.happened(f"{thing} placed") if WORLD.find("place", thing=thing) else mp.did_not_happen()


@mp.tool(effect="queryable", visible_within="0s", timeout="20s")
async def hold(call: mp.Call, door: str) -> str:
    """Apply, then wait until the test says go."""
    WORLD.apply("hold", call.key, call.attempt, {"door": door})
    while not (here() / GO).exists():  # noqa: ASYNC110  the test is another process
        await asyncio.sleep(0.005)
    return f"{door} held"


@hold.reconcile
async def _held(door: str) -> mp.Finding[str]:
    return mp.happened(f"{door} held") if WORLD.find("hold", door=door) else mp.did_not_happen()


@mp.tool(effect="queryable", visible_within="0s", timeout="20s")
def grip(call: mp.Call, door: str) -> str:
    """Wait in a thread until the test says go, and only then apply."""
    (here() / GRIPPING).touch()
    eventually((here() / GO).exists, within_s=60)
    WORLD.apply("grip", call.key, call.attempt, {"door": door})
    return f"{door} gripped"


@grip.reconcile
async def _gripped(door: str) -> mp.Finding[str]:
    return mp.happened(f"{door} gripped") if WORLD.find("grip", door=door) else mp.did_not_happen()


@mp.workflow(version="1", tools=[press])
async def pressing(run: mp.Run, button: str) -> str:
    return await press(button)


@mp.workflow(version="1", tools=[place, press])
async def both(run: mp.Run, name: str) -> tuple[str, str]:
    return await run.gather(place(name), press(name))


@mp.workflow(version="1", tools=[place])
async def placing(run: mp.Run, thing: str) -> str:
    return await place(thing)


@mp.tool(effect="queryable", visible_within="0s")
async def carry(call: mp.Call, parcel: str) -> str:
    await asyncio.sleep(SERVICE_S)
    WORLD.apply("carry", call.key, call.attempt, {"parcel": parcel})
    await asyncio.sleep(SERVICE_S)
    return f"{parcel} carried"


@carry.reconcile
async def _carried(parcel: str) -> mp.Finding[str]:
    return mp.happened(f"{parcel} carried") if WORLD.find("carry", parcel=parcel) else mp.did_not_happen()


@mp.tool(effect="keyed", key_ttl="24h")
async def pay(call: mp.Call, parcel: str) -> str:
    await asyncio.sleep(SERVICE_S)
    WORLD.apply("pay", call.key, call.attempt, {"parcel": parcel}, known_by_key=True)
    await asyncio.sleep(SERVICE_S)
    return f"{parcel} paid"


@mp.workflow(version="1", tools=[carry, pay])
async def errands(run: mp.Run, order: str) -> list[str]:
    receipts = []
    for number in range(ERRANDS):
        await run.sleep("5ms")
        await carry(f"parcel {number} of {order}")
        receipts.append(await pay(f"parcel {number} of {order}"))
    return receipts


@mp.workflow(version="1", tools=[hold, ship])
async def holding(run: mp.Run, door: str) -> list[str]:
    return [await hold(door), await ship(door)]


@mp.workflow(version="1", tools=[grip])
async def gripping(run: mp.Run, door: str) -> str:
    return await grip(door)


def fleet_of(folder: Path, lease: str = "30s") -> mp.App:
    return mp.App(store_of(folder), workflows=[errands, pressing, both, placing, holding, gripping], lease=lease)


def watch(loop: asyncio.AbstractEventLoop, store: apsw.Connection | None = None) -> None:
    """Stop this process once a `started` is durable; awake again, let the thread that renews the lease go first."""
    try:
        store = store or apsw.Connection(str(here() / "store.db"), flags=apsw.SQLITE_OPEN_READWRITE)
        found = list(store.execute(STARTED))
    except apsw.Error:
        loop.call_later(0.005, watch, loop)  # there is no store yet
        return
    if found:
        os.kill(os.getpid(), signal.SIGSTOP)
        eventually(partial(is_renewed, store), saying="the lease was renewed before the loop took its next turn")
        return
    loop.call_soon(watch, loop, store)


def is_renewed(store: apsw.Connection) -> bool:
    """Whether this worker's lease lasts, as the store has it."""
    ((until,),) = store.execute(LEASE, (os.getpid(),)).fetchall()
    return int(str(until)) > time.time_ns() // 1_000_000


def drain(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """Stop serving, and say so once the loop has had its turns."""
    stop.set()
    loop.call_later(0.05, (here() / DRAINING).touch)


async def main() -> None:
    _, lease, grace = sys.argv
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, drain, loop, stop)
    if os.environ.get(STOP_BEFORE_SENDING):
        loop.call_soon(watch, loop)
    await fleet_of(here(), lease).serve(stop, together=10, grace=grace)
    if os.environ.get(STAYS):
        (here() / CLOSED).touch()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
