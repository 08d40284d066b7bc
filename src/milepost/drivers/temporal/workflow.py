"""The workflow that drives one run. It holds no state of the run: our store does, and Temporal may lose all of this.

  advance   an activity, until it says that the run has ended; one whose worker is gone is left, and another begins
  wait      for the moment that the run waits for (a timer), or for news of it (a signal), whichever is first
  cancel    asked of Temporal, it is asked of the run, which then ends by its own rules

Two activities of one run may overlap: only one of them holds the run's epoch, and the other can write nothing. So
nothing here has to be certain that a worker is dead.

A signal that arrives during an activity makes the run looked at once more, which is cheap. What a signal said before an
activity was scheduled is answered by that activity. Therefore nothing is carried over when the history begins anew.

What changes here changes what a workflow under way replays: `workflow.patched` is for that, and the histories that the
tests keep must go on to replay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import cast

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError

from milepost.drivers.temporal.messages import ADVANCE, CANCEL, UNKNOWN_RUN, WAKE, WORKFLOW, Advance, Order, Wake, Where

FAILURES = {"failed": "RunFailed", "killed": "RunKilled", "cancelled": "RunCancelled"}
LONGEST = timedelta(days=30)  # of one activity; whether its worker lives is told by its heartbeat
AGAIN = RetryPolicy(
    initial_interval=timedelta(milliseconds=100),
    maximum_interval=timedelta(seconds=10),
    non_retryable_error_types=[UNKNOWN_RUN],
)


def _heard(activity: asyncio.Task[Where]) -> None:
    """Take note of an end that nobody waits for, so that it is not logged as forgotten."""
    if not activity.cancelled():
        activity.exception()


@workflow.defn(name=WORKFLOW)
class DriveRun:
    """Drives one run of a Milepost store to its end."""

    def __init__(self) -> None:
        self._woken = self._told = False
        self._lost = self._left = -1

    @workflow.signal(name=WAKE)
    def wake(self, news: Wake) -> None:
        """Take note that the run can move."""
        self._woken = True
        if news.lost:
            self._lost = max(self._lost, news.epoch)

    @workflow.run
    async def run(self, order: Order) -> str:
        """Drive the run; return its status where it is done, fail where it ended otherwise."""
        for _ in range(order.pace.rounds):
            self._woken = False
            where = await self._advance(order)
            if where.ended:
                return self._end(order.run, where.status)
            if where.wait_ms != 0:
                seconds = order.pace.again_s if where.wait_ms is None else where.wait_ms / 1000
                await self._until(lambda: self._woken or self._to_tell, seconds)
            await self._tell(order)
            if workflow.info().is_continue_as_new_suggested():
                break
        return workflow.continue_as_new(order)

    async def _advance(self, order: Order) -> Where:
        while True:
            self._left = self._lost
            activity = workflow.start_activity(
                ADVANCE,
                Advance(order.run, order.pace.segments),
                result_type=Where,
                start_to_close_timeout=LONGEST,
                heartbeat_timeout=timedelta(seconds=order.pace.heartbeat_s),
                retry_policy=AGAIN,
            )
            while not activity.done() and self._lost <= self._left:
                await self._until(partial(self._moved, activity))
                await self._tell(order)
            if activity.done():
                return cast("Where", await activity)
            activity.add_done_callback(_heard)
            activity.cancel()  # its worker is gone; should it answer all the same, nobody listens

    def _moved(self, activity: workflow.ActivityHandle[Where]) -> bool:
        return activity.done() or self._lost > self._left or self._to_tell

    async def _until(self, condition: Callable[[], bool], seconds: float | None = None) -> None:
        """Wait for a condition, for so long, or until Temporal is asked to cancel the workflow."""
        try:
            await workflow.wait_condition(condition, timeout=seconds)
        except TimeoutError:
            return
        except asyncio.CancelledError:
            if not self._cancelled:
                raise  # the worker drops this workflow from its memory

    @property
    def _cancelled(self) -> bool:
        return workflow.cancellation_reason() is not None

    @property
    def _to_tell(self) -> bool:
        return self._cancelled and not self._told

    async def _tell(self, order: Order) -> None:
        """Ask the run to cancel itself, once Temporal was asked to."""
        if not self._to_tell:
            return
        self._told = True
        telling = workflow.start_activity(
            CANCEL, order.run, start_to_close_timeout=timedelta(minutes=1), retry_policy=AGAIN
        )
        while not telling.done():
            await self._until(telling.done)
        await telling

    def _end(self, run: str, status: str) -> str:
        if status == "cancelled" and self._cancelled:
            raise asyncio.CancelledError
        if status in FAILURES:
            raise ApplicationError(f"run {run} is {status}: milepost show {run}", type=FAILURES[status])
        return status
