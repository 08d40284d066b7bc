"""The measured work on PostgreSQL, in a process of its own: rates, claims, and workers that idle or are killed."""

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import milepost as mp
from benchmarks.timing import Slice, Stopwatch
from benchmarks.work import AUTHORITY, BUDGET, WORKFLOWS, Stretch, effects, history
from milepost.app import open_store
from milepost.definitions.secrets import from_environment
from milepost.errors import EpochLost
from milepost.runtime.engine import Engine
from milepost.stores.api import Claim, Head

READY = "ready"
LOOK = 200
"""Runs for which a worker asks at once, as `milepost worker` does."""


@dataclass(frozen=True)
class Claims:
    """What one worker claimed, by the clock that all processes here share, and how often others were first."""

    claimed: int
    lost: int
    began: float
    ended: float


def opened(url: str) -> mp.App:
    """An app over a database, with all the measured work."""
    return mp.App(url, workflows=list(WORKFLOWS))


async def rate(url: str, runs: int, each: int) -> Slice:
    """`runs` runs together, of `each` effects: from the first start to the last result, on a store opened before."""
    async with opened(url) as app:
        watch = Stopwatch()
        await asyncio.gather(*(_one(app, f"run-{at}", each) for at in range(runs)))
        return watch.slice(runs * each)


async def _one(app: mp.App, name: str, each: int) -> None:
    handle = await app.start(effects, Stretch(name, each, each), key=name, authority=AUTHORITY, budget=BUDGET)
    if await handle.result() != name:
        raise RuntimeError(f"{name} has another run's result")


async def claims(url: str) -> Claims:
    """Claim all that is due, as a worker does, once the parent says so."""
    store = open_store(url)
    engine = Engine(store, workflows=WORKFLOWS, secrets=from_environment)
    try:
        await engine.open(drives=True)
        _say_and_wait()
        began, claimed, lost = time.monotonic(), 0, 0
        while found := await store.due(engine.clock.now(), engine.known, LOOK):
            answers = await asyncio.gather(*(_claim(engine, run.id) for run in found))
            claimed += sum(answers)
            lost += len(answers) - sum(answers)
        done = Claims(claimed, lost, began, time.monotonic())
        await engine.close()
    finally:
        store.close()
    return done


async def _claim(engine: Engine, run_id: str) -> bool:
    claim = Claim(run_id, engine.worker, None, engine.clock.now(), lambda _: b"{}")
    try:
        head: Head = await engine.writer.durable(claim)
    except EpochLost:
        return False
    return head.run_id == run_id


def _say_and_wait() -> None:
    print(READY, flush=True)
    sys.stdin.readline()


async def work(url: str) -> None:
    """Serve a database until this process is killed or its parent is gone."""
    async with opened(url):
        print(READY, flush=True)
        await asyncio.to_thread(sys.stdin.read)


async def stall(url: str) -> None:
    """Start a run, drive it to an effect that gets no answer, and wait to be killed."""
    async with opened(url) as app:
        await app.start(history, Stretch("stalled", 1, 1), key="stalled")
        await asyncio.to_thread(sys.stdin.read)


def main(arguments: Sequence[str] | None = None) -> None:
    """Do one of them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("rate", "claims", "work", "stall"))
    parser.add_argument("url")
    parser.add_argument("runs", type=int, nargs="?", default=1)
    parser.add_argument("each", type=int, nargs="?", default=1)
    parser.add_argument("--machine", type=Path, help="a folder for lock files of its own, as on another machine")
    chosen = parser.parse_args(arguments)
    if chosen.machine is not None:
        os.environ["MILEPOST_LOCAL"] = str(chosen.machine)
    match chosen.what:
        case "rate":
            open_store(chosen.url, create=True).close()
            print(json.dumps(asdict(asyncio.run(rate(chosen.url, chosen.runs, chosen.each)))))
        case "claims":
            print(json.dumps(asdict(asyncio.run(claims(chosen.url)))))
        case "work":
            asyncio.run(work(chosen.url))
        case _:
            asyncio.run(stall(chosen.url))


if __name__ == "__main__":
    main()
