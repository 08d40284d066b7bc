"""Milepost on PostgreSQL beside DBOS and absurd: on one durable server, in the same run, taking turns.

A machine that others use too wanders within seconds, so each round drives every engine once and a ratio is to the same
round's DBOS. Their unit is a recorded step, ours an effect: begun durably before it is performed, settled after it.
What one process cannot show is measured with several: claims of up to four workers that all want the same runs, the
time from a worker's death to the first call of the one that took its run over, and what a worker that has nothing to do
asks of the server, counted in the server's own log.
"""

import asyncio
import importlib.util
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from benchmarks import parked
from benchmarks.child import ROOT, command
from benchmarks.comparing import Bench, Row, Target, judged
from benchmarks.postgres_work import READY, Claims, opened
from benchmarks.served import rate, served, statements_of, url_of
from benchmarks.timing import Slice
from benchmarks.work import STALLED, sleeping
from milepost.app import open_store
from tests.servers.kept import NotInstalled
from tests.servers.postgres import Postgres

OURS = "benchmarks.postgres_work"
OTHERS = (
    ("DBOS", ("dbos",), "benchmarks.dbos_work"),
    ("absurd", ("absurd_sdk", "absurdctl"), "benchmarks.absurd_work"),
)
ROUNDS = 3
IN_SEQUENCE, TOGETHER, RUNS = 500, 50, 100
WORKERS = (1, 2, 4)
CLAIMS = 10_000  # what a process does once (statements are prepared, garbage is collected in full) counts for little
SETTLES_S, IDLES_S = 45, 60
TRIES = 3


def rows(bench: Bench) -> Iterator[Row]:
    """All rows; one that says so where the server is not installed."""
    try:
        with served() as server:
            yield from rates(bench, server)
            yield from claims(bench, server)
            yield from takeovers(bench, server)
            yield idle(bench, server)
            yield from parked.rows(bench, server)
    except NotInstalled as error:
        yield Row("PostgreSQL", f"not measured: {error}")


# ---------------------------------------------------------------- rates, beside others


def rates(bench: Bench, server: Postgres) -> Iterator[Row]:
    """Effects of one run in sequence and of 100 runs together, and how they stand to DBOS and to absurd."""
    one, many = bench.amount(IN_SEQUENCE), bench.amount(TOGETHER, least=2)
    yield from _beside(bench, server, "one run in sequence", (1, one), Target("least", 3, "times DBOS"))
    yield from _beside(bench, server, f"{RUNS} runs", (RUNS, many), Target("least", 20, "times DBOS"))


def _beside(bench: Bench, server: Postgres, shape: str, work: tuple[int, int], target: Target) -> Iterator[Row]:
    others = [(name, program) for name, modules, program in OTHERS if all(map(importlib.util.find_spec, modules))]
    ours: list[Slice] = []
    theirs: dict[str, list[Slice]] = {name: [] for name, _ in others}
    for _ in range(min(bench.rounds, ROUNDS)):
        ours.append(rate(server, OURS, *work))
        for name, program in others:
            theirs[name].append(rate(server, program, *work))
    figure = f"{statistics.median(one.rate for one in ours):,.0f} effects/s"
    if "DBOS" in theirs:
        ratio = statistics.median(a.rate / b.rate for a, b in zip(ours, theirs["DBOS"], strict=True))
        yield Row(f"PostgreSQL: {shape}", f"{figure} ({ratio:.1f} times DBOS)", None, None, _cpu(ours), target,
                  target.met(ratio))  # fmt: skip
    else:
        yield Row(f"PostgreSQL: {shape}", figure, cpu_us=_cpu(ours))
    for name, _, _ in OTHERS:
        if name in theirs:
            steps = statistics.median(one.rate for one in theirs[name])
            yield Row(f"{name} (PostgreSQL): {shape}", f"{steps:,.0f} steps/s", cpu_us=_cpu(theirs[name]))
        else:
            yield Row(f"{name} (PostgreSQL): {shape}", "not installed")


def _cpu(slices: Sequence[Slice]) -> float:
    return statistics.median(one.cpu / one.count * 1e6 for one in slices)


# ---------------------------------------------------------------- several processes


class Child:
    """A process of `postgres_work`, which ends when its input does."""

    def __init__(self, *arguments: object) -> None:
        self._process = subprocess.Popen(
            command(OURS, *arguments), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def says(self) -> str:
        """Return the next line that it writes."""
        return _of(self._process.stdout).readline().strip()

    def expect(self, line: str) -> None:
        """Wait for a line. Raises RuntimeError for another."""
        if (said := self.says()) != line:
            raise RuntimeError(f"a worker said {said!r} in place of {line!r}")

    def go(self) -> None:
        """Let it go on."""
        _of(self._process.stdin).write("go\n")
        _of(self._process.stdin).flush()

    def kill(self) -> None:
        """Kill it, without a word."""
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        """Let it leave in good order, and wait."""
        _of(self._process.stdin).close()
        try:
            self._process.wait(30)
        finally:
            self.kill()
            _of(self._process.stdout).close()


def _of(pipe: IO[str] | None) -> IO[str]:
    if pipe is None:
        raise RuntimeError("it was started without pipes")
    return pipe


@contextmanager
def children(*arguments: Sequence[object]) -> Iterator[list[Child]]:
    """Processes of `postgres_work`, one for each list of arguments; all are gone at the end."""
    started: list[Child] = []
    try:
        for one in arguments:
            started.append(Child(*one))  # noqa: PERF401  what was started has to be ended
        yield started
    finally:
        for child in started:
            child.end()


@contextmanager
def store_on(server: Postgres) -> Iterator[tuple[str, str]]:
    """An empty store in a database of its own: the database's name and its URL."""
    name = server.create_database()
    url = url_of(server, name)
    open_store(url, create=True).close()
    yield name, url
    server.drop_database(name)


def claims(bench: Bench, server: Postgres) -> Iterator[Row]:
    """Claims a second by one worker to four, each a process, that all want the same runs."""
    count = bench.amount(CLAIMS, least=40)
    for workers in WORKERS:
        with store_on(server) as (_, url):
            asyncio.run(_start(url, count))
            with children(*[("claims", url)] * workers) as started:
                for child in started:
                    child.expect(READY)
                for child in started:
                    child.go()
                done = [Claims(**json.loads(child.says())) for child in started]
        claimed, lost = sum(one.claimed for one in done), sum(one.lost for one in done)
        if claimed != count:
            raise RuntimeError(f"{claimed} claims of {count} runs")
        took = max(one.ended for one in done) - min(one.began for one in done)
        figure = f"{claimed / took:,.0f} claims/s, {lost:,} came second"
        yield Row(f"PostgreSQL: {count:,} due runs claimed by {workers} worker{'s' * (workers > 1)}", figure)


async def _start(url: str, count: int) -> None:
    async with opened(url).client() as app:
        for first in range(0, count, 500):
            names = [f"run-{at}" for at in range(first, min(first + 500, count))]
            await asyncio.gather(*(app.start(sleeping, name, key=name) for name in names))


def takeovers(bench: Bench, server: Postgres) -> Iterator[Row]:
    """Milliseconds from a worker's SIGKILL to the same call by the worker that took the run over from it."""
    with tempfile.TemporaryDirectory() as folder:
        taken = [_takeover(server, Path(folder) / str(at)) for at in range(bench.amount(TRIES, least=1))]
    figure = f"{statistics.median(taken) * 1e3:,.0f} ms (longest {max(taken) * 1e3:,.0f} ms)"
    yield Row("PostgreSQL: a worker's death to its run's next call, another process of the machine", figure)


def _takeover(server: Postgres, machine: Path) -> float:
    with store_on(server) as (_, url), children(("stall", url, "--machine", machine)) as (first,):
        first.expect(STALLED)
        with children(("work", url, "--machine", machine)) as (second,):
            second.expect(READY)
            time.sleep(1)  # it has looked, and waits
            died = time.perf_counter()
            first.kill()
            second.expect(STALLED)
            return time.perf_counter() - died


def idle(bench: Bench, server: Postgres) -> Row:
    """Statements a minute of a worker that has nothing to do, once it has looked a while in vain."""
    settles, idles = min(SETTLES_S, bench.amount(SETTLES_S, least=1)), min(IDLES_S, bench.amount(IDLES_S, least=2))
    with store_on(server) as (name, url), statements_of(server, name) as count, children(("work", url)) as (child,):
        child.expect(READY)
        time.sleep(settles)
        before, began = count(), time.monotonic()
        time.sleep(idles)
        a_minute = (count() - before) / (time.monotonic() - began) * 60
    work = f"PostgreSQL: statements of an idle worker (server's log, {idles} s)"
    return judged(work, f"{a_minute:.0f} a minute", a_minute, Target("most", 30, "a minute"))
