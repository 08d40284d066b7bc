"""A shop in a folder of its own: its program, its store, its ledger, and the command line over them."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from milepost.app import App
from milepost.cli.main import cli
from milepost.cli.opening import now_ms, opened
from milepost.cli.settings import load_app
from milepost.stores.api import Query, Store
from tests.polling import eventually

PROGRAM = Path(__file__).with_name("shop.py")


@dataclass
class Shop:
    """What a test does in the folder of the shop."""

    folder: Path
    workers: list[subprocess.Popen[str]] = field(default_factory=list)

    def milepost(self, *args: str, stdin: str | None = None) -> Result:
        """Run the command line in this process. A worker's supervisor would be another one: it is left out."""
        args = ("worker", "--no-supervisor", *args[1:]) if args[:1] == ("worker",) else args
        return CliRunner().invoke(cli, args, input=stdin, prog_name="milepost")

    def ok(self, *args: str, stdin: str | None = None) -> str:
        """Run a command that must end with 0; return what it says."""
        result = self.milepost(*args, stdin=stdin)
        assert result.exit_code == 0, result.output
        return str(result.stdout)

    def read(self, *args: str) -> Any:
        """Run a command with --json that must end with 0; return its answer."""
        return json.loads(self.ok(*args, "--json"))

    def refused(self, *args: str) -> tuple[int, str]:
        """Run a command that must not end with 0; return its exit code and the error's code."""
        result = self.milepost(*args, "--json")
        assert result.exit_code != 0, result.output
        assert result.stdout == "", "an error must leave stdout to answers"
        return result.exit_code, json.loads(result.stderr.splitlines()[-1])["error"]["code"]

    def start(self, workflow: str, given: object = None, *options: str) -> str:
        """Start a run; return its id."""
        return str(self.read("start", workflow, json.dumps(given), *options)["run"])

    def app(self) -> App:
        """The App of the program in this folder."""
        return load_app("shop:app")

    def drive(self) -> None:
        """Drive every run, in this process, until all of them rest or have ended."""
        asyncio.run(drive_all(self.app()))

    def status(self, run: str) -> str:
        """The status of a run."""
        return str(self.read("show", run)["status"])

    def ledger(self) -> list[str]:
        """What happened outside."""
        file = self.folder / "ledger.txt"
        return file.read_text().splitlines() if file.exists() else []

    def environment(self) -> dict[str, str]:
        """The environment of a process that also finds what is installed in this folder."""
        return {**os.environ, "PYTHONPATH": os.pathsep.join([str(self.folder), os.environ["PYTHONPATH"]])}

    def process(self, *args: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run the command line in a process of its own."""
        command = [sys.executable, "-m", "milepost", *args]
        return subprocess.run(
            command, cwd=self.folder, text=True, capture_output=True, timeout=90, check=False, **options
        )

    def worker(self, *args: str, **options: Any) -> subprocess.Popen[str]:
        """Start a real worker; it has begun to drive when this returns."""
        command = [sys.executable, "-m", "milepost", "worker", *args]
        with (self.folder / f"worker-{len(self.workers)}.log").open("w") as log:
            process = subprocess.Popen(command, cwd=self.folder, text=True, stdout=log, stderr=log, **options)
        self.workers.append(process)
        eventually(lambda: "drives" in self.log(process), saying="the worker drives")
        return process

    def log(self, process: subprocess.Popen[str]) -> str:
        """What a worker has logged so far."""
        return (self.folder / f"worker-{self.workers.index(process)}.log").read_text()


async def drive_all(app: App, until: Callable[[Store], Awaitable[bool]] | None = None) -> None:
    """Drive every run of an App's store until all of them rest or have ended, or until something holds."""
    stop = asyncio.Event()
    serving = asyncio.create_task(app.serve(stop, together=20, grace="1s"))
    with opened(app.store) as store:
        async with asyncio.timeout(60):
            while not await (until or _rests)(store) and not serving.done():  # noqa: ASYNC110  the store has no event to wait for
                await asyncio.sleep(0.01)
    stop.set()
    await serving


async def _rests(store: Store) -> bool:
    """Whether every run has ended, or waits for more than a moment."""
    rows = await store.runs(Query(limit=1_000))
    soon = now_ms() + 5_000
    return all(row.owner is None and (row.due is None or row.due > soon) for row in rows)


@contextmanager
def shop_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """Put the shop's program into a folder, go there, and leave nothing behind: no process, no module, no setting."""
    shutil.copy(PROGRAM, folder / "shop.py")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [str(Path(entry).absolute()) for entry in sys.path if entry])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    before = set(sys.modules)
    made = Shop(folder)
    try:
        yield made
    finally:
        for process in made.workers:
            process.kill()
            process.wait()
        for name in set(sys.modules) - before:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
                del sys.modules[name]
