"""Workers that Temporal gives work to.

`serving` serves until SIGTERM. What workers do outside is a line of the ledger in the folder that CRASH_FOLDER names:
see `tests.crash.fleet`, whose tools most of these are. In the pace of these workers a run looks by itself only after
ten days, so that nothing but news or a timer moves it.
"""

import threading
from typing import Any

import msgspec
from temporalio.client import Client

import milepost as mp
from milepost.drivers.temporal import Pace, serve
from milepost.runtime.clock import Clock
from tests.crash.desk import WORLD
from tests.crash.fleet import both, errands, gripping, holding, place, pressing

SECRET = "the-patient-is-called-Ada"  # noqa: S105  what must never be seen in Temporal's history
NEVER_S = 864_000.0
FROZEN = "10s"
HANGS_S = 300.0


class Count(msgspec.Struct):
    """How far a run has counted."""

    n: int
    upto: int


counting = mp.Workflow("counting", version="1", input=int, result=int)


@counting.segment
async def begin(run: mp.Run, upto: int) -> mp.Next[int]:
    return mp.go(step, Count(0, upto))


@counting.segment
async def step(run: mp.Run, count: Count) -> mp.Next[int]:
    if count.n >= count.upto:
        return mp.done(count.n)
    return mp.go(step, Count(count.n + 1, count.upto))


@mp.tool(approval=True)
async def mail(call: mp.Call, to: str) -> str:
    WORLD.apply("mail", call.key, call.attempt, {"to": to})
    return f"{SECRET} wrote to {to}"


@mp.tool(effect="queryable", visible_within="0s", timeout="20s")
async def knock(call: mp.Call, door: str) -> str:
    """Apply, and let nothing else of this process go on."""
    WORLD.apply("knock", call.key, call.attempt, {"door": door})
    threading.Event().wait(HANGS_S)  # that is the defect
    return f"knocked at {door}"


@knock.reconcile
async def _knocked(door: str) -> mp.Finding[str]:
    return mp.happened(f"heard at {door}") if WORLD.find("knock", door=door) else mp.did_not_happen()


@mp.workflow(version="1", tools=[knock])
async def knocking(run: mp.Run, door: str) -> str:
    return await knock(door)


@mp.workflow(version="1", tools=[mail])
async def mailing(run: mp.Run, to: str) -> str:
    return await mail(to)


@mp.workflow(version="1", tools=[place])
async def monthly(run: mp.Run, thing: str) -> list[str]:
    first = await place(f"{thing} now")
    await run.sleep("30d")
    return [first, await place(f"{thing} in a month")]


@mp.workflow(version="1", tools=[place])
async def one(run: mp.Run, thing: str) -> str:
    return await place(thing)


@mp.workflow(version="1", tools=[place], queue="narrow")
async def turning(run: mp.Run, thing: str) -> str:
    await place(thing)
    await run.sleep("100ms")
    return await place(f"{thing} again")


@mp.workflow(version="1")
async def many(run: mp.Run, number: int) -> list[str]:
    children = [await run.start(one, f"thing {which}") for which in range(number)]
    return list(await run.gather(*(child.result() for child in children)))


@mp.workflow(version="1")
async def refusing(run: mp.Run, why: str) -> str:
    raise ValueError(why)


@mp.workflow(version="1")
async def asking(run: mp.Run, name: str) -> str:
    return await run.receive(name, str)


WORKFLOWS: list[mp.Workflow[Any, Any]] = [
    *(
        asking,
        both,
        counting,
        errands,
        gripping,
        holding,
        knocking,
        mailing,
        many,
        monthly,
        one,
        pressing,
        refusing,
        turning,
    ),
]


def app_on(store: str, lease: str = "30s", clock: Clock | None = None) -> mp.App:
    """Return the program on a store."""
    app = mp.App(store, workflows=WORKFLOWS, lease=lease, clock=clock)
    app.limit("narrow", together=1, while_waiting=True)
    return app


def pace_of(heartbeat_s: float) -> Pace:
    """Return a pace with a short history, in which a run is looked at by itself only after a day."""
    return Pace(segments=5, heartbeat_s=heartbeat_s, again_s=NEVER_S, rounds=10)


async def serving(target: str, queue: str, store: str, lease: str, heartbeat: str) -> None:
    """Be a worker until SIGTERM."""
    client = await Client.connect(target)
    await serve(
        app_on(store, lease), client, task_queue=queue, grace="5s", frozen=FROZEN, pace=pace_of(float(heartbeat))
    )
