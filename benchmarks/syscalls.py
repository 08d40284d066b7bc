"""The proof that nothing is acknowledged from memory: the syncs that the kernel was asked for, counted by strace."""

import argparse
import asyncio
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.child import ROOT, TIMEOUT, command
from benchmarks.comparing import Bench, Row, Target, judged
from benchmarks.work import AUTHORITY, BUDGET, Stretch, open_app
from benchmarks.work import effects as workflow

EFFECTS = 200
SYNCS = ("fdatasync", "fsync")


def rows(bench: Bench) -> Iterator[Row]:
    """Syncs an effect, of one run in sequence, less what a run with one effect asks for anyway."""
    name = "fdatasync calls an effect (one run, strace)"
    if shutil.which("strace") is None:
        yield Row(name, "strace is not installed")
        return
    with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
        effects = bench.amount(EFFECTS)
        few, many = (_syncs(Path(folder), count) for count in (1, 1 + effects))
    each = (many - few) / effects
    yield judged(name, f"{each:.2f}", each, Target("least", 1, "an effect"))


def _syncs(folder: Path, count: int) -> int:
    report = folder / f"strace-{count}"
    child = command("benchmarks.syscalls", folder / f"store-{count}.db", count)
    traced = ["strace", "-f", "-c", "-e", f"trace={','.join(SYNCS)}", "-o", str(report), *child]
    subprocess.run(traced, cwd=ROOT, check=True, timeout=TIMEOUT)
    lines = [line.split() for line in report.read_text().splitlines()]
    # % time, seconds, usecs/call, calls, [errors,] syscall
    return sum(int(fields[3]) for fields in lines if fields and fields[-1] in SYNCS)


async def _act(store: str, count: int) -> None:
    async with open_app(store) as app:
        stretch = Stretch("run", count, count)
        handle = await app.start(workflow, stretch, key="run", authority=AUTHORITY, budget=BUDGET)
        await handle.result()


def main() -> None:
    """The traced process: one run with so many effects."""
    parser = argparse.ArgumentParser()
    parser.add_argument("store")
    parser.add_argument("count", type=int)
    chosen = parser.parse_args()
    asyncio.run(_act(chosen.store, chosen.count))


if __name__ == "__main__":
    main()
