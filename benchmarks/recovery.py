"""Recovery: how long claiming and loading a run takes, by how much it has done. It must not matter how much."""

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.comparing import Bench, Row, Target, judged
from benchmarks.work import Stretch, history, open_app

STEPS = (10, 1_000, 100_000)
SEGMENT = 10
TRIES = 21


def rows(bench: Bench) -> Iterator[Row]:
    """Milliseconds to claim and load a run with so many finished steps, and the longest against the shortest."""
    medians: list[float] = []
    for wanted in STEPS:
        steps = wanted if wanted <= 1_000 else bench.amount(wanted)
        with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
            store = Path(folder) / "store.db"
            subprocess.run(
                [sys.executable, "-m", "benchmarks.recovery", str(store), str(steps)], check=True, timeout=600
            )
            medians.append(statistics.median(claim_and_load(store) for _ in range(TRIES)))
        name = f"recovery (claim + load) after {steps:,} finished steps"
        figure = f"{medians[-1]:.2f} ms"
        if wanted != STEPS[-1]:
            yield Row(name, figure)
        else:
            ratio = medians[-1] / medians[0]
            yield judged(name, f"{figure} ({ratio:.2f} times)", ratio, Target("most", 1.5, "times that at 10"))


def claim_and_load(store: Path) -> float:
    """Milliseconds from deciding to take the store's one run to holding its state, verified and folded."""
    raise NotImplementedError(store)


async def _make(store: str, steps: int) -> None:
    """A run that has finished so many steps in segments of ten, one more in its last segment, and is parked there."""
    async with open_app(store) as app:
        handle = await app.start(history, Stretch("history", steps, SEGMENT), key="history")
        for _ in range(60_000):
            if (await handle.status()).status == "parked":
                return
            await asyncio.sleep(0.01)
    raise RuntimeError("the run does not park")


def main() -> None:
    """The process that makes the history, and is gone before it is recovered."""
    parser = argparse.ArgumentParser()
    parser.add_argument("store")
    parser.add_argument("steps", type=int)
    chosen = parser.parse_args()
    asyncio.run(_make(chosen.store, chosen.steps))


if __name__ == "__main__":
    main()
