"""Timed work. Without SQLite, because the programs that drive other engines use it too, with a SQLite of their own."""

import gc
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Slice:
    """A piece of timed work: how many units, in how many seconds of wall and of processor time."""

    count: int
    seconds: float
    cpu: float

    @property
    def rate(self) -> float:
        """Units a second."""
        return self.count / self.seconds


class Stopwatch:
    """Wall and processor time since it was made. Of every engine, what its start left behind is collected before."""

    def __init__(self) -> None:
        gc.collect()
        self._wall = time.perf_counter()
        self._cpu = time.process_time()

    def slice(self, count: int) -> Slice:
        """What `count` units took until now."""
        return Slice(count, time.perf_counter() - self._wall, time.process_time() - self._cpu)


Work = Callable[[Path], Slice]
"""Something to time, given an empty folder to work in."""


def timed(work: Work, root: Path) -> Slice:
    """Time a piece of work in a folder of its own below `root`, which is removed afterwards."""
    with tempfile.TemporaryDirectory(dir=root) as folder:
        return work(Path(folder))
