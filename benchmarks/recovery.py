"""Recovery: how long claiming and loading a run takes, by how much it has done. It must not matter how much.

The run is made by a process that is then killed under an effect. What is timed is what a worker does from taking it
over to having all that it needs to enter the segment: the claim (durable), the latest boundary and its tail read, chain
and manifest verified, the state folded and what had started marked as unknown, the segment's typed state read. Each try
has a store of its own, just opened: nothing of the run is in its cache.
"""

import argparse
import asyncio
import contextlib
import statistics
import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

from benchmarks.child import ROOT, TIMEOUT, command
from benchmarks.comparing import Bench, Row, Target, judged
from benchmarks.work import STALLED, WORKFLOWS, Stretch, history, open_app
from milepost.app import open_store
from milepost.definitions.secrets import from_environment
from milepost.runtime import driver, starting
from milepost.runtime.engine import Engine
from milepost.stores.api import Query

STEPS = (10, 1_000, 100_000)
SEGMENT = 10
TRIES = 21


def rows(bench: Bench) -> Iterator[Row]:
    """Milliseconds to claim and load a run with so many finished steps, and the longest against the shortest.

    The sizes take turns, so that a moment in which the disk is busy with something else hits each of them.
    """
    sizes = [*STEPS[:-1], bench.amount(STEPS[-1], least=STEPS[1])]
    with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
        stores = [Path(folder) / f"store-{at}.db" for at in range(len(sizes))]
        for store, steps in zip(stores, sizes, strict=True):
            make_history_and_die(store, steps)
        tries = [[claim_and_load(store) for store in stores] for _ in range(min(TRIES, bench.amount(TRIES, least=3)))]
    medians = [statistics.median(taken) for taken in zip(*tries, strict=True)]
    ratio = statistics.median(taken[-1] / taken[0] for taken in tries)
    for steps, median in zip(sizes[:-1], medians, strict=False):
        yield Row(_named(steps), f"{median:.2f} ms")
    figure = f"{medians[-1]:.2f} ms ({ratio:.2f} times)"
    yield judged(_named(sizes[-1]), figure, ratio, Target("most", 1.5, f"times that at {sizes[0]}"))


def _named(steps: int) -> str:
    return f"recovery (claim + load) after {steps:,} finished steps"


def make_history_and_die(store: Path, steps: int) -> None:
    """Leave a run that has finished so many steps, and whose worker was killed under one more effect."""
    program = command("benchmarks.recovery", store, steps)
    with subprocess.Popen(program, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        try:
            said = child.stdout.readline().strip() if child.stdout is not None else ""
        finally:
            child.kill()
    if said != STALLED:
        raise RuntimeError(f"the process that makes the history said {said!r}")


def claim_and_load(store: Path) -> float:
    """Milliseconds that it takes to take the store's one run over from the worker that held it last."""
    return asyncio.run(_claim_and_load(store))


async def _claim_and_load(store: Path) -> float:
    async with _engine(store) as engine:
        (run,) = await engine.store.runs(Query())
        if run.owner is None:
            raise RuntimeError(f"nobody holds the run, which is {run.status}: its worker was not killed under it")
        start = time.perf_counter()
        session = await driver.claim(engine, run.id, run.owner)
        data, _ = await starting.state_bytes(engine, run.id, session.state.state, session.state.state_root)
        stretch = history.segments[session.state.segment or ""].state.read(data)
        taken = time.perf_counter() - start
        if session.state.segment != "stall_after" or stretch.name != "history":
            raise RuntimeError("what was loaded is not where the run stopped")
        engine.sessions.clear()  # the run stays claimed, as by a worker that dies now
    return taken * 1e3


@contextlib.asynccontextmanager
async def _engine(store: Path) -> AsyncGenerator[Engine]:
    opened = open_store(f"sqlite:///{store}")
    engine = Engine(opened, workflows=WORKFLOWS, secrets=from_environment)
    try:
        await engine.open(drives=True)
        yield engine
        await engine.close()
    finally:
        opened.close()


async def _make(store: str, steps: int) -> None:
    """A run of so many steps in segments of ten, which then stalls until this process is killed."""
    async with open_app(store) as app:
        handle = await app.start(history, Stretch("history", steps, SEGMENT), key="history")
        await handle.result(timeout=f"{TIMEOUT}s")


def main() -> None:
    """The process that makes the history, and is killed before it is recovered."""
    parser = argparse.ArgumentParser()
    parser.add_argument("store")
    parser.add_argument("steps", type=int)
    chosen = parser.parse_args()
    asyncio.run(_make(chosen.store, chosen.steps))


if __name__ == "__main__":
    main()
