"""A conversation that grows: its length, what a turn says, where its cost is looked at. Without SQLite, like timing."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

TURNS = 410
EARLY, LATE = (40, 60), (390, 410)
"""The windows: turns between which stored bytes and time are counted."""


@dataclass(frozen=True)
class Growth:
    """Bytes and milliseconds a turn, around turn 50 and around turn 400."""

    early_bytes: float
    late_bytes: float
    early_ms: float
    late_ms: float


@dataclass
class Marks:
    """Stored bytes and the clock at each edge of a window, as the turns pass."""

    stored: Callable[[], int]
    seen: dict[int, tuple[int, float]] = field(default_factory=dict)

    def note(self, turn: int) -> None:
        """Remember what is stored before this turn."""
        self.seen[turn] = (self.stored(), time.perf_counter())

    def growth(self) -> Growth:
        """What the two windows cost a turn."""
        per_turn = []
        for first, last in (EARLY, LATE):
            turns = last - first
            (bytes_before, clock_before), (bytes_after, clock_after) = self.seen[first], self.seen[last]
            per_turn.append(((bytes_after - bytes_before) / turns, (clock_after - clock_before) / turns * 1e3))
        (early_bytes, early_ms), (late_bytes, late_ms) = per_turn
        return Growth(early_bytes, late_bytes, early_ms, late_ms)


def kilobyte(turn: int) -> str:
    """The text of one turn: a kilobyte, different each time, the same in every run."""
    return random.Random(turn).randbytes(512).hex()
