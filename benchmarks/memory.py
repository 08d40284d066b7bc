"""Memory of parked runs: of a process that parks ten thousand, and of one that opens a store full of them."""

import argparse
import asyncio
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import milepost as mp
from benchmarks.comparing import Bench, Row, Target, judged
from benchmarks.work import open_app, waiting

WARM = 500
"""Runs parked before the first look, so that caches and pools are not counted as runs."""

PARKED = 10_000
CHUNK = 500
SETTLE_TRIES = 6_000
MEGABYTE = 1 << 20


def rows(bench: Bench) -> Iterator[Row]:
    """Resident memory that the parked runs add."""
    added = bench.amount(PARKED)
    target = Target("most", 10, "MB")
    with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
        store, few = Path(folder) / "store.db", Path(folder) / "few.db"
        parking = _child("park", store, added)
        _child("park", few, 0)
        opened = _child("open", store, 0)["after"] - _child("open", few, 0)["after"]
    grown = (parking["after"] - parking["before"]) / MEGABYTE
    yield judged(f"resident memory added by parking {added:,} runs", f"{grown:.1f} MB", grown, target)
    opened_mb = opened / MEGABYTE
    name = f"resident memory added by opening a store with {added:,} parked runs"
    yield judged(name, f"{opened_mb:.1f} MB", opened_mb, target)


def _child(what: str, store: Path, added: int) -> dict[str, int]:
    command = [sys.executable, "-m", "benchmarks.memory", what, str(store), str(added)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    measured: dict[str, int] = json.loads(shown.stdout.splitlines()[-1])
    return measured


def resident() -> int:
    """Bytes of this process that are in memory, after a collection."""
    gc.collect()
    shown = subprocess.run(["ps", "-o", "rss=", "-p", str(os.getpid())], capture_output=True, text=True, check=True)  # noqa: S607
    return int(shown.stdout) * 1024


async def _park(store: str, added: int) -> dict[str, int]:
    async with open_app(store) as app:
        await _park_some(app, "warm", WARM)
        before = resident()
        await _park_some(app, "run", added)
        return {"before": before, "after": resident()}


async def _park_some(app: mp.App, name: str, count: int) -> None:
    """Start runs and wait until each is parked, in chunks, keeping nothing of them."""
    for start in range(0, count, CHUNK):
        keys = [f"{name}-{number}" for number in range(start, min(start + CHUNK, count))]
        handles = await asyncio.gather(*(app.start(waiting, key, key=key) for key in keys))
        for handle in handles:
            await _until_parked(handle)


async def _until_parked(handle: mp.Handle[str]) -> None:
    for _ in range(SETTLE_TRIES):
        if (await handle.status()).status == "parked":
            return
        await asyncio.sleep(0.01)
    raise RuntimeError(f"run {handle.id} does not park")


async def _open(store: str) -> dict[str, int]:
    """Serve a store with parked runs, do one run's work, and look."""
    async with open_app(store) as app:
        before = resident()
        await _park_some(app, "opened", 1)
        return {"before": before, "after": resident()}


def main() -> None:
    """The child process: print bytes before and after."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("park", "open"))
    parser.add_argument("store")
    parser.add_argument("added", type=int)
    chosen = parser.parse_args()
    measured = _park(chosen.store, chosen.added) if chosen.what == "park" else _open(chosen.store)
    print(json.dumps(asyncio.run(measured)))


if __name__ == "__main__":
    main()
