"""Kills against starts: `python -m tests.crash.kill_trials [--trials N]`. None starts after a kill has returned.

One process drives runs that make one call after another, each of them a line in a ledger. This process kills the runs,
most of them at the very moment at which the other one commits a `started` of theirs: it is told so by a byte in shared
memory, waits for it, and begins its own transaction then. After each kill has returned it writes a line of its own into
the same ledger. Whatever stands behind that line must be a call that the kill itself has listed as in flight.
"""

from __future__ import annotations

import argparse
import asyncio
import mmap
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import milepost as mp
from milepost.core import codec
from milepost.core import entries as e
from milepost.runtime.worker import Worker
from milepost.stores.api import Append, Kill
from milepost.stores.sqlite.store import SqliteStore

SLOTS = 65_536
ALIVE = 16
ROOT = Path(__file__).resolve().parents[2]
ARMED_FOR_S = 0.01
SETTLED_FOR_S = 0.3


def slot(run_id: str) -> int:
    """Return the byte of a run."""
    return int(run_id[:4], 16)


def shared(folder: Path) -> mmap.mmap:
    """Open the shared bytes: 1 while a `started` of that run is being committed."""
    with (folder / "appending").open("r+b") as file:
        return mmap.mmap(file.fileno(), SLOTS)


def app_of(folder: Path) -> mp.App:
    """Return the app whose runs are killed."""
    ledger = os.open(folder / "ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    @mp.tool(effect="keyed", key_ttl="24h")
    async def beat(call: mp.Call, run_id: str, number: int) -> int:
        os.write(ledger, f"E {run_id} going/beat#{number}\n".encode())
        return number

    @mp.workflow(version="1", tools=[beat])
    async def going(run: mp.Run) -> int:
        number = 0
        while True:
            number += 1
            await beat(run.id, number)

    return mp.App(f"sqlite:///{folder}/store.db", workflows=[going])


# ------------------------------------------------------------ the process that starts


class Telling(SqliteStore):
    """A store that says while it commits a `started`."""

    appending: mmap.mmap

    def _commit(self, operations: Sequence[Any]) -> list[Any]:
        slots = {slot(one.head.run_id) for one in operations if type(one) is Append and one.scopes}
        for place in slots:
            self.appending[place] = 1
        try:
            return super()._commit(operations)
        finally:
            for place in slots:
                self.appending[place] = 0


async def drive(folder: Path) -> None:
    """Drive whatever is due, until this process is ended."""
    app = app_of(folder)
    await app._open(drives=True)
    engine = app._need_engine()
    engine.store.__class__ = Telling
    engine.store.appending = shared(folder)  # type: ignore[attr-defined]
    sys.stdout.write("drives\n")
    sys.stdout.flush()
    await Worker(engine, together=2 * ALIVE, poll_s=0.005).run()


# ------------------------------------------------------------ the process that kills


@dataclass
class Told:
    """What the trials came to. `landed` counts the kills that began while a `started` of their run was committed."""

    trials: int = 0
    landed: int = 0
    in_flight: int = 0
    later: int = 0
    problems: list[str] = field(default_factory=list)


class Killer(SqliteStore):
    """A store that waits with a kill until the other process commits a `started` of that run."""

    appending: mmap.mmap
    armed = False
    landed = 0

    def _commit(self, operations: Sequence[Any]) -> list[Any]:
        if type(operations[0]) is Kill:
            place = slot(operations[0].run_id)
            until = time.perf_counter() + (ARMED_FOR_S if self.armed else 0)
            while not self.appending[place] and time.perf_counter() < until:
                pass
            self.landed += self.appending[place]
        return super()._commit(operations)


async def kill_all(folder: Path, trials: int, chance: random.Random) -> tuple[Told, dict[str, set[str]]]:
    """Kill one run after another; return what came of it, and what each kill said was in flight."""
    told, listed = Told(), dict[str, set[str]]()
    ledger = os.open(folder / "ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    app = app_of(folder)
    async with app.client():
        store = app._need_engine().store
        store.__class__ = Killer
        assert isinstance(store, Killer)
        store.appending = shared(folder)
        flow = app.workflows["going"]
        alive = [(await app.start(flow)).id for _ in range(ALIVE)]
        while told.trials < trials:
            alive.append((await app.start(flow)).id)
            run_id = alive.pop(chance.randrange(ALIVE // 2))
            store.armed = chance.random() < 0.8
            unknown = await app.kill(run_id, why="a trial")
            os.write(ledger, f"K {run_id}\n".encode())
            listed[run_id] = set(unknown)
            told.trials += 1
            told.in_flight += len(unknown)
        await asyncio.sleep(SETTLED_FOR_S)
        told.landed = store.landed
        for run_id in listed:
            _, stored, _ = await store.chain(run_id)
            entries = [codec.decode(one.body) for one in stored]
            stopped = next(place for place, entry in enumerate(entries) if isinstance(entry, e.RunStopped))
            if any(isinstance(entry, e.EffectStarted) for entry in entries[stopped:]):
                told.problems.append(f"run {run_id}: started after it was killed, by its own journal")
    return told, listed


def judge(folder: Path, told: Told, listed: dict[str, set[str]]) -> None:
    """Look for what began after its kill had returned."""
    killed = set[str]()
    for line in (folder / "ledger").read_text().splitlines():
        kind, run_id, *path = line.split()
        if kind == "K":
            killed.add(run_id)
        elif run_id in killed:
            told.later += 1
            if path[0] not in listed[run_id]:
                told.problems.append(f"run {run_id}: {path[0]} began after the kill, which had not listed it")


def trials(count: int, folder: Path, seed: int = 0) -> Told:
    """Make the trials in a folder."""
    (folder / "appending").write_bytes(bytes(SLOTS))
    command = [sys.executable, "-m", "tests.crash.kill_trials", "--drive", str(folder)]
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    quiet = subprocess.DEVNULL  # it says of each run that it was dropped
    driver = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=quiet, env={**os.environ, "PYTHONPATH": path})
    try:
        assert driver.stdout is not None
        assert driver.stdout.readline() == b"drives\n"
        told, listed = asyncio.run(kill_all(folder, count, random.Random(seed)))
    finally:
        driver.kill()
        driver.communicate()
    judge(folder, told, listed)
    return told


def main() -> int:
    """Make the trials and print what they came to; 1 where something began after its kill."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--drive", type=Path, help="be the process that starts, in this folder")
    options = parser.parse_args()
    if options.drive:
        asyncio.run(drive(options.drive))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        told = trials(options.trials, Path(folder), options.seed)
    sys.stdout.write(
        f"{told.trials} kills in {time.monotonic() - began:.0f} s, {told.landed} of them while another process was "
        f"appending a started of that run; {told.in_flight} calls listed as in flight, {told.later} of them seen after "
        f"the kill had returned; {len(told.problems)} began after it\n"
    )
    sys.stdout.writelines(f"{problem}\n" for problem in told.problems)
    return 1 if told.problems else 0


if __name__ == "__main__":
    sys.exit(main())
