"""How news reaches a workflow: whatever makes a run able to move makes it *due* in our store, and a worker looks there.

A verb typed at the plain command line, a child's end, a switch that is lifted, a start: all of them write to the store
and know nothing of Temporal. Each worker that serves looks at the store anyway. A run that is due, and that nobody
drives, gets a signal, which starts its workflow where there is none. So Temporal may forget everything: it is told
again.

  first seen       remembered: a workflow that has just been told, or whose timer fires now, takes it by itself
  still there      told, after one more look at its row; if it does not move, again, at growing distances
  gone from sight  forgotten

A run whose holder is gone is told of at once: the workflow then leaves the activity that it waits for, and begins
another. Several workers may tell of the same run. That costs a signal each, and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from temporalio.service import RPCError

from milepost.drivers.temporal.messages import Pace, Wake
from milepost.drivers.temporal.starting import drive
from milepost.errors import MilepostError

if TYPE_CHECKING:
    from temporalio.client import Client

    from milepost.stores.api import Store

log = logging.getLogger("milepost")
PATIENCE_S = 0.15
AGAIN_S = 1.0
AGAIN_MOST_S = 60.0
TOGETHER = 20
COMPLAIN_EVERY_S = 30.0


def _nothing() -> None:
    """Do nothing, before the store is open."""


@dataclass(slots=True)
class Sighting:
    """A run that can move: when it is to be told of, how often it was, and in which look it was seen last."""

    due: float
    look: int
    told: int = 0
    telling: bool = False


class Notifier:
    """Tells Temporal of runs that can move."""

    def __init__(self, client: Client, task_queue: str, pace: Pace) -> None:
        self._client = client
        self._task_queue = task_queue
        self._pace = pace
        self._seen: dict[str, Sighting] = {}
        self._look = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._some = asyncio.Semaphore(TOGETHER)
        self._complained = 0.0
        self._store: Store | None = None
        self._look_again: Callable[[], None] = _nothing

    def open(self, store: Store, look_again: Callable[[], None]) -> None:
        """Begin with a store; `look_again` has it looked at soon, which an idle worker may not do by itself."""
        self._store, self._look_again = store, look_again

    def found(self, run_id: str, owner_was: str | None) -> None:
        """Take note of a run that can move; `owner_was` held it, and is gone."""
        now = time.monotonic()
        seen = self._seen.get(run_id)
        if seen is None:
            first = now if owner_was is not None else now + PATIENCE_S * (1 + random.random())  # noqa: S311  spread
            seen = self._seen[run_id] = Sighting(first, self._look)
            asyncio.get_running_loop().call_later(first - now, self._look_again)
        seen.look = self._look
        if now < seen.due or seen.telling:
            return
        seen.due = now + min(AGAIN_MOST_S, AGAIN_S * 2**seen.told)
        seen.told += 1
        seen.telling = True
        task = asyncio.get_running_loop().create_task(self._tell(run_id, owner_was, seen))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def looked(self) -> None:
        """Forget what was not seen in the look that ended: it moves, or it moved."""
        self._seen = {run: seen for run, seen in self._seen.items() if seen.look == self._look or seen.telling}
        self._look += 1

    async def close(self) -> None:
        """Let go of what is still to be told: another worker, or the next one, sees it."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _tell(self, run_id: str, owner_was: str | None, seen: Sighting) -> None:
        try:
            async with self._some:
                assert self._store is not None
                row = await self._store.run(run_id)
                if row.owner == owner_was and (owner_was is not None or row.due is not None):
                    news = Wake(row.epoch, lost=owner_was is not None)
                    await drive(self._client, run_id, task_queue=self._task_queue, pace=self._pace, news=news)
        except (RPCError, MilepostError) as error:
            if time.monotonic() - self._complained > COMPLAIN_EVERY_S:
                self._complained = time.monotonic()
                log.warning("Temporal is not told that run %s can move, which is tried again: %s", run_id, error)
        finally:
            seen.telling = False
