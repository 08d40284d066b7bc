"""What a fleet of workers asks of a store: who they are, whose turn it is, what is scheduled, what sits still.

The rows and operations of these verbs, beside those of `api`. Moments are milliseconds since 1970. The rules of queues
are in core/queues.py, those of schedules in core/schedules.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from milepost.core.queues import EVERYTHING, Serving
from milepost.errors import MilepostError

if TYPE_CHECKING:
    from milepost.stores.api import NewRun


@dataclass(slots=True)
class WorkerRow:
    """A process that drives runs."""

    id: str
    host: str
    pid: int
    started_at: int
    lease_until: int
    ended_at: int | None = None


@dataclass(slots=True)
class Enlist:
    """Write a worker's row."""

    worker: WorkerRow


@dataclass(slots=True)
class DueRun:
    """A run that may be claimed. `began` is when it was claimed first."""

    run: int
    id: str
    workflow: str
    attached: bool
    status: str
    owner: str | None
    queue: str = ""
    group: str | None = None
    began: int | None = None
    ended: bool = False


class LimitReached(MilepostError):
    """A claim has to wait for its turn: a limit of its queue, or of its group there, is used up.

    `until` is when there is room again as far as time alone makes it (milliseconds since 1970).
    """

    code = "limit_reached"

    def __init__(self, run_id: str, queue: str, group: str | None, until: int | None) -> None:
        whose = f"queue {queue!r}" if group is None else f"group {group!r} of queue {queue!r}"
        super().__init__(f"run {run_id} waits for its turn: a limit of {whose} is used up")
        self.run_id = run_id
        self.queue = queue
        self.group = group
        self.until = until


@dataclass(slots=True)
class QueueRow:
    """A queue as people see it: runs that wait for their turn, since when the first of them, and runs that are held."""

    queue: str
    waiting: int
    first_due: int | None
    held: int


@dataclass(slots=True)
class StillRun:
    """A run that a worker holds and to which nothing was written since `moved_at`."""

    id: str
    workflow: str
    segment: str | None
    owner: str
    moved_at: int


@dataclass(slots=True)
class ScheduleRow:
    """A schedule. `spec` is how it was declared last (JSON), `next_at` its next tick, `last_at` the last one.

    `last_run` is the run that the last tick started.
    """

    name: str
    workflow: str
    spec: str
    next_at: int | None
    last_at: int | None = None
    last_run: str | None = None


@dataclass(slots=True)
class Declare:
    """Declare a schedule: the declaration that came last stands. Answered with its ScheduleRow.

    One whose `spec` is the same keeps the tick that it waits for; one that is new or changed waits for `next_at`.
    """

    name: str
    workflow: str
    spec: str
    next_at: int | None
    at: int


@dataclass(slots=True)
class Tick:
    """Start the runs of ticks that are due and wait for the next one, in one transaction.

    Nothing is done, and None answered, unless the schedule still has this `spec` and still waits for `was`: somebody
    else was first, or declared it otherwise. Answered with the run ids, of which a key may name earlier runs.
    """

    name: str
    spec: str
    was: int
    next_at: int | None
    runs: Sequence[NewRun] = field(default_factory=tuple)


class FleetReads(Protocol):
    """The verbs of a fleet that read."""

    async def due(self, now: int, workflows: Sequence[str], limit: int, serving: Serving = EVERYTHING) -> list[DueRun]:
        """Return runs that nobody holds and that may be claimed now, in the order of their turns."""
        ...

    async def next_due(self, now: int, workflows: Sequence[str], serving: Serving = EVERYTHING) -> int | None:
        """Return the moment after `now` at which time alone makes a run claimable, None where only an event can."""
        ...

    async def due_among(self, now: int, run_ids: Sequence[str]) -> list[DueRun]:
        """Return those of these runs that nobody holds and that are due."""
        ...

    def changed(self) -> bool:
        """Say whether anybody may have written since this was asked last: a hint that costs next to nothing.

        A worker that is told nothing still looks by itself, at growing intervals of up to some seconds. So a store that
        cannot know answers False.
        """
        ...

    async def held_by(self, owner: str) -> list[DueRun]:
        """Return the runs that an owner holds."""
        ...

    async def holders(self) -> list[WorkerRow]:
        """Return the workers that hold runs, alive or not."""
        ...

    async def workers(self) -> list[WorkerRow]:
        """Return every worker that was ever enlisted."""
        ...

    async def children(self, run_id: str, most: int, *, live: bool = False) -> list[tuple[str, str]]:
        """Return up to `most` children of a run as (id, status), the oldest first.

        If `live`, those alone that have not ended. Raises UnknownRun.
        """
        ...

    async def queues(self, now: int) -> list[QueueRow]:
        """Return every queue in which a run waits or is held, by name."""
        ...

    async def still(self, before: int) -> list[StillRun]:
        """Return up to 100 runs that are held and to which nothing was written since before a moment."""
        ...

    async def schedules(self) -> list[ScheduleRow]:
        """Return every schedule, by name."""
        ...
