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
    """Import time (above that of an empty program) and the wall time of `milepost --help`."""
    tries = min(TRIES, bench.amount(TRIES, least=1))
    empty = _wall([sys.executable, "-c", "pass"], tries)
    imported = _wall([sys.executable, "-c", "import milepost"], tries)
    yield Row("import milepost (Python itself not counted)", f"{imported - empty:.0f} ms")
    command = Path(sys.executable).with_name("milepost")
    called = [str(command)] if command.exists() else [sys.executable, "-m", "milepost"]
    shown = _wall([*called, "--help"], tries)
    yield judged("milepost --help (Python counted)", f"{shown:.0f} ms", shown, Target("most", 150, "ms"))


def _wall(command: Sequence[str], tries: int) -> float:
    """Median milliseconds of a command, after one run that warms the file cache."""
    subprocess.run(command, capture_output=True, check=True, timeout=60)
    walls = []
    for _ in range(tries):
        start = time.perf_counter()
        subprocess.run(command, capture_output=True, check=True, timeout=60)
        walls.append((time.perf_counter() - start) * 1e3)
    return statistics.median(walls)
