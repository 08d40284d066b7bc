"""What a command costs before it does anything: importing the package, and printing the help."""

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.comparing import Bench, Row, Target, judged

TRIES = 11


def rows(bench: Bench) -> Iterator[Row]:
    """Import time (above that of an empty program) and the wall time of `milepost --help`: median, and the least."""
    tries = min(TRIES, bench.amount(TRIES, least=1))
    empty = _walls([sys.executable, "-c", "pass"], tries)
    imported = _walls([sys.executable, "-c", "import milepost"], tries)
    above = statistics.median(imported) - statistics.median(empty)
    yield Row("import milepost (Python itself not counted)", f"{above:.0f} ms")
    command = Path(sys.executable).with_name("milepost")
    called = [str(command)] if command.exists() else [sys.executable, "-m", "milepost"]
    shown = _walls([*called, "--help"], tries)
    middle = statistics.median(shown)
    figure = f"{middle:.0f} ms (least {min(shown):.0f})"
    yield judged("milepost --help (Python counted)", figure, middle, Target("most", 150, "ms"))


def _walls(command: Sequence[str], tries: int) -> list[float]:
    """Milliseconds of a command, each time, after one run that warms the file cache."""
    subprocess.run(command, capture_output=True, check=True, timeout=60)
    walls = []
    for _ in range(tries):
        start = time.perf_counter()
        subprocess.run(command, capture_output=True, check=True, timeout=60)
        walls.append((time.perf_counter() - start) * 1e3)
    return walls
