"""Starting workers, killing them for real, and judging what they left.

A system call is a kill point: `strace` sends SIGKILL when a process enters the N-th `pwrite64` (a part of a page on its
way to the log) or the N-th `fdatasync` (a commit on its way to the disk). So a kill at N lies before write N and after
write N-1, and all N together are before, during and after every append. A place in a tool is one too: see
`world.point`.
"""

import asyncio
import atexit
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import psycopg

from milepost.app import open_store
from milepost.core import codec
from milepost.core import entries as e
from milepost.errors import NotAStore, StoreMissing
from milepost.stores.api import Query
from milepost.testing.check import Applied, Violation, check
from tests.crash import desk
from tests.crash.world import CRASH_AT, World
from tests.polling import eventually

ROOT = Path(__file__).parent.parent.parent
CALLS = ("fdatasync", "pwrite64")
RESTARTS_MOST = 3
SECONDS_MOST = 120
LOCAL = "local"  # what stands on this machine beside a store in a database
SEED = 20
# Read at import: tests run without any MILEPOST_ variable from outside.
SWEEP_ALL = os.environ.get("MILEPOST_SWEEP") == "all"


@dataclass(frozen=True)
class Ended:
    """How a process ended: its code (minus the signal that killed it) and what it printed."""

    code: int
    out: str
    err: str

    @property
    def killed(self) -> bool:
        """Whether it died of SIGKILL, and of nothing else."""
        return self.code == -signal.SIGKILL


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Return the environment of a worker: where it works, and the tests are importable."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    return {**os.environ, "PYTHONPATH": path, "CRASH_FOLDER": str(folder), **more}


class Warm:
    """The process that forks workers (see `warm`): one for each process that tests, from its first worker on."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def work(self, folder: Path, strace: Sequence[str], crash_at: str, program: str) -> int:
        """Let a worker work on the folder, traced if options are given; return its code, or minus the signal."""
        environment_ = {"CRASH_FOLDER": str(folder), CRASH_AT: crash_at, "MILEPOST_LOCAL": str(folder / LOCAL)}
        request = {"program": program, "folder": str(folder), "environment": environment_}
        self._ask({**request, "waits": bool(strace)})
        pid = self._answer()["pid"]
        tracer = attached(pid, folder, strace) if strace else None
        try:
            return self._answer()["code"]
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            self._answer()
            raise
        finally:
            if tracer is not None:
                tracer.wait(timeout=SECONDS_MOST)

    def close(self) -> None:
        """End it: without requests it has nothing to do."""
        if self._process is not None:
            self._process.communicate()

    def _ask(self, request: dict[str, Any]) -> None:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.crash.warm"],
                env=environment(ROOT),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
            )
            atexit.register(self.close)
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")

    def _answer(self) -> dict[str, int]:
        assert self._process is not None
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], SECONDS_MOST)[0]:
            msg = f"a worker did not end within {SECONDS_MOST} s"
            raise TimeoutError(msg)
        answer: dict[str, int] = json.loads(self._process.stdout.readline())
        return answer


def attached(pid: int, folder: Path, strace: Sequence[str]) -> subprocess.Popen[bytes]:
    """Attach strace to a worker that has stopped itself, and wake it up."""
    eventually(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] in "Tt", saying="it stopped")
    said = folder / "strace"
    with said.open("wb") as file:
        command = ["strace", "-f", "-p", str(pid), "-o", str(folder / "trace"), *strace]
        tracer = subprocess.Popen(command, stderr=file)
    eventually(lambda: "attached" in said.read_text(), saying="strace is attached")
    os.kill(pid, signal.SIGCONT)
    return tracer


WARM = Warm()


def work(folder: Path, *strace: str, crash_at: str = "", program: str = "desk") -> Ended:
    """Run a worker on the folder until it ends or dies."""
    code = WARM.work(folder, strace, crash_at, program)
    return Ended(code, (folder / "out").read_text(), (folder / "err").read_text())


def killed_at(folder: Path, call: str, number: int, program: str = "desk") -> bool:
    """Run a worker that is killed as it enters the system call for that time; return whether it came that far."""
    kill = f"inject={call}:signal=SIGKILL:when={number}"
    ended = work(folder, "-e", f"trace={call}", "-e", kill, program=program)
    if ended.killed:
        assert "killed by SIGKILL" in (folder / "trace").read_text()
        return True
    assert ended.code == 0, ended.err
    return False


def calls_of(folder: Path, program: str = "desk") -> dict[str, int]:
    """Run a worker without killing it and return how often it entered each of the system calls."""
    ended = work(folder, "-e", f"trace={','.join(CALLS)}", program=program)
    assert ended.code == 0, ended.err
    lines = (folder / "trace").read_text().splitlines()
    return {call: sum(f" {call}(" in line for line in lines) for call in CALLS}


def spread(count: int, wanted: int) -> list[int]:
    """Return which of 1..count to take: every one where MILEPOST_SWEEP=all was said, else a spread, seeded choice."""
    if SWEEP_ALL or wanted >= count:
        return list(range(1, count + 1))
    chance = random.Random(SEED)
    width = count / wanted
    return sorted({min(count, int(width * place + chance.random() * width) + 1) for place in range(wanted)})


def restarted(folder: Path, program: str = "desk") -> Any:
    """Start the worker again until the run has ended; return its result."""
    for _ in range(RESTARTS_MOST):
        ended = work(folder, program=program)
        if ended.code == 0:
            return json.loads(ended.out)
        assert ended.killed, ended.err
    raise AssertionError(f"not ended after {RESTARTS_MOST} restarts")


def copied(folder: Path, to: Path) -> Path:
    """Copy a folder as a crash left it. The shared-memory index is not part of what a crash leaves."""
    shutil.copytree(folder, to, ignore=shutil.ignore_patterns("*-shm"))
    return to


def violations(folder: Path) -> list[Violation]:
    """Judge what a dead worker left, from a copy: reading a log recovers it, and that is the next worker's work."""
    copy = copied(folder, folder.with_name(folder.name + "-judged"))
    try:
        return judged(copy)
    finally:
        shutil.rmtree(copy)


def judged(folder: Path) -> list[Violation]:
    """Judge a store by its ledger and by the table that its transactional tool writes."""
    lines = World(folder).lines()
    try:
        store = open_store(desk.store_of(folder))
    except (StoreMissing, NotAStore) as error:
        if isinstance(error, NotAStore) and "it is empty" not in str(error):
            raise  # killed while the file was being made, there is none; whatever else is wrong with it is a finding
        return [Violation("unrecorded", "", line.tool, "there is no store yet") for line in lines]
    try:
        return asyncio.run(check(store, [*lines, *notes(folder)]))
    finally:
        store.close()


def journals(folder: Path) -> list[list[e.Entry]]:
    """Return the entries of every run, oldest run first, as a dead worker left them."""

    async def read() -> list[list[e.Entry]]:
        store = open_store(desk.store_of(copy))
        try:
            runs = await store.runs(Query(limit=1_000))
            chains = [await store.chain(run.id) for run in reversed(runs)]
        finally:
            store.close()
        return [[codec.decode(stored.body) for stored in stored_] for _, stored_, _ in chains]

    copy = copied(folder, folder.with_name(folder.name + "-read"))
    try:
        return asyncio.run(read())
    finally:
        shutil.rmtree(copy)


def told_of(folder: Path, effect: str) -> list[e.Entry]:
    """Return what the journals tell of one effect, which its tool and its first argument name: `charge first`."""
    told: list[e.Entry] = []
    for entries in journals(folder):
        steps: set[str] = set()
        for entry in entries:
            if isinstance(entry, e.BOUNDARIES):
                steps = set()
            plan = getattr(entry, "plan", entry)
            if isinstance(plan, e.EffectPlanned) and f"{plan.tool} {first_of(plan)}".startswith(effect):
                steps.add(plan.step)
            if getattr(entry, "step", None) in steps:
                told.append(entry)
    return told


def first_of(plan: e.EffectPlanned) -> str:
    """Return the first argument of an effect."""
    return str(next(iter(json.loads(bytes(plan.args)).values())))


def notes(folder: Path) -> list[Applied]:
    """Return what the transactional tool applied."""
    store = desk.store_of(folder)
    if store.startswith("postgresql:"):
        with psycopg.connect(store) as database:
            if database.execute("SELECT to_regclass('notes')").fetchall() == [(None,)]:
                return []
            return [Applied("note", args={"text": text}) for (text,) in database.execute("SELECT text FROM notes")]
    connection = apsw.Connection(str(folder / "store.db"))
    try:
        if not list(connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'notes'")):
            return []
        return [Applied("note", args={"text": text}) for (text,) in connection.execute("SELECT text FROM notes")]
    finally:
        connection.close()


def whole(folder: Path, result: dict[str, Any]) -> None:
    """Assert that the run has its one result, that all was applied once, and that nobody is wrong about it."""
    assert violations(folder) == []
    applied = [(line.tool, line.args) for line in World(folder).lines() if line.tool != "ask"]
    assert sorted(applied, key=str) == desk.APPLIED
    assert result == desk.EXPECTED
