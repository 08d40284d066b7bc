"""The time of Temporal's server, for tests in which that server skips time."""

from __future__ import annotations

import random
import time
import uuid
from datetime import UTC, datetime

from milepost.core.duration import to_ms


class ServerClock:
    """A clock for `App(clock=…)` that follows the server's: with each activity it is told how late it is there.

    In between it goes on at the pace of this machine, and it never goes back. For the time-skipping test server alone:
    the clock of a worker that serves is the machine's own.
    """

    def __init__(self) -> None:
        self._told, self._when = to_ms(datetime.now(UTC)), time.monotonic_ns()

    def now(self) -> int:
        """Return the time in milliseconds since 1970 UTC."""
        return self._told + (time.monotonic_ns() - self._when) // 1_000_000

    def tell(self, moment: datetime) -> None:
        """Go on from this moment, unless it has passed."""
        told = to_ms(moment)
        if told > self.now():
            self._told, self._when = told, time.monotonic_ns()

    def chance(self) -> float:
        """Return a random number in [0, 1)."""
        return random.random()  # noqa: S311  jitter is no secret

    def uuid(self) -> uuid.UUID:
        """Return a random UUID."""
        return uuid.uuid4()
