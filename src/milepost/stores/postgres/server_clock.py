"""The server's clock, as this process knows it between two looks.

Leases, timers and whatever else processes compare with each other go by one clock: the server's. Each batch brings the
time along, and between two of them this machine only measures how long ago that was, by a clock that nobody can set and
that goes on while the machine sleeps. So a machine whose own clock is a day off does as all others do.
"""

from __future__ import annotations

import time

_SINCE_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def since_boot() -> float:
    """Return seconds since some moment, on a clock that is never set."""
    return time.clock_gettime(_SINCE_BOOT)


class ServerClock:
    """Tells the server's time. It is read from any thread."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known = (0, 0.0)

    def heard(self, server_ms: int, asked_at: float) -> None:
        """Take in what the server said its time was, asked at a moment of `since_boot`."""
        self._known = (server_ms, (asked_at + since_boot()) / 2)

    def now(self) -> int:
        """Return the server's time in milliseconds since 1970."""
        server_ms, at = self._known
        return server_ms + int((time.clock_gettime(_SINCE_BOOT) - at) * 1000)
