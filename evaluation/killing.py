"""One task from start to end: a worker process and, where asked, one SIGKILL while a call hangs at the bank."""

import json
import signal
import subprocess
import sys
import threading
from dataclasses import asdict, dataclass
from pathlib import Path

from evaluation.counter import BankProcess, Books
from evaluation.suite import BankingTask, initial_environment

_PATIENCE = 120.0


class WorkerError(Exception):
    """A worker process ended in another way than it had to; the message has what it wrote."""


@dataclass(frozen=True)
class Kill:
    """Where a worker is to die: at the call at `position` (from 0), at a moment of `evaluation/bank.py`."""

    position: int
    moment: str


@dataclass(frozen=True)
class Finished:
    """What came of one task: the answer to each call, the bank's books, and where the worker was killed, if it was."""

    answers: list[str]
    books: Books
    killed_at: str = ""


@dataclass(frozen=True)
class Stage:
    """Where tasks are run: the file of the runs and the bank."""

    store: Path
    bank: BankProcess

    def play(self, task: BankingTask, account: str, kill: Kill | None = None) -> Finished:
        """Run the task on a new account; with `kill`, kill its worker once and start the same command again."""
        self.bank.open_account(account, initial_environment(task))
        command = self._command(task, account)
        killed_at = "" if kill is None else self._kill_once(command, account, kill)
        answers = _finish(command)
        return Finished(answers, self.bank.books(account), killed_at)

    def _command(self, task: BankingTask, account: str) -> list[str]:
        calls = json.dumps([asdict(call) for call in task.calls])
        return [sys.executable, "-m", "evaluation.worker", str(self.store), self.bank.url, account, calls]

    def _kill_once(self, command: list[str], account: str, kill: Kill) -> str:
        """Start a worker, wait until the bank holds the call, SIGKILL it. Where the journal says that it died."""
        self.bank.set_trap(account, kill.position + 1, kill.moment)
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as worker:
            held: list[str | None] = []
            waiting = threading.Thread(target=lambda: held.append(self.bank.sprung(account)), daemon=True)
            waiting.start()
            while waiting.is_alive() and worker.poll() is None:
                waiting.join(0.02)
            if worker.poll() is not None:
                raise WorkerError(f"{account}: the worker ended before it was killed:\n{_output(worker)}")
            worker.send_signal(signal.SIGKILL)
            worker.communicate(timeout=_PATIENCE)
        if worker.returncode != -signal.SIGKILL:
            raise WorkerError(f"{account}: the worker ended with {worker.returncode}, not by the kill")
        function = held[0] if held else None
        if function is None:
            raise WorkerError(f"{account}: call {kill.position + 1} never reached the bank")
        path = place_of_death(self.store, account, function)
        self.bank.release(account)
        return path


def place_of_death(store: Path, account: str, function: str) -> str:
    """The path of the step that has started and has no outcome, read from the record while nobody runs it."""
    del store, account
    return function  # TODO(wiring): milepost effects --json


def _finish(command: list[str]) -> list[str]:
    worker = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    if worker.returncode != 0:
        raise WorkerError(f"{' '.join(command[2:6])} ended with {worker.returncode}:\n{worker.stdout}{worker.stderr}")
    answers: list[str] = json.loads(worker.stdout.splitlines()[-1])
    return answers


def _output(worker: subprocess.Popen[str]) -> str:
    out, errors = worker.communicate(timeout=_PATIENCE)
    return f"{out}{errors}"
