"""Runs tries of faults, a few at a time, until their number or the time is used up.

The tries of all faults take turns, so that a run that is cut short has tried each fault in proportion. Try number N of
a fault has the seed `seed + N`, and a seed alone decides what a try does. A try that only ran out of time is made once
more with its seed, since a machine may have stood still; the table says how many there were. One in which ledgers and
journal disagreed is not: what was lost once is lost, however slow the machine was.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from faults.databases import Databases
from faults.lives import Zygote
from faults.scoreboard import Fault, Key, Row
from faults.stage import Stage, Try
from faults.strace import ToolMissing
from milepost.testing.world import World

F = TypeVar("F")
TOGETHER = 3  # on two cores: a try waits half of its time


@dataclass(frozen=True)
class Theatre:
    """What all tries share: a folder, an outside world, and the process that forks workers."""

    folder: Path
    world: World
    zygote: Zygote
    databases: Databases

    def play(self, fault: Fault, seed: int, name: str = "") -> Try:
        """Make one try. Raises ToolMissing; whatever else is raised is a problem of the try."""
        name = name or f"f{fault.number}{fault.store[:1].lower()}-{seed}"
        stage = Stage(self.folder / name, self.world, self.zygote, self.databases, seed)
        try:
            fault.play(stage)
        except ToolMissing:
            raise
        except Exception:  # noqa: BLE001  a try that breaks is no proof, and says why
            stage.result.problems.append(f"the try broke: {traceback.format_exc(limit=-4).strip()}")
        finally:
            stage.close()
        if not stage.result.problems:
            for left in self.folder.glob(f"{name}*"):
                shutil.rmtree(left, ignore_errors=True)
        return stage.result

    def tried(self, fault: Fault, seed: int) -> tuple[Try, bool]:
        """Make one try, once more if all that was wrong is that it ran out of time; return it, and whether it was."""
        done = self.play(fault, seed)
        if not done.slow or done.wrong:
            return done, False
        return self.play(fault, seed, f"f{fault.number}{fault.store[:1].lower()}-{seed}-again"), True


@contextmanager
def theatre() -> Iterator[Theatre]:
    """Open a world for any number of tries. What failed is kept, what held is removed."""
    folder = Path(tempfile.mkdtemp(prefix="milepost-faults-"))
    state = os.environ.get("XDG_STATE_HOME")
    os.environ["XDG_STATE_HOME"] = str(folder / "state")  # what stands on this machine beside a store in a database
    zygote = Zygote()
    databases = Databases(folder)
    try:
        with World(folder / "world") as world:
            yield Theatre(folder, world, zygote, databases)
    finally:
        zygote.close()
        databases.close()
        if state is None:
            del os.environ["XDG_STATE_HOME"]
        else:
            os.environ["XDG_STATE_HOME"] = state
        if not [left for left in folder.glob("f*-*") if left.is_dir()]:
            shutil.rmtree(folder, ignore_errors=True)


def schedule(tries: dict[F, int]) -> list[tuple[F, int]]:
    """Return (fault, number of the try) so that at any moment each fault has had its share."""
    turns = [((number + 1) / count, fault, number) for fault, count in tries.items() for number in range(count)]
    return [(fault, number) for _, fault, number in sorted(turns, key=lambda turn: turn[0])]


def run(
    faults: Sequence[Fault],
    tries: dict[Key, int],
    *,
    seed: int,
    until: float,
    told: Callable[[Row], None] = lambda _: None,
) -> list[Row]:
    """Run the tries; `until` is the moment (of `time.monotonic`) after which none begins, but the first of each."""
    rows = {fault.key: Row(fault) for fault in faults}
    turn = threading.Lock()
    with theatre() as stages, ThreadPoolExecutor(TOGETHER) as pool:

        def one(key: Key, at: int) -> None:
            row = rows[key]
            if row.missing or (at and time.monotonic() > until):
                return
            try:
                done, slow = stages.tried(row.fault, seed + at)
            except ToolMissing as missing:
                row.missing = str(missing)
                return
            with turn:
                row.add(seed + at, done)
                row.again += slow and not done.problems
                told(row)

        for future in [pool.submit(one, key, at) for key, at in schedule(tries)]:
            future.result()
    return list(rows.values())
