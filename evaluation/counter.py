"""The evaluation's own way to the bank: it starts the process, sets traps and reads the books."""

import contextlib
import json
import subprocess
import sys
import urllib.request
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluation.task import canonical

_PATIENCE = 90.0

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # the bank is on this machine

ROOT = Path(__file__).resolve().parent.parent
"""Where `python -m` finds the programs of this repository, wherever we were started."""


@dataclass(frozen=True)
class Books:
    """What the bank's books say of one account: the environment (JSON) and each applied call, oldest first."""

    environment: str
    ledger: tuple[tuple[str, str], ...]

    @property
    def references(self) -> int:
        """How many different references were applied; fewer than ledger lines means a repetition."""
        return len({reference for reference, _ in self.ledger})

    @property
    def applied(self) -> list[str]:
        """The calls that were applied, without their references."""
        return [call for _, call in self.ledger]


@dataclass(frozen=True)
class BankProcess:
    """A running bank, at `url`."""

    url: str

    def open_account(self, account: str, environment: str) -> None:
        """Open an account in the given environment (JSON)."""
        self._ask("POST", account, {"environment": environment})

    def set_trap(self, account: str, nth: int, moment: str) -> None:
        """Hold the `nth` call (from 1) to the account at a moment: lost, applied or late (see `evaluation/bank.py`)."""
        self._ask("POST", f"{account}/trap", {"nth": nth, "moment": moment})

    def sprung(self, account: str) -> str | None:
        """Wait until the trap holds a call; the name of the function, or None when it was never called."""
        held = self._ask("GET", f"{account}/trap")
        return str(held["function"]) if held["sprung"] else None

    def release(self, account: str) -> None:
        """Let the held call go its way: its caller is dead."""
        self._ask("DELETE", f"{account}/trap")

    def books(self, account: str) -> Books:
        """The account as the bank knows it."""
        known = self._ask("GET", account)
        lines = ((line["reference"], f"{line['function']} {canonical(line['args'])}") for line in known["ledger"])
        return Books(known["environment"], tuple(lines))

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/{path}", data, method=method)  # noqa: S310 - loopback, http
        with _DIRECT.open(request, timeout=_PATIENCE) as response:
            return json.load(response)


@contextlib.contextmanager
def bank_process(books: Path, program: str) -> Generator[BankProcess]:
    """A bank in a process of its own, its books in the file `books`; it ends with the block.

    `program` is the module that serves it (`evaluation.agentdojo_bank`).
    """
    command = [sys.executable, "-m", program, str(books)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the bank was started without pipes")
        try:
            port = process.stdout.readline().strip()
            if not port:
                raise RuntimeError("the bank did not start; its own message stands above")
            yield BankProcess(f"http://127.0.0.1:{port}")
        finally:
            process.stdin.close()  # it stops when its standard input ends
