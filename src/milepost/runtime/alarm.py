"""What wakes the calls of a run that wait for a moment while another of its branches is busy.

A run of which nothing moves is unloaded, or lingers until what comes first is due: that is decided where it rests. But
a branch that awaits a long call, or something that is no step, keeps the run in memory, and its other arms rest
without anybody who looks at the clock: a sleep, a retry, a time limit. This does, as long as something is busy.

Looking means to go through all recorded steps. So arms that come to rest in a row are looked at once, a moment later;
and where a look changes nothing that is due, the next one takes its time.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from milepost.runtime.session import Session

SOON_S = 0.05
LATER_S = 1.0  # the clock may be another one than the loop's, or be set: never trust a timer for longer


class Alarm:
    """One for each held run."""

    __slots__ = ("_rung", "_session", "_soon", "_timer")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._timer: asyncio.TimerHandle | None = None
        self._soon = False
        self._rung = float("-inf")

    def look_soon(self) -> None:
        """Look what is due first, once whoever comes to rest now has done so."""
        if not self._soon:
            self._soon = True
            self._again(SOON_S)

    def stop(self) -> None:
        """Look no more."""
        self._soon = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _again(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer, self._soon = None, False
        session = self._session
        if session.busy <= 0 or not session.waits or session.unloading or session.dropped is not None:
            return  # it rests, or it ends: both look for themselves
        moves, loop = session.moves(), asyncio.get_running_loop()
        if moves is None:
            return
        left = (moves - session.engine.clock.now()) / 1000
        if left > 0:
            self._again(min(left + 0.001, LATER_S))
            return
        pause = self._rung + LATER_S - loop.time()
        if session.settlers and pause > 0:
            self._again(pause)  # what is due is being settled: to wake everybody for it again would change nothing
            return
        self._rung = loop.time()
        session.changed()
