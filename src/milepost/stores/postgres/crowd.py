"""Workers that want the same runs: all see the same that are due, and of those who ask for one all but one come second.

So each run that is due belongs to the share of one of the workers that are at work, by its number. Who looks takes what
is his first, in the order of turns, and few of the others': his neighbours' behind his own, and the very first run of
all, whosesoever it is. Every other look leaves them theirs, unless none is his; then he takes half of it, from the end
that they come to last. So the share of a worker that has no room, stands still or is dead already waits for a look, not
for its owner. Priorities stand above all that, and nothing but the next so-many runs is looked at. To a worker that is
alone all is his own: that is the order of turns.

A share may be that of a worker that does not serve the queue, and what comes in with a higher priority may be left to
others at every look. So a run that has been due for five seconds is everybody's own, and is not passed over for what is
left to others: in time it has its turn wherever there is room, by its priority and its moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from milepost.stores.fleet import Enlist

if TYPE_CHECKING:
    from collections.abc import Sequence

    from milepost.stores.api import Operation


class Apart(NamedTuple):
    """How a worker looks for runs beside others: as whom, and whether he leaves them what is theirs."""

    worker: str
    leaves: bool


class Crowd:
    """What a process knows of looking beside others."""

    def __init__(self) -> None:
        self._worker: str | None = None
        self._leaves = False

    def learn(self, operations: Sequence[Operation]) -> None:
        """Take in what was written, from which shows who this process is."""
        for one in operations:
            if type(one) is Enlist:
                self._worker = one.worker.id

    def apart(self) -> Apart | None:
        """Return how to look now; None for the order of turns, where this process drives nothing."""
        if self._worker is None:
            return None
        self._leaves = not self._leaves
        return Apart(self._worker, self._leaves)
