"""Whose turn it is, and what is scheduled, as one transaction sees and changes it. The rules are in core/queues.py."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import msgspec

from milepost.core.queues import EVERYTHING, Limit, Serving, Turns, Used, fills, free_at
from milepost.core.state import ENDED
from milepost.stores.fleet import Declare, DueRun, LimitReached, QueueRow, ScheduleRow, StillRun, Tick, WorkerRow

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from milepost.stores.api import Claim, Post
    from milepost.stores.statements import Statements
    from milepost.stores.writing import Batch

EVERY = 2**31 - 1


# ---------------------------------------------------------------- whose turn it is


def due(
    sql: Statements,
    now: int,
    workflows: Sequence[str],
    most: int,
    serving: Serving,
    apart: tuple[str, bool] | None = None,
) -> list[DueRun]:
    """Return up to `most` runs that may be claimed now, in the order of their turns.

    `apart` is for a store where several workers want the same runs at once: who asks, and whether he leaves the others
    their share. Who counts by limits looks at all that is due, in order.
    """
    asked = (now, _names(workflows), _names(serving.queues))
    if not serving.limits:
        if apart is not None:
            return [due_run(row) for row in sql.run("due_apart", *asked, most, *apart)]
        return [due_run(row) for row in sql.run("due_runs", *asked, most)]
    turns = Turns(serving.limits, lambda limit: used(sql, limit, now))
    chosen: list[DueRun] = []
    with sql.instant():  # who is due, and who is held
        chosen += turns.choose(map(due_run, sql.run("due_runs", *asked, EVERY)), most)
    return chosen


def next_due(sql: Statements, now: int, workflows: Sequence[str], serving: Serving) -> int | None:
    """Return when time alone makes the next run claimable: it falls due, or a limit has room for another start."""
    rows = sql.run("next_due", now, _names(workflows), _names(serving.queues))
    moments: list[int | None] = [at for (at,) in rows]
    for limit in serving.limits:
        if limit.starts is not None and (serving.queues is None or limit.queue in serving.queues):
            found = used(sql, limit, now)
            every = found.values() if limit.each_group else [_all(found)]
            moments += [free_at(limit, one) for one in every]
    return min((at for at in moments if at is not None and at > now), default=None)


def due_run(row: Any) -> DueRun:
    """Return a row of `due_runs`."""
    run, id_, workflow, attached, status, owner, queue, group, began = row
    return DueRun(run, id_, workflow, bool(attached), status, owner, queue, group, began, status in ENDED)


def admit(sql: Statements, claim: Claim, run: int, status: str) -> None:
    """Raise LimitReached where a claim has to wait for its turn."""
    if not claim.limits or claim.owner_was is not None or status in ENDED:
        return
    sql.do("lock_turns")
    queue, group, began = sql.run("place_of", run)[0]
    for limit in claim.limits:
        if limit.governs(queue, group):
            now = _all(used(sql, limit, claim.at, group if limit.each_group else None))
            if fills(limit, now, began):
                raise LimitReached(claim.run_id, queue, group if limit.each_group else None, free_at(limit, now))


def used(sql: Statements, limit: Limit, now: int, group: str | None = None) -> dict[str | None, Used]:
    """Return what is used of a limit by group: of every one, or of the one that is given."""
    found: dict[str | None, Used] = {}
    for grp, held, recent, oldest in _counted(sql, limit, now, group):
        found[grp] = found.get(grp, Used()).plus(Used(held, recent, oldest))
    return found


def _counted(sql: Statements, limit: Limit, now: int, group: str | None) -> Iterator[Any]:
    only = () if group is None else (group,)
    of = "" if group is None else "_group"
    if limit.together is not None and limit.begun:
        yield from sql.run(f"begun_in{of}", limit.queue, *only)
    elif limit.together is not None:
        yield from sql.run("held_in", limit.queue, group)
    if limit.starts is not None:
        yield from sql.run(f"recent_in{of}", now - limit.per_ms, limit.queue, *only)


def _all(found: dict[str | None, Used]) -> Used:
    whole = Used()
    for one in found.values():
        whole = whole.plus(one)
    return whole


def _names(names: Sequence[str] | None) -> str | None:
    return None if names is None else msgspec.json.encode(list(names)).decode()


# ---------------------------------------------------------------- messages


def wake(sql: Statements, run: int, post: Post) -> None:
    """Make a run due for a message: at once, unless it is patient and others of its children are still to end."""
    if not post.patient or not sql.changed("wake_patiently", post.at, run):
        sql.do("wake_run", post.at, run)


# ---------------------------------------------------------------- schedules


def declare(sql: Statements, given: Declare) -> ScheduleRow:
    """Write how a schedule is declared, if that is not how it stands."""
    sql.do("declare_schedule", given.name, given.workflow, given.spec, given.next_at)
    return ScheduleRow(*sql.run("schedule", given.name)[0])


def tick(batch: Batch, given: Tick) -> list[str] | None:
    """Start the runs of ticks, unless somebody else has. Raises what a start raises: then nothing is done."""
    started = given.runs[-1].id if given.runs else None
    if not batch.sql.changed("tick_schedule", given.name, given.spec, given.was, given.next_at, started):
        return None
    return [batch.create(run).id for run in given.runs]


# ---------------------------------------------------------------- looking


class FleetReading(ABC):
    """Answers about a fleet. Each method is the one of `stores.fleet.FleetReads` with its name."""

    __slots__ = ()

    _sql: Statements

    @abstractmethod
    def number(self, run_id: str) -> int:
        """Return the number of a run. Raises UnknownRun."""

    def due(self, now: int, workflows: Sequence[str], limit: int, serving: Serving = EVERYTHING) -> list[DueRun]:
        """Return runs that nobody holds and that may be claimed now, in the order of their turns."""
        return due(self._sql, now, workflows, limit, serving)

    def next_due(self, now: int, workflows: Sequence[str], serving: Serving = EVERYTHING) -> int | None:
        """Return when time alone makes the next run claimable."""
        return next_due(self._sql, now, workflows, serving)

    def due_among(self, now: int, run_ids: Sequence[str]) -> list[DueRun]:
        """Return those of these runs that nobody holds and that are due."""
        return [due_run(row) for row in self._sql.run("due_among", now, _names(run_ids))]

    def held_by(self, owner: str) -> list[DueRun]:
        """Return the runs that an owner holds."""
        return [due_run(row) for row in self._sql.run("runs_of_owner", owner)]

    def holders(self) -> list[WorkerRow]:
        """Return the workers that hold runs, alive or not."""
        rows = self._sql.run("holders")
        return [WorkerRow(id_, host, pid, 0, until, ended) for id_, host, pid, until, ended in rows]

    def workers(self) -> list[WorkerRow]:
        """Return every worker that was ever enlisted."""
        return [WorkerRow(*row) for row in self._sql.run("workers")]

    def children(self, run_id: str, most: int, *, live: bool = False) -> list[tuple[str, str]]:
        """Return up to `most` children of a run as (id, status), the oldest first. Raises UnknownRun."""
        with self._sql.instant():
            found = self._sql.run("live_children" if live else "children", self.number(run_id), most)
        return [(str(id_), str(status)) for id_, status in found]

    def queues(self, now: int) -> list[QueueRow]:
        """Return every queue in which a run waits or is held, by name."""
        return [QueueRow(*row) for row in self._sql.run("queues", now)]

    def still(self, before: int) -> list[StillRun]:
        """Return up to 100 runs that are held and to which nothing was written since before a moment."""
        return [StillRun(*row) for row in self._sql.run("still", before)]

    def schedules(self) -> list[ScheduleRow]:
        """Return every schedule, by name."""
        return [ScheduleRow(*row) for row in self._sql.run("schedules")]
