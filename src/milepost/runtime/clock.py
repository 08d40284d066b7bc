"""Time and chance, as the runtime takes them: one object, so that tests bring their own."""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Callable
from typing import Protocol

from milepost.stores.places import wall_ms

CREEP_MS = 1_000  # as much is waited for, where a clock is only corrected a little


class Clock(Protocol):
    """Where the runtime reads time and chance."""

    def now(self) -> int:
        """Return the wall time in milliseconds since 1970 UTC."""
        ...

    def chance(self) -> float:
        """Return a random number in [0, 1)."""
        ...

    def uuid(self) -> uuid.UUID:
        """Return a random UUID."""
        ...


class SystemClock:
    """The machine's own, which does not go back while this process lives.

    A wall clock can be set back. Whatever waits for a moment that is near would then wait for as long again, and a key
    would look valid for longer than it is. So time goes on from the latest moment that was given out, at the pace of
    the wall clock, until that has caught up. `wall` returns milliseconds since 1970 UTC.
    """

    def __init__(self, wall: Callable[[], int] = wall_ms) -> None:
        self._wall = wall
        self._latest = 0
        self._ahead = 0
        self._turn = threading.Lock()

    def now(self) -> int:
        """Return the time in milliseconds since 1970 UTC."""
        wall = self._wall()
        now = wall + self._ahead
        if now < self._latest:
            with self._turn:
                if (back := self._latest - wall - self._ahead) > CREEP_MS:
                    self._ahead += back
            return self._latest
        if self._ahead and wall >= self._latest:
            self._ahead, now = 0, wall
        self._latest = now
        return now

    def chance(self) -> float:
        """Return a random number in [0, 1)."""
        return random.random()  # noqa: S311  jitter is no secret

    def uuid(self) -> uuid.UUID:
        """Return a random UUID."""
        return uuid.uuid4()
