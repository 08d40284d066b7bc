"""A worker that drives what it is told to, for an engine that schedules: what it finds by itself it only tells of.

The engine calls `advance` for a run, once or twice, here and elsewhere, in any order: whoever holds the run's epoch
drives it, everybody else is told where it stands. Called twice in one process, both wait for the same driving.

  it can move          claimed and driven until it rests; then where it rests
  it rests             where it rests, without a claim and without a line in its record
  its queue is full    where it stands, not driven: when the limit has room again, if time alone can tell
  it is held           by a living process: its lease's end as the moment to look again
  its holder is gone   taken over

Nothing that was begun is cancelled with who asked for it: a run that is held must be driven to where it may be given
back. What else a worker does (mail for runs in memory, kills, leases, the stop file) is done here as in any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from milepost.errors import EpochLost, MilepostError, UnknownWorkflow
from milepost.runtime import driver
from milepost.runtime.worker import Worker, log
from milepost.stores import marks
from milepost.stores.fleet import LimitReached

if TYPE_CHECKING:
    from milepost.runtime.engine import Engine
    from milepost.stores.api import RunRow

ENDED = frozenset({"done", "failed", "cancelled", "killed"})
LOOK_AGAIN_MS = 5_000
AT_ONCE = 1_000


class Draining(MilepostError):
    """This worker is leaving and begins nothing new."""

    code = "draining"

    def __init__(self, worker: str) -> None:
        super().__init__(f"worker {worker} is leaving. Another one drives the run.")


@dataclass(frozen=True, slots=True)
class Resting:
    """Where a run is after an `advance`: its status, and what it waits for.

    `due` is when it can move by itself, in milliseconds since 1970, None where only news can move it; `wait_ms` the
    same as a span from now, 0 where it goes on at once. `reason` and `ask` are as `milepost show` has them; `held_by`
    names the worker that drives it elsewhere. `turned_away` says that a limit of its queue is used up: it moves when
    the limit has room, of which `due` knows what time alone makes. `ended` says that nothing is left to be done.
    """

    run: str
    status: str
    due: int | None
    wait_ms: int | None
    reason: str | None = None
    ask: str | None = None
    held_by: str | None = None
    turned_away: bool = False

    @property
    def ended(self) -> bool:
        """Whether it has an end, and no effect of it is left to be settled."""
        return self.status in ENDED and self.due is None and self.held_by is None


class Driving(Worker):
    """A worker of an engine that schedules. `found` is told of each run that can move, and who was its lost holder.

    `looked` is called after each look at the store.
    """

    def __init__(
        self,
        engine: Engine,
        found: Callable[[str, str | None], None] | None = None,
        looked: Callable[[], None] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(engine, **options)
        self._found = found
        self._looked = looked
        self.working: asyncio.Task[None] | None = None

    async def advance(self, run_id: str, *, segments: int | None = None) -> Resting:
        """Drive a run, if it can move, until it rests, ends, or `segments` boundaries were written.

        Raises UnknownRun, UnknownWorkflow for a run of other code, Draining while this worker leaves, StoreError, and
        what `driver.advance` raises: Damaged, and any defect, after which the run is blocked where that could be
        written.
        """
        driven = self.tasks.get(run_id) or await self._begin(run_id, segments)
        if driven is None:
            return await self._resting(run_id)
        await asyncio.wait([driven])  # which leaves it alone when this call is cancelled
        if driven.cancelled():
            raise Draining(self.engine.worker)
        return await self._resting(run_id, driven.result())  # or raises what it raised

    def must_let_go(self) -> bool:
        """Say whether calls of a run that was killed have to end. May be called from any thread."""
        return marks.asked_to_let_go(self.engine.store.local, self.engine.worker)

    async def _begin(self, run_id: str, segments: int | None) -> asyncio.Task[LimitReached | None] | None:
        """Start driving a run that can move, after a moment if that is near."""
        row = await self.engine.store.run(run_id)
        if row.workflow not in self.engine.known:
            raise UnknownWorkflow(row.workflow)
        if row.owner is None and row.due is not None and not self.engine.halted:
            near = row.due - self.engine.clock.now()
            if 0 < near <= self.engine.linger_ms:
                await asyncio.sleep(near / 1000 + 0.001)
        may, owner_was = await self._may_take(row)
        if run_id in self.tasks:  # begun by another call meanwhile
            return self.tasks[run_id]
        if not may:
            return None
        if self._stopping:
            raise Draining(self.engine.worker)
        driven = asyncio.get_running_loop().create_task(
            self._drive(run_id, owner_was, segments), name=f"milepost-{run_id}"
        )
        self.tasks[run_id] = driven
        driven.add_done_callback(partial(self._driven, run_id))
        return driven

    async def _may_take(self, row: RunRow) -> tuple[bool, str | None]:
        if self.engine.halted:
            return False, None
        if row.owner is None:
            return row.due is not None and row.due <= self.engine.clock.now(), None
        if row.owner == self.engine.worker:
            return row.id not in self.engine.sessions, row.owner  # ours, and nothing here drives it any more
        gone = {holder.id for holder in await self.engine.store.holders() if self.engine.gone(holder)}
        return row.owner in gone, row.owner

    async def _drive(self, run_id: str, owner_was: str | None, segments: int | None) -> LimitReached | None:
        try:
            await driver.advance(self.engine, run_id, owner_was, segments=segments)
        except EpochLost:
            pass  # somebody else has it, which is what epochs are for
        except LimitReached as error:
            if error.until is not None:
                self._idling.again(error.until)
            return error
        return None

    def _driven(self, run_id: str, task: asyncio.Task[LimitReached | None]) -> None:
        self.tasks.pop(run_id, None)
        self.engine.woken.set()
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        if self.engine.writer.failed is not None:
            self.failed = self.engine.writer.failed
        told = self.engine.why(error) if isinstance(error, MilepostError) else self.engine.traceback(error)
        log.error("run %s: %s", run_id, told)

    async def _resting(self, run_id: str, refused: LimitReached | None = None) -> Resting:
        row = await self.engine.store.run(run_id)
        now = self.engine.clock.now()
        due = row.due
        if row.owner is not None:
            leases = {holder.id: holder.lease_until for holder in await self.engine.store.holders()}
            due = max(leases.get(row.owner, 0), now + AT_ONCE)
        elif refused is not None:
            due = refused.until
        elif due is not None and self.engine.halted:
            due = max(due, now + LOOK_AGAIN_MS)
        wait = None if due is None else max(0, due - now)
        away = refused is not None and row.owner is None
        return Resting(run_id, row.status, due, wait, row.reason, row.ask, row.owner, away)

    # ------------------------------------------------------------ what a worker finds is told, not driven

    async def _look(self) -> None:
        await super()._look()
        if self._looked is not None:
            self._looked()

    def _room(self) -> int:
        return self.together

    def _start(self, run_id: str, owner_was: str | None) -> None:
        if run_id not in self.tasks and not self._stopping and self._found is not None:
            self._found(run_id, owner_was)
