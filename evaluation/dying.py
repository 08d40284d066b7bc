"""One run from start to end with one SIGKILL on the way: the processes, the proof of where it fell, the aftermath."""

import asyncio
import json
import multiprocessing
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any

from evaluation.classes import Class
from evaluation.counter import ROOT
from evaluation.hosting import Closed, OutsideClient, Statement
from evaluation.killing import Death, WorkerError, said_after
from evaluation.performer import Order, calls_of, perform
from evaluation.points import Case, Point
from milepost.app import open_store
from milepost.operations.inspection import EffectView, Inspector, Line
from milepost.stores.api import Query

_PATIENCE = 60.0
_LOOK = 0.003
_ASKING = threading.Lock()
"""An exit code can be read once, and `multiprocessing` reads them all whenever it starts a worker: never at once."""

_PERSONS = 3
"""How often one run may ask for a person; each kill leaves at most one effect that needs one."""


@dataclass(frozen=True)
class Finished:
    """What came of one run.

    `answers` are what its calls returned. `said` is what its record says of the step it died in, from the place of
    death to the end of that segment; `persons` how often somebody had to look; `damage` what is wrong with the record.
    """

    answers: list[str]
    closed: Closed
    said: tuple[str, ...] = ()
    persons: int = 0
    damage: str | None = None


@dataclass(frozen=True)
class Stage:
    """Where runs take place: the file of the runs, the outside world, and a template of a worker.

    `otherwise` as in `evaluation.performer.Order`.
    """

    store: Path
    client: OutsideClient
    template: ForkServerContext
    otherwise: Mapping[str, Class] | None = None

    def play(self, case: Case, account: str, point: Point | None = None) -> Finished:
        """Run the task on a new account; with `point`, kill its worker there and start again.

        Raises WorkerError where the kill did not land where it had to, or the run came to no end.
        """
        self.client.open(account, case)
        order = Order(str(self.store), self.client.port, account, calls_of(case.calls), None, self.otherwise)
        if point is None:
            answers, persons = self._finish(order)
            return Finished(answers, self.client.end(account), persons=persons)
        death = self._kill(replace(order, stop=(point.position, point.moment)), point)
        answers, persons = self._finish(order)
        lines, damage = asyncio.run(_aftermath(self.store, death.run_id))
        return Finished(answers, self.client.end(account), said_after(lines, death), persons, damage)

    def _kill(self, order: Order, point: Point) -> Death:
        """Start a worker, wait until it is at the point, SIGKILL it. Where its record says that it died."""
        with self._worker(order) as (worker, ours):
            word, told = _heard(worker, ours)
            if word != "at the point":
                raise WorkerError(f"the worker was never there, but {word}: {told}")
            death = self._place(point, order.account, patience=_PATIENCE)
            worker.kill()
            code = _ended(worker)
            if code != -signal.SIGKILL:
                raise WorkerError(f"the worker ended with {code}, not by the kill")
        if self._place(point, order.account, patience=0) != death:
            raise WorkerError("the record went on after its worker was at the point")
        statement = self.client.statement(order.account)
        if statement.asked != point.position + (point.moment != "before"):
            raise WorkerError(f"the outside world was asked {statement.asked} times by then")
        return death

    def _place(self, point: Point, account: str, *, patience: float) -> Death:
        """Where the record ends. Waits `patience` seconds for the entry that belongs there: it is flushed unawaited."""
        until = time.monotonic() + patience
        while True:
            run_id, lines = asyncio.run(_journal(self.store, account))
            wrong = misplaced(lines, point)
            if not wrong:
                last = lines[-1]
                step = str(last.fields.get("step", ""))
                return Death(run_id, str(point), step, last.seq)
            if time.monotonic() >= until:
                raise WorkerError(wrong)
            time.sleep(_LOOK)

    def _finish(self, order: Order) -> tuple[list[str], int]:
        """Start workers until the run is done, and do as a person does where one is asked for."""
        for persons in range(_PERSONS + 1):
            with self._worker(order) as (worker, ours):
                word, told = _heard(worker, ours)
                _ended(worker)
            if word == "done":
                return told, persons
            if word != "person":
                raise WorkerError(f"{order.account}: {told}")
            self._resolve(told, self.client.statement(order.account))
        raise WorkerError(f"{order.account}: asked for a person {_PERSONS} times and more")

    def _resolve(self, run_id: str, statement: Statement) -> None:
        """Look into the ledger, as only a person may, and say what it shows: with the command line."""
        for effect in asyncio.run(_doubtful(self.store, run_id)):
            applied = [entry for entry in statement.ledger if entry.reference == effect.key]
            known = ["--happened", json.dumps(applied[0].answer)] if applied else ["--did-not-happen"]
            why = f"the ledger has it {len(applied)} times"
            command = [sys.executable, "-m", "milepost", "resolve", run_id, effect.path, *known, "--why", why]
            where = ["--by", "the evaluation", "--store", f"sqlite:///{self.store}"]
            done = subprocess.run(
                [*command, *where], cwd=ROOT, capture_output=True, text=True, timeout=_PATIENCE, check=False
            )
            if done.returncode != 0:
                raise WorkerError(f"{' '.join(command[2:])} ended with {done.returncode}: {done.stdout}{done.stderr}")

    @contextmanager
    def _worker(self, order: Order) -> Generator[tuple[ForkServerProcess, Connection]]:
        ours, theirs = self.template.Pipe()
        worker = self.template.Process(target=perform, args=(order, theirs))
        with _ASKING:
            worker.start()
        theirs.close()  # so that ours ends when the worker does
        try:
            yield worker, ours
        finally:
            if _ended(worker, at_once=True) is None:
                worker.kill()
                _ended(worker)
            ours.close()
            with _ASKING:
                worker.close()


def template() -> ForkServerContext:
    """What workers are forked from: a process that has imported everything, opened nothing and started no thread."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["evaluation.performer"])
    return context


def misplaced(lines: Sequence[Line], point: Point) -> str:
    """Why the record does not end where a kill at the point must leave it; empty where it does."""
    ended = sum(line.name in {"checkpointed", "run_done"} for line in lines)
    last = lines[-1]
    started = [line for line in lines if line.name == "effect_started"]
    wanted = {"before": "effect_started", "during": "effect_started", "after": "effect_confirmed"}
    if point.moment == "between":
        final = point.position == len(point.case.calls) - 1
        name, segments = ("run_done" if final else "checkpointed"), point.position + 1
    else:
        name, segments = wanted[point.moment], point.position
    if (last.name, ended) != (name, segments):
        return f"the record ends with {last.name} after {ended} segments, not with {name} after {segments}"
    if len(started) != point.position + 1 or started[-1].fields["plan"]["tool"] != point.function:
        return f"the record has {len(started)} calls, the last of {started[-1].fields['plan']['tool']}"
    return ""


def _heard(worker: ForkServerProcess, ours: Connection) -> tuple[str, Any]:
    """What the worker says next, or that it ended without a word."""
    wait([ours, worker.sentinel], _PATIENCE)
    try:
        word, told = ours.recv() if ours.poll() else ("said nothing", f"exit code {_ended(worker)}")
    except EOFError:
        return "said nothing", f"exit code {_ended(worker)}"
    return word, told


def _ended(worker: ForkServerProcess, *, at_once: bool = False) -> int | None:
    """The exit code, once there is one; None where the worker goes on (for longer than one should have to wait)."""
    wait([worker.sentinel], 0 if at_once else _PATIENCE)
    with _ASKING:
        return worker.exitcode


async def _journal(store: Path, account: str) -> tuple[str, list[Line]]:
    with closing(open_store(f"sqlite:///{store}")) as opened:
        inspector = Inspector(opened)
        [run] = await inspector.runs(Query(key=account))
        return run.id, await inspector.journal(run.id)


async def _doubtful(store: Path, run_id: str) -> list[EffectView]:
    with closing(open_store(f"sqlite:///{store}")) as opened:
        return [one for one in await Inspector(opened).effects(run_id) if one.outcome == "unknown"]


async def _aftermath(store: Path, run_id: str) -> tuple[list[Line], str | None]:
    """The run's whole record, and what is wrong with it, if anything."""
    with closing(open_store(f"sqlite:///{store}")) as opened:
        inspector = Inspector(opened)
        verified = await inspector.verify(run_id)
        return await inspector.journal(run_id), verified.damage
