"""Which ticks of a schedule are run, where some passed while no worker looked.

  latest   one run, for the last of them: what is late is done once (the default)
  all      a run for each, the oldest first, some at a time
  none     nothing, unless a tick is only a moment late

The next tick is always one that is not past, so that a schedule never runs behind for longer than it has to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

CatchUp = Literal["latest", "all", "none"]
ON_TIME_MS = 60_000  # so late may be whoever looks once in a while, without having missed anything
AT_ONCE = 50


def ticks_of(
    next_at: int,
    now: int,
    catch_up: CatchUp,
    after: Callable[[int], int | None],
    latest: Callable[[int], int | None],
) -> tuple[list[int], int | None]:
    """Return the ticks to run now, oldest first, and the next one to wait for (None: there is none any more).

    `next_at` was waited for and is not after `now`. `after` gives the first tick after a moment, `latest` the last one
    at or before it; moments are milliseconds since 1970.
    """
    if catch_up == "all":
        ticks: list[int] = []
        tick: int | None = next_at
        while tick is not None and tick <= now and len(ticks) < AT_ONCE:
            ticks.append(tick)
            tick = after(tick)
        return ticks, tick
    last = max(next_at, latest(now) or next_at)
    missed = catch_up == "none" and now - last > ON_TIME_MS
    return [] if missed else [last], after(max(last, now))
