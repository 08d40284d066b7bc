"""Time that only a test moves, and chance that is the same in every run of the test."""

from __future__ import annotations

import random
import uuid
from datetime import UTC, datetime

from milepost.core.duration import Duration, parse_ms, to_ms

START = datetime(2026, 1, 1, tzinfo=UTC)


class ManualClock:
    """A clock for `App(clock=…)` that stands still until it is told otherwise.

    `start` is an aware datetime; `seed` decides what `chance` and `uuid` return. Time may also be set back, as a
    machine's clock may be.
    """

    def __init__(self, start: datetime = START, *, seed: int = 0) -> None:
        self._now = to_ms(start)
        self._random = random.Random(seed)  # noqa: S311  it has to repeat, nothing secret is drawn from it

    def now(self) -> int:
        """Return the time in milliseconds since 1970 UTC."""
        return self._now

    def chance(self) -> float:
        """Return a random number in [0, 1): the same sequence for the same seed."""
        return self._random.random()

    def uuid(self) -> uuid.UUID:
        """Return a random UUID: the same sequence for the same seed."""
        return uuid.UUID(int=self._random.getrandbits(128), version=4)

    def advance(self, span: Duration) -> int:
        """Move time forward by a span such as "30s"; return the new time. Raises ValueError for what is no span."""
        self._now += parse_ms(span)
        return self._now

    def set(self, moment: datetime) -> int:
        """Move time to a moment, forward or back; return it in milliseconds. Raises ValueError without a time zone."""
        self._now = to_ms(moment)
        return self._now
