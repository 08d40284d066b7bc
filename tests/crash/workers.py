"""Several workers on one store, each a process of its own that a test may stop, wake, drain or kill."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from milepost.app import App, open_store
from milepost.core.authority import Authority
from milepost.stores.api import OpenEffect, RunRow, Store
from milepost.stores.fleet import WorkerRow
from tests.crash import fleet
from tests.crash.killing import environment
from tests.crash.world import FREEZE_AT
from tests.polling import eventually

T = TypeVar("T")


class Fleet:
    """Workers on the store in one folder. Every process that it starts is ended with it, by its own id."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(
        self, *told: str, lease: str = "30s", grace: str = "10s", waits: bool = True, at: str = ""
    ) -> subprocess.Popen[bytes]:
        """Start a worker that is told something and freezes `at` a place; wait, if asked, until it is enlisted."""
        with (self.folder / f"worker-{len(self.processes)}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.crash.fleet", lease, grace],
                env=environment(self.folder, **dict.fromkeys(told, "1"), **({FREEZE_AT: at} if at else {})),
                stderr=log,
            )
        self.processes.append(process)
        if waits:
            eventually(lambda: process.pid in {worker.pid for worker in self.workers()}, saying="it is enlisted")
        return process

    def holding(self) -> list[subprocess.Popen[bytes]]:
        """Return the living workers that hold a run."""
        pids = {worker.pid for worker in self._ask(lambda store: store.holders())}
        return [process for process in self.processes if process.pid in pids and process.poll() is None]

    def close(self) -> None:
        """End what is left."""
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()

    # ------------------------------------------------------------ what the store says

    def client(self, do: Callable[[App], Awaitable[T]]) -> T:
        """Do something through an app that drives nothing."""

        async def doing() -> T:
            async with fleet.fleet_of(self.folder).client() as app:
                return await do(app)

        return asyncio.run(doing())

    def begin(self, workflow: Any, given: str, *, key: str | None = None) -> str:
        """Start a run and return its id."""

        async def start(app: App) -> str:
            authority = Authority("fleet", scopes={"pay"})
            handle = await app.start(workflow, given, key=key or given, authority=authority, budget={"usd": 50})
            return handle.id

        return self.client(start)

    def result(self, run_id: str) -> Any:
        """Wait for the run's end and return its result."""

        async def wait(app: App) -> Any:
            return await app.handle(run_id).result(timeout="60s")

        return self.client(wait)

    def run(self, run_id: str) -> RunRow:
        """Return a run's row."""
        return self._ask(lambda store: store.run(run_id))

    def effects(self, run_id: str) -> list[OpenEffect]:
        """Return the open effects of a run."""
        return self._ask(lambda store: store.effects(run_id))

    def workers(self) -> list[WorkerRow]:
        """Return every worker that was enlisted, none before there is a store."""
        if not (self.folder / "store.db").exists():
            return []
        return self._ask(lambda store: store.workers())

    def _ask(self, ask: Callable[[Store], Awaitable[T]]) -> T:
        async def asking() -> T:
            store = open_store(f"sqlite:///{self.folder}/store.db", create=True)
            try:
                return await ask(store)
            finally:
                store.close()

        return asyncio.run(asking())


@contextmanager
def fleet_in(folder: Path) -> Iterator[Fleet]:
    """Open a fleet in a folder."""
    workers = Fleet(folder)
    try:
        yield workers
    finally:
        workers.close()


def is_stopped(process: subprocess.Popen[bytes]) -> bool:
    """Whether the process is stopped by a signal."""
    pid, status = os.waitpid(process.pid, os.WNOHANG | os.WUNTRACED)
    return pid == process.pid and os.WIFSTOPPED(status)
