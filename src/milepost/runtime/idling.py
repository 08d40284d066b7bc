"""When a worker looks into the store: at once where there is a reason, else ever more rarely.

A look costs a few queries, and an idle fleet is to cost its database next to nothing. So between two looks a worker
only asks, ten times a second, what costs no query:

  woken     something in this process started a run, sent a message, or ended one
  changed   the store's own hint: somebody may have written (`Store.changed`)
  due       a run falls due, or a limit has room again, at a moment that the last look saw
  gone      a worker that held something at the last look is gone, or its lease lapsed
  halted    the stop file was made or removed

Without a reason it looks after a pause that grows from `poll_s`, after a look that found something, to `IDLE_MOST_S`,
and to `BUSY_MOST_S` while it drives runs, whose messages may come without a hint. A reason only makes it look; what is
claimed is decided there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from milepost.runtime.engine import Engine
    from milepost.stores.fleet import WorkerRow

IDLE_MOST_S = 12.0
BUSY_MOST_S = 1.0
GROWS = 1.5


class Idling:
    """The pauses of one worker."""

    def __init__(self, engine: Engine, poll_s: float) -> None:
        self._engine = engine
        self._poll_s = poll_s
        self._pause_s = poll_s
        self._look_at = 0.0
        self._next: int | None = None
        self._holders: Sequence[WorkerRow] = ()
        self._halted = False

    def is_time(self, now_s: float) -> bool:
        """Say whether to look now, by the event loop's clock. A hint is taken even where none is needed."""
        engine = self._engine
        woken, halted = engine.woken.is_set(), engine.halted
        engine.woken.clear()
        turned, self._halted = halted != self._halted, halted
        if engine.store.changed() or woken or turned or self._falls_due() or any(map(engine.gone, self._holders)):
            return True
        return now_s >= self._look_at

    def _falls_due(self) -> bool:
        return self._next is not None and self._engine.clock.now() >= self._next

    def looked(
        self, now_s: float, next_due: int | None = None, holders: Sequence[WorkerRow] = (), *, found: bool = False
    ) -> None:
        """Note a look, whether it `found` a run to drive, and what it saw.

        That is when time alone makes something claimable, and who else holds runs.
        """
        self._next, self._holders = next_due, holders
        if found:
            self._pause_s = self._poll_s
        self._look_at = now_s + self._pause_s
        most = BUSY_MOST_S if self._engine.sessions else IDLE_MOST_S
        self._pause_s = min(most, self._pause_s * GROWS)

    def again(self, at: int) -> None:
        """Note a moment, in milliseconds since 1970, at which there is something to look at."""
        self._next = at if self._next is None else min(self._next, at)
