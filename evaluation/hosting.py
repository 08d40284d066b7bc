"""The sweep's own way to the outside world: it starts the process, opens accounts, and reads ledgers as people can."""

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from evaluation.counter import ROOT
from evaluation.points import Case
from evaluation.task import canonical

_PATIENCE = 120.0


@dataclass(frozen=True)
class Entry:
    """One line of the ledger: a call that was applied, and the reference that it came with."""

    reference: str
    call: str
    answer: Any


@dataclass(frozen=True)
class Statement:
    """What the outside world knows of an account: how many calls arrived, and which of them changed something."""

    asked: int
    ledger: tuple[Entry, ...]


@dataclass(frozen=True)
class Closed:
    """An account at its end: its last statement, all of its environment (JSON), and the suite's own verdict."""

    statement: Statement
    environment: str
    useful: bool


class OutsideClient:
    """One connection to the outside world, for one thread."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE)
        self._file = self._socket.makefile("rwb")

    def close(self) -> None:
        """Hang up."""
        self._file.close()
        self._socket.close()

    def cases(self) -> list[Case]:
        """Every task, with the ending that it has without us."""
        return [Case.read(told) for told in self._ask(do="cases")]

    def open(self, account: str, case: Case) -> None:
        """Open an account in the environment that the task starts from."""
        self._ask(do="open", account=account, task=case.name)

    def statement(self, account: str) -> Statement:
        """What has arrived and been applied so far."""
        return _statement(self._ask(do="statement", account=account))

    def end(self, account: str) -> Closed:
        """Close the account: its environment, the suite's verdict, and the last statement."""
        told = self._ask(do="close", account=account)
        return Closed(_statement(told), told["environment"], told["useful"])

    def _ask(self, **request: Any) -> Any:
        self._file.write(json.dumps(request).encode() + b"\n")
        self._file.flush()
        told = json.loads(self._file.readline())
        if "refused" in told:
            raise RuntimeError(f"the outside world refused {request['do']}: {told['refused']}")
        return told["answer"]


def _statement(told: dict[str, Any]) -> Statement:
    lines = (
        Entry(line["reference"], f"{line['function']} {canonical(line['args'])}", line["answer"])
        for line in told["ledger"]
    )
    return Statement(told["asked"], tuple(lines))


@contextlib.contextmanager
def outside_process(program: str) -> Generator[int]:
    """The outside world in a process of its own, and its port; it ends with the block.

    `program` is the module that serves it (`evaluation.agentdojo_outside`).
    """
    # One suite orders a set of addresses by their hashes: the same ones in every process make runs comparable.
    surroundings = {**os.environ, "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-m", program]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=surroundings
    ) as process:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the outside world was started without pipes")
        try:
            port = process.stdout.readline().strip()
            if not port:
                raise RuntimeError("the outside world did not start; its own message stands above")
            yield int(port)
        finally:
            process.stdin.close()  # it stops when its standard input ends
