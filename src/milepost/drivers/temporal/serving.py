"""A worker: the activities that drive runs, the workflow beside them, and the notifier.

What fails in an activity fails by the error's code alone. A text may hold some of a user's data, and Temporal's history
is no place for that; it stands in our journal and in this process's log.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError
from temporalio.worker import Interceptor, Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from milepost.core.duration import parse_ms
from milepost.drivers.temporal.clock import ServerClock
from milepost.drivers.temporal.messages import (
    ADVANCE,
    CANCEL,
    TASK_QUEUE,
    UNKNOWN_RUN,
    WAKE,
    Advance,
    Pace,
    Wake,
    Where,
)
from milepost.drivers.temporal.starting import workflow_id
from milepost.drivers.temporal.waking import Notifier
from milepost.drivers.temporal.watchdog import Watchdog
from milepost.drivers.temporal.workflow import DriveRun
from milepost.errors import MilepostError, UnknownRun, WrongStatus
from milepost.runtime.driving import Draining

if TYPE_CHECKING:
    from temporalio.client import Client

    from milepost.app import App
    from milepost.core.duration import Duration
    from milepost.runtime.driving import Driving

TOGETHER = 100
BEATS = 5  # so many in the time after which a worker is taken for dead
LEAVE_S = 5.0
STICKY = timedelta(seconds=1)  # how long a workflow waits for a worker that may be dead, before another replays it
ELSEWHERE = timedelta(milliseconds=100)
WHY = "cancelled through Temporal"


class Activities:
    """What Temporal asks of a worker."""

    def __init__(self, app: App, driving: Driving, client: Client) -> None:
        self._app = app
        self._driving = driving
        self._client = client

    @activity.defn(name=ADVANCE)
    async def advance(self, order: Advance) -> Where:
        """Drive a run until it rests, and say where it is."""
        clock = self._driving.engine.clock
        if isinstance(clock, ServerClock):
            clock.tell(activity.info().current_attempt_scheduled_time)
        beating = asyncio.get_running_loop().create_task(_beat())
        try:
            resting = await self._driving.advance(order.run, segments=order.segments)
        except Exception as error:  # noqa: BLE001  whatever it is, only its code may go to the history
            raise _told(order.run, error) from None
        finally:
            beating.cancel()
        if resting.ended and _may_be_given_up():
            await self._end_was_seen(order.run)
        # For its turn a run waits until it is told of: where a limit has room for one, others would try in vain.
        wait_ms = None if resting.turned_away else resting.wait_ms
        return Where(resting.status, resting.reason or "", wait_ms, resting.ended)

    async def _end_was_seen(self, run: str) -> None:
        """Have the workflow look once more, should nobody hear the answer of this activity. One that is gone knows."""
        with contextlib.suppress(RPCError):
            await self._client.get_workflow_handle(workflow_id(run)).signal(WAKE, Wake())

    @activity.defn(name=CANCEL)
    async def cancel(self, run: str) -> None:
        """Cancel a run; one that has ended stays as it ended."""
        try:
            await self._app.cancel(run, why=WHY)
        except WrongStatus:
            return
        except Exception as error:  # noqa: BLE001  the same
            raise _told(run, error) from None


def _may_be_given_up() -> bool:
    """Say whether Temporal may have given up this activity: its worker may have stood still before it got to it.

    A run that ends is never due again, so its workflow would hear of the end only when it looks by itself.
    """
    info = activity.info()
    beat = info.heartbeat_timeout
    return beat is not None and datetime.now(UTC) - info.started_time > beat


async def _beat() -> None:
    every = (activity.info().heartbeat_timeout or timedelta(seconds=BEATS)).total_seconds() / BEATS
    while True:
        activity.heartbeat()
        await asyncio.sleep(every)


def _told(run: str, error: Exception) -> ApplicationError:
    kind = UNKNOWN_RUN if isinstance(error, UnknownRun) else type(error).__name__
    code = error.code if isinstance(error, MilepostError) else "defect"
    delay = ELSEWHERE if isinstance(error, Draining) else None
    return ApplicationError(f"run {run}: {code}", type=kind, next_retry_delay=delay)


@contextlib.asynccontextmanager
async def driving(
    app: App,
    client: Client,
    *,
    task_queue: str = TASK_QUEUE,
    together: int = TOGETHER,
    grace: Duration = "10s",
    pace: Pace | None = None,
    watchdog: Watchdog | None = None,
    interceptors: Sequence[Interceptor] = (),
) -> AsyncIterator[asyncio.Future[Any]]:
    """Open the app and serve while the block runs, up to `together` runs at once.

    The future that it gives is done when serving ended by itself, and raises why: StoreFailed, or an error of
    Temporal's. `pace` is for workflows that are started from here; `watchdog` ends this process should it hang;
    `interceptors` are Temporal's own.
    """
    pace = pace or Pace()
    notifier = Notifier(client, task_queue, pace)
    async with app.driven(
        notifier.found, looked=notifier.looked, grace=grace, beat=None if watchdog is None else watchdog.beat
    ) as driven:
        notifier.open(driven.engine.store, driven.engine.woken.set)
        activities = Activities(app, driven, client)
        worker = Worker(
            client,
            task_queue=task_queue,
            workflows=[DriveRun],
            activities=[activities.advance, activities.cancel],
            workflow_runner=SandboxedWorkflowRunner(
                restrictions=SandboxRestrictions.default.with_passthrough_modules("milepost")
            ),
            max_concurrent_activities=together,
            sticky_queue_schedule_to_start_timeout=STICKY,
            max_heartbeat_throttle_interval=timedelta(seconds=pace.heartbeat_s / BEATS),
            graceful_shutdown_timeout=timedelta(milliseconds=parse_ms(grace)) + timedelta(seconds=LEAVE_S),
            interceptors=interceptors,
        )
        loop = asyncio.get_running_loop()
        serving = loop.create_task(worker.run(), name="milepost-temporal")
        assert driven.working is not None
        ended = loop.create_task(_first(serving, driven.working))
        if watchdog is not None:
            watchdog.start(driven.must_let_go)
        try:
            yield ended
        finally:
            if watchdog is not None:
                watchdog.stop()
            ended.cancel()
            leaving = loop.create_task(worker.shutdown()) if not serving.done() else None
            await driven.drain(parse_ms(grace) / 1000)  # what is driven is given back, and its activities say so
            if leaving is not None:
                await leaving
            await asyncio.wait([serving])
            if not serving.cancelled():
                serving.exception()
            await notifier.close()


async def _first(*tasks: asyncio.Task[None]) -> None:
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()


async def serve(
    app: App,
    client: Client,
    *,
    stop: asyncio.Event | None = None,
    task_queue: str = TASK_QUEUE,
    together: int = TOGETHER,
    grace: Duration = "10s",
    frozen: Duration = "60s",
    pace: Pace | None = None,
) -> None:
    """Serve until `stop` is set, or without one until SIGTERM or SIGINT; then give every run back.

    The process is killed should its event loop hang for as long as `frozen`, or should a call of a run that was killed
    not let go within `grace`. Raises StoreFailed, and errors of Temporal's:
    end the process then, and start another.
    """
    watchdog = Watchdog(frozen_s=parse_ms(frozen) / 1000, grace_s=parse_ms(grace) / 1000)
    options: dict[str, Any] = {"task_queue": task_queue, "together": together, "grace": grace, "pace": pace}
    async with driving(app, client, watchdog=watchdog, **options) as ended:
        stopping = asyncio.get_running_loop().create_task((stop or _signalled()).wait())
        try:
            await asyncio.wait([ended, stopping], return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                ended.result()
        finally:
            stopping.cancel()


def _signalled() -> asyncio.Event:
    """Return an event that SIGTERM and SIGINT set, where signals are to be had."""
    stop = asyncio.Event()
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop
