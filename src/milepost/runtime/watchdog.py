"""Notices runs that sit still: held by a worker that lives, and not written to for long.

Nothing is done about them but to say so, in the log, in metrics and in `milepost doctor`: who holds a run knows why,
and taking it away would only make what is in flight unknown. A call that is still within its timeout is no standstill;
what is left is code that neither calls nor returns, a thread that nobody could end, or a timeout that is far too long.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from milepost.core.duration import from_ms

if TYPE_CHECKING:
    from milepost.runtime.engine import Engine
    from milepost.runtime.session import Session
    from milepost.stores.fleet import StillRun

log = logging.getLogger("milepost")
STILL_MS = 900_000
LOOKS = 4  # within the time that counts as long


class Watchdog:
    """Looks at the runs of one worker now and then."""

    def __init__(self, engine: Engine, still_ms: int = STILL_MS) -> None:
        self._engine = engine
        self._still_ms = still_ms
        self._look_at = 0
        self._told: dict[str, int] = {}
        self.still: list[StillRun] = []

    async def look(self) -> None:
        """Look, if it is time to, and log each standstill once."""
        engine = self._engine
        now = engine.clock.now()
        if not engine.sessions:
            self.still, self._told = [], {}
            return
        if now < self._look_at:
            return
        self._look_at = now + self._still_ms // LOOKS
        held = [one for one in await engine.store.still(now - self._still_ms) if one.owner == engine.worker]
        self.still = [one for one in held if not self._acts(one.id, now)]
        for one in self.still:
            if self._told.get(one.id) != one.moved_at:
                since, what = from_ms(one.moved_at), doing(engine.sessions.get(one.id))
                log.warning("run %s sits still in %s since %s: %s", one.id, one.segment or "-", since.isoformat(), what)
        self._told = {one.id: one.moved_at for one in self.still}

    def _acts(self, run_id: str, now: int) -> bool:
        """Say whether a call of the run may still be within its timeout."""
        session = self._engine.sessions.get(run_id)
        if session is None:
            return False
        started = [effect for effect in session.state.unsettled() if effect.outcome == "started"]
        return any(
            now < effect.doubt.attempts[-1].started_at + session.facts[effect.tool].timeout_ms
            for effect in started
            if effect.tool in session.facts
        )


def doing(session: Session | None) -> str:
    """Return what a run that sits still is doing, as far as it can be seen."""
    if session is None:
        return "it is being claimed or given back"
    started = ", ".join(effect.path for effect in session.state.unsettled())
    if started:
        return f"in flight: {started}"
    return "a call is in flight" if session.inflight else "its code neither calls nor returns"
