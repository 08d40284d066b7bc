"""A Temporal server, a store and workers, each a real process that a test may kill; and what they say.

A worker and the server share nothing but a port. The store is a parameter, so that the same tests run over any.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowHistory,
)
from temporalio.service import RPCError

import milepost as mp
from milepost.app import open_store
from milepost.drivers.temporal import start, workflow_id
from milepost.stores.api import RunRow, Store
from milepost.testing.check import Applied, Violation, check
from tests.crash.killing import environment
from tests.crash.world import CRASH_AT, FREEZE_AT, World
from tests.drivers import desk
from tests.drivers.forked import Forked
from tests.polling import eventually
from tests.servers.temporal import TemporalServer

T = TypeVar("T")
NO_HEARTBEAT_S = 300.0  # so long that only a lock file, or a lease, can tell that a worker is gone
CLOSES_S = 90.0
ON_BOTH = pytest.mark.parametrize("kind", ["sqlite", "postgres"])


class Floor:
    """One store and its folder, one server, and the workers of a test."""

    def __init__(self, folder: Path, server: TemporalServer, queue: str, store: str) -> None:
        self.folder = folder
        self.server = server
        self.queue = queue
        self.store = store
        self.processes: list[Forked] = []
        self._typed = 0

    # ------------------------------------------------------------ workers

    def work(
        self, *, dies: str = "", freezes: str = "", lease: str = "30s", heartbeat_s: float = NO_HEARTBEAT_S
    ) -> Forked:
        """Start a worker that dies, or freezes, at a place of a tool; wait until it is enlisted in the store."""
        at = {name: where for name, where in ((CRASH_AT, dies), (FREEZE_AT, freezes)) if where}
        beat = str(heartbeat_s)
        log = self.folder / f"worker-{len(self.processes)}.log"
        process = Forked(
            *("serve", self.server.target, self.queue, self.store, lease, beat),
            environment=environment(self.folder, **at),
            said=log,
        )
        self.processes.append(process)
        eventually(
            lambda: process.poll() is not None or process.pid in {worker.pid for worker in self.workers()},
            within_s=60,
            saying="it is enlisted",
        )
        assert process.poll() is None, log.read_text()
        return process

    def holder(self, run_id: str) -> Forked:
        """Return the worker that holds a run."""
        owner = self.run(run_id).owner or ""
        return next(process for process in self.processes if f"-{process.pid}-" in owner)

    def kill(self, *processes: Forked) -> None:
        """Kill workers, and wait until they are dead."""
        for process in processes:
            process.send_signal(signal.SIGKILL)
        for process in processes:
            self.died(process)

    def died(self, process: Forked) -> None:
        """Wait until a worker has died of SIGKILL."""
        assert process.wait(60) == -signal.SIGKILL

    def close(self) -> None:
        """End what is left."""
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait(60)

    def go(self) -> None:
        """Let the tools go on that wait for it."""
        (self.folder / "go").touch()

    # ------------------------------------------------------------ what a person or a program does

    def begin(self, workflow: Any, given: Any, heartbeat_s: float = NO_HEARTBEAT_S) -> str:
        """Start a run through Temporal; return its id."""

        async def begin(client: Client, app: mp.App) -> str:
            pace = desk.pace_of(heartbeat_s)
            return (await start(client, app, workflow, given, task_queue=self.queue, pace=pace)).id

        return self.ask(begin)

    def result(self, run_id: str, within: str = "90s") -> Any:
        """Wait for a run's end and return its result."""
        return self.app(lambda app: app.handle(run_id).result(timeout=within))

    def app(self, do: Callable[[mp.App], Awaitable[T]]) -> T:
        """Do something through an app that drives nothing and knows of no Temporal."""

        async def doing() -> T:
            async with desk.app_on(self.store).client() as app:
                return await do(app)

        return asyncio.run(doing())

    def ask(self, do: Callable[[Client, mp.App], Awaitable[T]]) -> T:
        """Do something with a client of the server and an app that drives nothing."""

        async def doing() -> T:
            client = await Client.connect(self.server.target)
            async with desk.app_on(self.store).client() as app:
                return await do(client, app)

        return asyncio.run(doing())

    def typed(self, *words: str) -> str:
        """Type a command of the plain command line, which knows of no Temporal; return what it prints."""
        self._typed += 1
        said = self.folder / f"typed-{self._typed}.log"
        process = Forked("type", *words, "--store", self.store, environment=environment(self.folder), said=said)
        assert process.wait(60) == 0, said.read_text()
        return said.read_text()

    # ------------------------------------------------------------ what the store says

    def run(self, run_id: str) -> RunRow:
        """Return a run's row."""
        return self._read(lambda store: store.run(run_id))

    def workers(self) -> list[Any]:
        """Return every worker that was enlisted."""
        try:
            return self._read(lambda store: store.workers())
        except mp.StoreError:
            return []  # there is no store yet

    def parked(self, run_id: str, reason: str) -> None:
        """Wait until a run is parked for a reason."""
        eventually(
            lambda: (self.run(run_id).status, self.run(run_id).reason) == ("parked", reason),
            within_s=60,
            saying=f"parked for {reason}",
        )

    def applied(self, tool: str) -> list[Applied]:
        """Return what a tool did outside."""
        return [line for line in World(self.folder).lines() if line.tool == tool]

    def judged(self) -> list[Violation]:
        """Return what must never be, by the ledger and every journal."""
        return self._read(lambda store: check(store, World(self.folder).lines()))

    def _read(self, read: Callable[[Store], Awaitable[T]]) -> T:
        async def reading() -> T:
            store = open_store(self.store)
            try:
                return await read(store)
            finally:
                store.close()

        return asyncio.run(reading())

    # ------------------------------------------------------------ what Temporal says

    def temporal(self, run_id: str, do: Callable[[WorkflowHandle[Any, Any]], Awaitable[T]]) -> T:
        """Do something with the workflow of a run."""

        async def doing() -> T:
            client = await Client.connect(self.server.target)
            return await do(client.get_workflow_handle(workflow_id(run_id), result_type=str))

        return asyncio.run(doing())

    def closed(self, run_id: str) -> WorkflowExecutionStatus:
        """Wait until the workflow of a run is closed; return how."""

        async def close(handle: WorkflowHandle[Any, Any]) -> WorkflowExecutionStatus | None:
            with suppress(WorkflowFailureError):
                await asyncio.wait_for(handle.result(), CLOSES_S)
            return (await handle.describe()).status

        def closes() -> WorkflowExecutionStatus | None:
            with suppress(RPCError):  # not known, or the server is not there, for a moment
                return self.temporal(run_id, close)
            return None

        found = eventually(closes, within_s=CLOSES_S, saying="the workflow is closed")
        assert found is not None
        return found

    def histories(self, run_id: str) -> list[list[Any]]:
        """Return the events of every execution of the workflow of a run, oldest first."""
        return [list(history.events) for history in self.told(run_id)]

    def told(self, run_id: str) -> list[WorkflowHistory]:
        """Return the history of every execution of the workflow of a run, oldest first."""

        async def read() -> list[WorkflowHistory]:
            client = await Client.connect(self.server.target)
            query = f"WorkflowId = '{workflow_id(run_id)}'"
            found = [(one.start_time, one.run_id) async for one in client.list_workflows(query)]
            handles = [client.get_workflow_handle(workflow_id(run_id), run_id=id_) for _, id_ in sorted(found)]
            return [await handle.fetch_history() for handle in handles]

        return asyncio.run(read())

    def events(self, run_id: str, kind: str) -> int:
        """Return how many events of a kind are in all histories of a run's workflow."""
        number = EventType.Value(f"EVENT_TYPE_{kind}")
        return sum(event.event_type == number for history in self.histories(run_id) for event in history)


@contextmanager
def floor_in(folder: Path, server: TemporalServer, store: str, queue: str) -> Iterator[Floor]:
    """Set up a floor in a folder; every process of it is ended with it."""
    floor = Floor(folder, server, queue, store)
    open_store(floor.store, create=True).close()
    try:
        yield floor
    finally:
        floor.close()
