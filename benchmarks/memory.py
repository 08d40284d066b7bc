"""Memory of parked runs: of a process that parks ten thousand, and of one that opens a store full of them."""

import argparse
import asyncio
import gc
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import milepost as mp
from benchmarks.child import measured
from benchmarks.comparing import Bench, Row, Target, judged
from benchmarks.work import open_app, sleeping, waiting

WARM = 3_000
"""Runs parked before the first look, so that caches are not counted as runs: a store that is larger than what its
connections keep of it in memory (2 MB each), and a log that was as long before as it gets between two checkpoints."""

PARKED = 10_000
CHUNK = 500
SETTLE_TRIES = 6_000
MEGABYTE = 1 << 20
STATM = Path("/proc/self/statm")
"""Where Linux says it; elsewhere `ps` does."""


def rows(bench: Bench) -> Iterator[Row]:
    """Resident memory that the parked runs add."""
    added, warm = bench.amount(PARKED), min(WARM, bench.amount(5 * WARM))
    target = Target("most", 10, "MB")
    with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
        store, few = Path(folder) / "store.db", Path(folder) / "few.db"
        parking = measured("benchmarks.memory", "park", store, warm, added)
        measured("benchmarks.memory", "park", few, warm, 0)
        full, empty = (measured("benchmarks.memory", "open", file, 1, 0)["before"] for file in (store, few))
    grown = (parking["after"] - parking["before"]) / MEGABYTE
    yield judged(f"resident memory added by parking {added:,} runs", f"{grown:.1f} MB", grown, target)
    opened = (full - empty) / MEGABYTE
    name = f"resident memory added by opening a store with {added:,} parked runs"
    yield judged(name, f"{opened:.1f} MB", opened, target)


def resident() -> int:
    """Bytes of this process that are in memory, after a collection."""
    gc.collect()
    if STATM.exists():
        return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    shown = subprocess.run(["ps", "-o", "rss=", "-p", str(os.getpid())], capture_output=True, text=True, check=True)  # noqa: S607
    return int(shown.stdout) * 1024


async def _work(store: str, name: str, warm: int, added: int) -> dict[str, int]:
    """Serve the store and park the first runs, look, park the others, and look again."""
    async with open_app(store) as app:
        await _park_some(app, f"{name}-warm", warm)
        before = resident()
        await _park_some(app, f"{name}-run", added)
        return {"before": before, "after": resident()}


async def _park_some(app: mp.App, name: str, count: int) -> None:
    """Start runs, half of which sleep for a month while the others wait for a word, and wait until all are parked."""
    parked = (await app.inspect.counts()).get("parked", 0)
    for start in range(0, count, CHUNK):
        numbers = range(start, min(start + CHUNK, count))
        await asyncio.gather(*(_start(app, f"{name}-{number}", number) for number in numbers))
        parked += len(numbers)
        await _until_parked(app, parked)


async def _start(app: mp.App, key: str, number: int) -> None:
    await app.start(sleeping if number % 2 else waiting, key, key=key)


async def _until_parked(app: mp.App, count: int) -> None:
    for _ in range(SETTLE_TRIES):
        if (await app.inspect.counts()).get("parked", 0) == count:
            return
        await asyncio.sleep(0.01)
    raise RuntimeError(f"of {count} runs not all park: {await app.inspect.counts()}")


def main() -> None:
    """The child process: print bytes before and after."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name", help="what the runs' keys begin with")
    parser.add_argument("store")
    parser.add_argument("warm", type=int)
    parser.add_argument("added", type=int)
    chosen = parser.parse_args()
    print(json.dumps(asyncio.run(_work(chosen.store, chosen.name, chosen.warm, chosen.added))))


if __name__ == "__main__":
    main()
