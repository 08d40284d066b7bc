"""What a script waits for: the end of its run, or the moment when only a person helps."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from milepost.errors import NeedsPerson, Waiting
from milepost.runtime.handles import waiting_of

if TYPE_CHECKING:
    from milepost.runtime.engine import Engine
    from milepost.stores.api import RunRow

SETTLED = frozenset({"done", "failed", "cancelled", "killed", "blocked"})
PERSON = frozenset({"approval", "authority", "budget", "person"})
ASKS = frozenset({"switch", "breaker"})  # a person, where they say what to type
LOOK_S = 0.05
FEW = 100


async def until_settled(engine: Engine, run_id: str, working: asyncio.Task[None]) -> None:
    """Wait until a run has ended or is blocked. Raises NeedsPerson, or what stopped the worker."""
    while True:
        watching = engine.watch(run_id)
        row = await engine.store.run(run_id)
        if row.status in SETTLED:
            return
        waiting = await _person(engine, run_id, row)
        if waiting is not None:
            raise NeedsPerson(run_id, waiting)
        if working.done():
            working.result()
            return
        pause = LOOK_S * max(1, len(engine.family or ()) // FEW)  # each look asks for every one of them
        await asyncio.wait([watching, working], timeout=pause, return_when=asyncio.FIRST_COMPLETED)


async def _person(engine: Engine, run_id: str, row: RunRow) -> Waiting | None:
    """Return what needs a person, when nothing of the run or its children can move without one."""
    if row.status != "parked" or row.owner is not None or (row.due is not None and row.due <= engine.clock.now()):
        return None
    asks = row.ask and (row.reason in ASKS or (row.reason == "unknown" and row.until is None))
    if row.reason in PERSON or asks:
        return waiting_of(row)
    if row.reason != "child":
        return None
    family = engine.family or set()
    for child in sorted(family - {run_id}):
        below = await engine.store.run(child)
        waiting = await _person(engine, child, below)
        if waiting is not None:
            return waiting
        if below.status == "blocked":
            return Waiting("child", None, f"milepost show {child}")
    return None
