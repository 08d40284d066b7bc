"""Time and chance, as the runtime takes them: one object, so that tests bring their own."""

from __future__ import annotations

import random
import time
import uuid
from typing import Protocol


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
    """The machine's own."""

    def now(self) -> int:
        """Return the wall time in milliseconds since 1970 UTC."""
        return time.time_ns() // 1_000_000

    def chance(self) -> float:
        """Return a random number in [0, 1)."""
        return random.random()  # noqa: S311  jitter is no secret

    def uuid(self) -> uuid.UUID:
        """Return a random UUID."""
        return uuid.uuid4()
