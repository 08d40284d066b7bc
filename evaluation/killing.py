"""One task from start to end: a worker process and, where asked, one SIGKILL while a call hangs at the bank."""

import asyncio
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

from evaluation.counter import ROOT, BankProcess, Books
from evaluation.task import Suite, Task
from milepost.app import open_store
from milepost.operations.inspection import Inspector, Line
from milepost.stores.api import Query

_PATIENCE = 120.0

OUTCOMES = frozenset({"started", "unknown", "confirmed", "failed"})


class WorkerError(Exception):
    """A worker process ended in another way than it had to, or not where it had to; the message has what is known."""


@dataclass(frozen=True)
class Kill:
    """Where a worker is to die: at the call at `position` (from 0), at a moment of `evaluation/bank.py`."""

    position: int
    moment: str


@dataclass(frozen=True)
class Death:
    """Where the record says that the worker died: the run, the step that had started, and the place of that entry."""

    run_id: str
    path: str
    step: str
    seq: int


@dataclass(frozen=True)
class Finished:
    """What came of one task: the answer to each call, the bank's books and, of a killed run, how the record goes on.

    `said` is what the record says of the step in which the worker died, from `started` on; `damage` what is wrong with
    the run's record, if anything.
    """

    answers: list[str]
    books: Books
    killed_at: str = ""
    said: tuple[str, ...] = ()
    damage: str | None = None

    @property
    def settled(self) -> str:
        """The last outcome of that step; a finding after it confirms what was sent again, and is none itself."""
        return [word for word in self.said if word in OUTCOMES][-1] if self.said else ""


@dataclass(frozen=True)
class Stage:
    """Where tasks are run: the file of the runs, the bank, and the suite that says how a task begins."""

    store: Path
    bank: BankProcess
    suite: Suite

    def play(self, task: Task, account: str, kill: Kill | None = None) -> Finished:
        """Run the task on a new account; with `kill`, kill its worker once and start the same command again."""
        self.bank.open_account(account, self.suite.initial_environment(task))
        command = self._command(task, account)
        if kill is None:
            return Finished(_finish(command), self.bank.books(account))
        death = self._kill_once(command, account, kill)
        answers = _finish(command)
        said, damage = aftermath(self.store, death)
        return Finished(answers, self.bank.books(account), death.path, said, damage)

    def _command(self, task: Task, account: str) -> list[str]:
        calls = json.dumps([asdict(call) for call in task.calls])
        return [sys.executable, "-m", "evaluation.worker", str(self.store), self.bank.url, account, calls]

    def _kill_once(self, command: list[str], account: str, kill: Kill) -> Death:
        """Start a worker, wait until the bank holds the call, SIGKILL it. Where the record says that it died."""
        self.bank.set_trap(account, kill.position + 1, kill.moment)
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as worker:
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
        death = place_of_death(self.store, account, function)
        self.bank.release(account)
        return death


def place_of_death(store: Path, account: str, function: str) -> Death:
    """The one step that has started and has no outcome, read from the verified record while nobody runs it.

    Raises `WorkerError` where there is no such step, or where it is not a call of `function`: then the kill did not
    fall between `started` and outcome, and proves nothing.
    """
    return asyncio.run(_place_of_death(store, account, function))


async def _place_of_death(store: Path, account: str, function: str) -> Death:
    with closing(open_store(f"sqlite:///{store}")) as opened:
        inspector = Inspector(opened)
        runs = await inspector.runs(Query(key=account))
        if len(runs) != 1:
            raise WorkerError(f"{account}: {len(runs)} runs have this key, not one")
        run_id = runs[0].id
        lines = await inspector.journal(run_id)
        open_now = [effect for effect in await inspector.effects(run_id) if effect.outcome in {"started", "unknown"}]
    if [(effect.tool, effect.outcome) for effect in open_now] != [(function, "started")]:
        seen = ", ".join(f"{effect.path} {effect.outcome}" for effect in open_now) or "nothing open"
        raise WorkerError(f"{account}: killed while the bank held {function}, but its record has {seen}")
    last = lines[-1]
    if last.name != "effect_started":
        raise WorkerError(f"{account}: {open_now[0].path} had started, but the record ends with {last.name}")
    return Death(run_id, open_now[0].path, last.fields["step"], last.seq)


def aftermath(store: Path, death: Death) -> tuple[tuple[str, ...], str | None]:
    """What the record says of the step since it started, and what is wrong with the run's record, if anything."""
    return asyncio.run(_aftermath(store, death))


async def _aftermath(store: Path, death: Death) -> tuple[tuple[str, ...], str | None]:
    with closing(open_store(f"sqlite:///{store}")) as opened:
        inspector = Inspector(opened)
        verified = await inspector.verify(death.run_id)
        lines = await inspector.journal(death.run_id)
    return said_after(lines, death), verified.damage


def said_after(lines: Sequence[Line], death: Death) -> tuple[str, ...]:
    """What the entries from the place of death to the end of its segment say of the step, without repetitions."""
    said: list[str] = []
    for line in lines:
        if line.seq < death.seq:
            continue
        if line.name in {"checkpointed", "run_done"}:
            break  # in the next segment the same step is another one
        word = _word(line) if line.fields.get("step") == death.step else ""
        if word and said[-1:] != [word]:
            said.append(word)
    return tuple(said)


def _word(line: Line) -> str:
    match line.name:
        case "effect_started":
            return "sent again" if line.fields.get("resend") else "started"
        case "effect_unknown" | "effect_confirmed" | "effect_failed":
            return line.name.removeprefix("effect_")
        case "finding_recorded":
            answer = str(line.fields["answer"])
            return {"happened": "found", "did_not_happen": "not found"}.get(answer, answer)
        case _:
            return ""


def _finish(command: list[str]) -> list[str]:
    worker = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    if worker.returncode != 0:
        raise WorkerError(f"{' '.join(command[2:6])} ended with {worker.returncode}:\n{worker.stdout}{worker.stderr}")
    answers: list[str] = json.loads(worker.stdout.splitlines()[-1])
    return answers


def _output(worker: subprocess.Popen[str]) -> str:
    out, errors = worker.communicate(timeout=_PATIENCE)
    return f"{out}{errors}"
