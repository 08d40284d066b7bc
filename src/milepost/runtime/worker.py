"""Finds runs that can move and drives them, up to a number at once.

A run is taken when it is due and nobody holds it, or when whoever held it is gone. Death of a worker of this machine
shows by its lock file at the next look, without waiting for a lease. Looking is cheap and polled; a start or a message
in this process wakes the worker at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from milepost.errors import EpochLost, MilepostError, StoreError, UnknownRun
from milepost.runtime import driver, ruling, waits
from milepost.stores import marks

if TYPE_CHECKING:
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
    ) -> None:
        self.engine = engine
        self._beat = beat
        self.together = together
        self.poll_s = poll_s
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.failed: Exception | None = None
        self._stopping = False

    async def run(self) -> None:
        """Look for work until `drain` is called. Raises StoreError when the store failed."""
        while not self._stopping and self.failed is None:
            self.engine.woken.clear()
            try:
                await ruling.wake(self.engine)
                await self._mail()
                await self._stopped()
                if not self.engine.halted:
                    await self._look()
                await self._live()
            except StoreError as error:
                self.failed = error
                break
            await self._pause()
        if self.failed is not None:
            raise self.failed
        if self.engine.writer.failed is not None:
            raise self.engine.writer.failed

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
            if session is not None and session.dropped is None:
                await driver.take_inbox(session)
        await self._lost()

    async def _live(self) -> None:
        """Tell a supervisor that this process goes on: its loop turns, and no commit has hung for long."""
        engine = self.engine
        if marks.asked_to_let_go(engine.store.place, engine.worker):
            await self._lost()  # the kill may be younger than the last look: what it took must be known first
            if not engine.hanging:
                marks.has_let_go(engine.store.place, engine.worker)
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
        if self._room() <= 0:
            return
        for holder in await self.engine.store.holders():
            if self.engine.gone(holder):
                for run in await self.engine.store.held_by(holder.id):
                    if run.workflow in self.engine.known:
                        self._start(run.id, holder.id)
        if self.engine.family is not None:
            await self._look_at_family(self.engine.family)
            return
        now = self.engine.clock.now()
        for run in await self.engine.store.due(now, self.engine.known, max(0, self._room())):
            self._start(run.id, None)

    def _room(self) -> int:
        return self.together - len(self.tasks)

    async def _look_at_family(self, family: set[str]) -> None:
        now = self.engine.clock.now()
        for run_id in sorted(family):
            try:
                row = await self.engine.store.run(run_id)
            except UnknownRun:
                continue
            if row.owner is None and row.due is not None and row.due <= now:
                self._start(run_id, None)

    def _start(self, run_id: str, owner_was: str | None) -> None:
        family = self.engine.family
        if run_id in self.tasks or self._stopping or (family is not None and run_id not in family):
            return
        if self._room() <= 0:
            return  # also what a dead worker left waits its turn, or each death would add to what is driven at once
        task = asyncio.get_running_loop().create_task(self._advance(run_id, owner_was), name=f"milepost-{run_id}")
        self.tasks[run_id] = task

    async def _advance(self, run_id: str, owner_was: str | None) -> None:
        try:
            await driver.advance(self.engine, run_id, owner_was)
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
            self.engine.woken.set()
