"""Attached runs that nobody uses right now, and that are held for the next call of their host.

To take a run and to give it back is a commit each. A host that attaches for every single call would pay them each time,
so it may let the run *linger*: it stays held for a moment after its last call, and who attaches under its key meanwhile
goes on with it. Nothing rests on that:

  bounded     a run lingers for as long as its host said, and is given back in any case once it was held for HELD_MOST_S
  wanted      another process of this machine that waits for it says so in a mark beside the store (`stores/marks`), is
              seen within LOOK_S, and is let go first; one on another machine waits until the time is over
  fenced      who goes on with it looks first whether it still holds it, and takes what has arrived for it; a run that
              was killed or taken meanwhile is attached to anew, as if it had been given back
  settled     only a run of which nothing is open lingers: what waits, or is not known, is given back at once, to
              whoever settles it; so is one for which a message arrives
  killed      a process that dies while its runs linger is found dead as in the middle of a call
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from milepost.errors import MilepostError
from milepost.runtime import boundaries
from milepost.stores import marks

if TYPE_CHECKING:
    from milepost.runtime.attached import HostRun
    from milepost.runtime.session import Session

LOOK_S = 0.05
HELD_MOST_S = 2.0
log = logging.getLogger("milepost")


@dataclass(slots=True, eq=False)
class Kept:
    """One run that lingers: the session that holds it, until when, and the next look at who wants it."""

    run: HostRun
    session: Session
    until: float
    timer: asyncio.TimerHandle


class Lingering:
    """The runs of one process that linger, by the key that their host knows them by."""

    def __init__(self) -> None:
        self._kept: dict[str, Kept] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    def keep(self, key: str, run: HostRun, session: Session, linger_s: float) -> bool:
        """Hold a run for its next call; return False where it has to be given back now."""
        loop = asyncio.get_running_loop()
        until = min(loop.time() + linger_s, run.held_since + HELD_MOST_S)
        if until <= loop.time() or key in self._kept or marks.wanted(session.engine.store.local, run.id):
            return False
        self._kept[key] = Kept(run, session, until, loop.call_later(LOOK_S, self._look, key))
        return True

    def take(self, key: str) -> HostRun | None:
        """Return the run that lingers under a key, which from here on is the caller's to give back."""
        kept = self._kept.pop(key, None)
        if kept is None:
            return None
        kept.timer.cancel()
        return kept.run

    def leave_run(self, run_id: str) -> bool:
        """Begin to give a run back if it lingers; return whether it did."""
        for key, kept in self._kept.items():
            if kept.run.id == run_id:
                self._leave(key)
                return True
        return False

    async def leave(self) -> None:
        """Give all of them back, and wait for that."""
        for key in list(self._kept):
            self._leave(key)
        while self._leaving:
            await asyncio.wait(self._leaving)

    def _look(self, key: str) -> None:
        kept, loop = self._kept[key], asyncio.get_running_loop()
        if loop.time() >= kept.until or marks.wanted(kept.session.engine.store.local, kept.run.id):
            self._leave(key)
        else:
            kept.timer = loop.call_later(min(LOOK_S, kept.until - loop.time()), self._look, key)

    def _leave(self, key: str) -> None:
        kept = self._kept.pop(key)
        kept.timer.cancel()
        task = asyncio.get_running_loop().create_task(self._given_back(kept.session), name="milepost-leaving")
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _given_back(self, session: Session) -> None:
        try:
            await give_back(session)
        except MilepostError as error:  # it was taken, or the store failed: nobody waits for it here
            log.info("run %s was not given back: %s", session.run_id, error)


async def give_back(session: Session) -> None:
    """Give an attached run back; a worker settles what is still unknown, and ends it where somebody asked for that.

    Raises what the commit raises.
    """
    engine = session.engine
    engine.sessions.pop(session.run_id, None)
    if session.dropped is not None:
        return
    state = session.state
    moves = state.unsettled() or (state.cancel is not None and not state.ended)
    due = engine.clock.now() if moves else session.due()
    await boundaries.release(session, due)
