"""Starts what is scheduled: each tick once, whoever of the fleet comes first.

A worker declares the schedules of its App when it opens, and keeps in memory when the next tick is; looking at it costs
no query. A tick is one operation of the store: the schedule moves on from the moment that this worker saw, and the runs
are created, or neither. Who comes second is told so, reads the row, and waits for the next tick. The run's key names
schedule and moment, so even a schedule that was set back starts nothing twice.

A schedule that was declared otherwise since, by a newer deploy, is left to who declared it so.
"""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING

from milepost.core.budget import amounts
from milepost.core.schedules import ticks_of
from milepost.errors import StoreError
from milepost.runtime import starting
from milepost.stores.fleet import Declare, ScheduleRow, Tick

if TYPE_CHECKING:
    from collections.abc import Sequence

    from milepost.definitions.schedules import Schedule
    from milepost.runtime.engine import Engine
    from milepost.stores.api import NewRun

log = logging.getLogger("milepost")
AGAIN_MS = 60_000  # after a tick whose runs could not be made


class Scheduler:
    """The schedules of one worker."""

    def __init__(self, engine: Engine, schedules: Sequence[Schedule]) -> None:
        self._engine = engine
        self._schedules = {schedule.name: schedule for schedule in schedules}
        self._waits_for: dict[str, int] = {}
        self._look_at: dict[str, int] = {}

    async def open(self) -> None:
        """Declare the schedules."""
        for schedule in self._schedules.values():
            now = self._engine.clock.now()
            wanted = Declare(schedule.name, schedule.workflow.name, schedule.spec, schedule.cron.after(now), now)
            self._wait(schedule, await self._engine.writer.durable(wanted))

    async def tick(self) -> bool:
        """Start what is due; say whether anything was."""
        now, ticked = self._engine.clock.now(), False
        for name, at in list(self._look_at.items()):
            if at <= now:
                ticked = await self._tick(self._schedules[name], self._waits_for[name], now) or ticked
        return ticked

    async def _tick(self, schedule: Schedule, next_at: int, now: int) -> bool:
        cron = schedule.cron
        ticks, following = ticks_of(next_at, now, schedule.catch_up, cron.after, cron.latest)
        try:
            runs = [self._run(schedule, tick) for tick in ticks]
            started = await self._engine.writer.durable(Tick(schedule.name, schedule.spec, next_at, following, runs))
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001  the input is made by code of the user, and a pruned run's key is taken
            why = self._engine.why(error)
            log.error("schedule %s: its runs of %s cannot be started: %s", schedule.name, ticks, why)  # noqa: TRY400
            self._look_at[schedule.name] = now + AGAIN_MS
            return False
        if started is None:
            rows = {row.name: row for row in await self._engine.store.schedules()}
            self._wait(schedule, rows.get(schedule.name))
            return False
        self._wait(schedule, ScheduleRow(schedule.name, schedule.workflow.name, schedule.spec, following))
        return bool(started)

    def _wait(self, schedule: Schedule, row: ScheduleRow | None) -> None:
        self._waits_for.pop(schedule.name, None)
        self._look_at.pop(schedule.name, None)
        if row is None or row.spec != schedule.spec:
            log.warning("schedule %s was declared otherwise since: this worker leaves it alone", schedule.name)
        elif row.next_at is not None:
            self._waits_for[schedule.name] = self._look_at[schedule.name] = row.next_at

    def _run(self, schedule: Schedule, tick: int) -> NewRun:
        workflow, engine = schedule.workflow, self._engine
        return starting.new_run(
            engine,
            workflow,
            workflow.input.write(schedule.given(engine.moment(tick))),
            run_id=uuid.uuid4().hex[:20],
            key=schedule.key_of(tick),
            authority=schedule.authority.granted(engine.clock.now()),
            budget=amounts(schedule.budget),
            tags=schedule.tags,
            place=schedule.place,
        )
