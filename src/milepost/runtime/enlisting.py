"""The row of a worker: written when it opens, kept while it may be asked for, and removed by those that come later.

  at work      its lease is renewed; a row that is gone is written again
  gone         it left, or its lease lapsed: others take its runs over, and go by its row for how long its code may act
  delisted     that is long past (core/lease.py) and it holds no run: the row says nothing any more, and is removed

A worker may have been frozen for days, and then go on. What it held is not its own any more, or its row would be there:
epochs refuse what it writes to that. What it claims from here on must stand beside a row, or the longer lease that an
attempt takes would be written nowhere; so the lease is looked at around every claim, before and behind it. Behind it no
row is removed, for its worker holds a run.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from milepost.core.lease import kept_until, lapsed
from milepost.errors import StoreError
from milepost.stores.fleet import Delist, Enlist

if TYPE_CHECKING:
    from milepost.runtime.engine import Engine
    from milepost.stores.fleet import WorkerRow

log = logging.getLogger("milepost")
AT_ONCE = 100


async def again(engine: Engine) -> None:
    """Write this worker's row once more, with a lease from now on. Raises StoreError."""
    if engine.row is None:
        return
    now = engine.clock.now()
    if lapsed(engine.lease_until, now):
        engine.lapses += 1  # as where it is renewed: what was to be sent under the old one is not sent under this one
    until = now + engine.lease_ms
    await engine.writer.durable(Enlist(replace(engine.row, lease_until=until)))
    engine.lease_until = max(engine.lease_until, until)


async def again_if_lapsed(engine: Engine) -> None:
    """Write this worker's row once more where its lease lapsed: it may have been removed since. Raises StoreError."""
    if lapsed(engine.lease_until, engine.clock.now()):
        await again(engine)


async def delist(engine: Engine) -> None:
    """Remove rows of workers that are long gone, up to a hundred: whoever comes next removes more."""
    try:
        now = engine.clock.now()
        gone = [row for row in await engine.store.workers() if _is_over(row, now) and row.id != engine.worker]
        holders = {row.id for row in await engine.store.holders()} if gone else set()
        idle = [row for row in gone if row.id not in holders][:AT_ONCE]
        if idle:
            await engine.writer.durable(Delist(idle))
    except StoreError as error:  # also where a role's grants are older than this: nothing rests on it
        log.info("rows of workers that are gone were not removed: %s", error)


def _is_over(row: WorkerRow, now: int) -> bool:
    return kept_until(row.started_at, row.lease_until, row.ended_at) <= now
