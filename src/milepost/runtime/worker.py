"""Finds runs that can move and drives them, up to a number at once.

A run is taken when it is due, its turn has come, and nobody holds it; or when whoever held it is gone. Death of a
worker of this machine shows by its lock file within a moment, without waiting for a lease. When to look is decided in
`idling`: a start or a message in this process wakes the worker at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from milepost.core.state import ENDED
from milepost.errors import EpochLost, MilepostError, StoreError
from milepost.runtime import driver, ruling, waits
from milepost.runtime.idling import Idling
from milepost.runtime.scheduling import Scheduler
from milepost.runtime.watchdog import STILL_MS, Watchdog
from milepost.stores import marks
from milepost.stores.fleet import LimitReached

if TYPE_CHECKING:
    from milepost.definitions.schedules import Schedule
    from milepost.runtime.engine import Engine

log = logging.getLogger("milepost")
POLL_S = 0.1
TOGETHER = 200
GRACE_S = 10.0


class Worker:
    """Drives runs until it is drained."""

    def __init__(
        self,
        engine: Engine,
        *,
        together: int = TOGETHER,
        poll_s: float = POLL_S,
        beat: Callable[[], None] | None = None,
        schedules: Sequence[Schedule] = (),
        still_ms: int = STILL_MS,
    ) -> None:
        self.engine = engine
        self._beat = beat
        self.watchdog = Watchdog(engine, still_ms)
        self._scheduler = Scheduler(engine, schedules)
        self._idling = Idling(engine, poll_s)
        self._ahead: deque[str] = deque()  # who is due besides those for whom there was room, at the last look
        self._ahead_until = 0.0
        self.advanced = 0
        self.together = together
        self.poll_s = poll_s
        self.tasks: dict[str, asyncio.Task[LimitReached | None]] = {}
        self.failed: Exception | None = None
        self._stopping = False

    async def open(self) -> None:
        """Declare the schedules: from here on their ticks count."""
        await self._scheduler.open()

    async def run(self) -> None:
        """Look for work until `drain` is called. Raises StoreError when the store failed."""
        while not self._stopping and self.failed is None:
            try:
                await ruling.wake(self.engine)
                if await self._scheduler.tick():
                    self.engine.woken.set()
                if self._idling.is_time(self._now_s) or self.engine.family is not None:
                    await self._turn()
                await self._live()
                await self.watchdog.look()
            except StoreError as error:
                self.failed = error
                break
            await self._pause()
        if self.failed is not None:
            raise self.failed
        if self.engine.writer.failed is not None:
            raise self.engine.writer.failed

    async def _turn(self) -> None:
        await self._mail()
        await self._stopped()
        if self.engine.halted:
            self._idling.looked(self._now_s)
        else:
            await self._look()

    async def _pause(self) -> None:
        if self.engine.writer.failed is not None:
            self._stopping = True
            return
        try:
            async with asyncio.timeout(self.poll_s):
                await self.engine.woken.wait()
        except TimeoutError:
            return

    async def drain(self, grace_s: float = GRACE_S) -> None:
        """Start nothing new, let what is in flight finish for `grace_s` seconds, and give every run back."""
        self._stopping = True
        self.engine.draining = True
        self.engine.woken.set()
        for session in list(self.engine.sessions.values()):
            session.draining = True
            session.changed()
            session.check_soon()
        if self.tasks:
            await asyncio.wait(self.tasks.values(), timeout=grace_s)
        for session in list(self.engine.sessions.values()):
            session.unload()  # not a bare cancel: that would be recorded as if the segment had cancelled its calls
        for again in (False, True):
            left = [task for task in self.tasks.values() if not task.done()]
            for task in left if again else ():
                task.cancel()
            if left:
                await asyncio.wait(left, timeout=1)

    async def _mail(self) -> None:
        if not self.engine.sessions:
            return
        for run_id in await self.engine.store.with_mail(self.engine.worker):
            session = self.engine.sessions.get(run_id)
            if session is not None and session.dropped is None and not self.engine.lingering.leave_run(run_id):
                await driver.take_inbox(session)
        await self._lost()

    async def _live(self) -> None:
        """Tell a supervisor that this process goes on: its loop turns, and no commit has hung for long."""
        engine = self.engine
        if marks.asked_to_let_go(engine.store.local, engine.worker):
            await self._lost()  # the kill may be younger than the last look: what it took must be known first
            if not engine.hanging:
                marks.has_let_go(engine.store.local, engine.worker)
        if self._beat is not None and not engine.writer.stuck:
            self._beat()

    async def _stopped(self) -> None:
        """Tell runs in memory what does not stand in their way any more; the store makes all others due."""
        for session in [one for one in self.engine.sessions.values() if one.stopped and one.dropped is None]:
            await waits.look(session)

    async def _lost(self) -> None:
        """Let go of runs that were killed or taken while a call of theirs hangs and they write nothing."""
        held = {run.id for run in await self.engine.store.held_by(self.engine.worker)}
        for run_id, session in list(self.engine.sessions.items()):
            if run_id not in held and not session.released and session.dropped is None:
                row = await self.engine.store.run(run_id)
                if row.epoch != session.head.epoch:
                    session.drop(EpochLost(run_id, session.head.epoch))

    async def _look(self) -> None:
        store = self.engine.store
        if self._room() <= 0:
            self._idling.looked(self._now_s)  # a run that ends here wakes
            return
        holders = [holder for holder in await store.holders() if holder.id != self.engine.worker]
        for holder in holders:
            if self.engine.gone(holder):
                for run in await store.held_by(holder.id):
                    if run.workflow in self.engine.known and self._serves(run.queue):
                        self._start(run.id, holder.id)
        now, family, serving = self.engine.clock.now(), self.engine.family, self.engine.serving
        if family is not None:
            for run in await store.due_among(now, sorted(family)):
                self._start(run.id, None)
            return
        room = max(0, self._room())
        found = await store.due(now, self.engine.known, room + self.together, serving)
        for run in found[:room]:
            self._start(run.id, None)
        self._ahead = deque(run.id for run in found[room:])
        self._ahead_until = self._now_s + self.poll_s
        living = [holder for holder in holders if not self.engine.gone(holder)]
        following = await store.next_due(now, self.engine.known, serving)
        self._idling.looked(self._now_s, following, living, found=bool(found))

    @property
    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def _room(self) -> int:
        return self.together - len(self.tasks)

    def _serves(self, queue: str) -> bool:
        return self.engine.serving.queues is None or queue in self.engine.serving.queues

    def _start_ahead(self) -> None:
        """Start who was next at the last look: a look for each run that ends would cost as much as a short run."""
        while self._ahead and self._room() > 0 and self._now_s < self._ahead_until:
            self._start(self._ahead.popleft(), None)
        if self._room() > 0:
            self.engine.woken.set()

    def _start(self, run_id: str, owner_was: str | None) -> None:
        family = self.engine.family
        if run_id in self.tasks or self._stopping or (family is not None and run_id not in family):
            return
        if self._room() <= 0:
            return  # also what a dead worker left waits its turn, or each death would add to what is driven at once
        task = asyncio.get_running_loop().create_task(self._advance(run_id, owner_was), name=f"milepost-{run_id}")
        self.tasks[run_id] = task

    async def _advance(self, run_id: str, owner_was: str | None) -> None:
        turned_away = False
        try:
            done = await driver.advance(self.engine, run_id, owner_was)
            self.advanced += 1
            if self.engine.family is not None and done.status in ENDED and done.due is None:
                self.engine.family.discard(run_id)
        except LimitReached as error:
            turned_away = True
            if error.until is not None:
                self._idling.again(error.until)
        except EpochLost:
            pass  # somebody else has it, which is what epochs are for
        except StoreError as error:
            if self.engine.writer.failed is not None:
                self.failed = error
            log.error("run %s: %s", run_id, self.engine.why(error))  # noqa: TRY400  the text says what to do; a traceback does not
        except MilepostError as error:
            log.error("run %s: %s", run_id, self.engine.why(error))  # noqa: TRY400  the text says what to do; a traceback does not
        except Exception as error:  # noqa: BLE001  a run's defect never ends the worker
            # Not log.exception: a traceback may hold secrets, and a handler would write it as it is.
            log.error("run %s stopped by a defect\n%s", run_id, self.engine.traceback(error))  # noqa: TRY400
        finally:
            self.tasks.pop(run_id, None)
            if not turned_away:  # else it would look again, and be turned away again
                self._start_ahead()
