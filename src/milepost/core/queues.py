"""Whose turn it is: queues, priorities, and how many of a queue, or of each of its groups, may go at once.

A run stands in one queue, with a priority, and may be of one group of that queue (a customer, a tenant, an account at a
provider). Of the runs that are due the highest priority goes first, and among equals the one that was due first.

A limit says how many may go. What it counts are rows, looked at in the transaction that takes a run; nothing is counted
up and down, so nothing can be forgotten to be counted down:

  together         runs that a worker holds. One that waits for time, a person or a signal is held by nobody
  together, begun  runs that were taken once and have not ended, whatever they wait for
  starts, per      runs that were taken for the first time within the last `per`

A run keeps the turn that it has: who takes it over from a worker that is gone is not asked again, and what has ended
and is only settled needs no turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import msgspec

DEFAULT = "default"
PRIORITY_MOST = 1_000


class Place(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a run stands: its queue, its group there, its priority, and before when it does not begin."""

    queue: str = DEFAULT
    priority: int = 0
    group: str | None = None
    begins_at: int | None = None


SOMEWHERE = Place()


@dataclass(frozen=True, slots=True)
class Limit:
    """How many runs of a queue, or of each of its groups, may go at once, and how many may begin within `per_ms`."""

    queue: str
    each_group: bool = False
    together: int | None = None
    begun: bool = False
    starts: int | None = None
    per_ms: int = 0

    def governs(self, queue: str, group: str | None) -> bool:
        """Say whether a run that stands there counts; what is of no group is no group's."""
        return queue == self.queue and (group is not None or not self.each_group)


@dataclass(frozen=True, slots=True)
class Serving:
    """What a worker takes runs from: these queues (None: all of them), under these limits."""

    queues: tuple[str, ...] | None = None
    limits: tuple[Limit, ...] = ()


EVERYTHING = Serving()


@dataclass(slots=True)
class Used:
    """What is used of a limit: by runs that are held (or begun, where it counts those) and by `recent` starts.

    `oldest` is when the first of those starts was, in milliseconds since 1970.
    """

    held: int = 0
    recent: int = 0
    oldest: int | None = None

    def plus(self, other: Used) -> Used:
        """Return both together."""
        moments = [at for at in (self.oldest, other.oldest) if at is not None]
        return Used(self.held + other.held, self.recent + other.recent, min(moments, default=None))


class Candidate(Protocol):
    """A run that is due, as a store has it. `began` is when it was first taken; of one that `ended` little is left."""

    queue: str
    group: str | None
    began: int | None
    ended: bool


Run = TypeVar("Run", bound=Candidate)


def fills(limit: Limit, used: Used, began: int | None) -> bool:
    """Say whether a limit is used up for a run that was first taken at `began` (None: never)."""
    if limit.together is not None and used.held >= limit.together and (began is None or not limit.begun):
        return True
    return limit.starts is not None and began is None and used.recent >= limit.starts


def free_at(limit: Limit, used: Used) -> int | None:
    """Return when another run may begin, as far as time alone makes room; None where a run has to end or to rest."""
    if limit.starts is None or used.recent < limit.starts or used.oldest is None:
        return None
    return used.oldest + limit.per_ms


@dataclass(slots=True)
class Turns:
    """Chooses who goes next among those who are due. `used` says by limit and group what is used already."""

    limits: Sequence[Limit]
    used: Callable[[Limit], dict[str | None, Used]]
    _seen: dict[int, dict[str | None, Used]] = field(default_factory=dict)

    def choose(self, due: Iterable[Run], most: int) -> list[Run]:
        """Return the first `most` who may go, given in the order of their turns."""
        chosen: list[Run] = []
        for run in due:
            if len(chosen) >= most:
                break
            if self._may_go(run):
                chosen.append(run)
        return chosen

    def _may_go(self, run: Candidate) -> bool:
        if run.ended:
            return True
        theirs = [self._of(number, limit, run.group) for number, limit in self._governing(run)]
        if any(fills(self.limits[number], used, run.began) for number, used in theirs):
            return False
        for number, used in theirs:
            used.held += run.began is None or not self.limits[number].begun
            used.recent += run.began is None
        return True

    def _governing(self, run: Candidate) -> list[tuple[int, Limit]]:
        return [(n, limit) for n, limit in enumerate(self.limits) if limit.governs(run.queue, run.group)]

    def _of(self, number: int, limit: Limit, group: str | None) -> tuple[int, Used]:
        if number not in self._seen:
            found = self.used(limit)
            if not limit.each_group:
                whole = Used()
                for used in found.values():
                    whole = whole.plus(used)
                found = {None: whole}
            self._seen[number] = found
        return number, self._seen[number].setdefault(group if limit.each_group else None, Used())
