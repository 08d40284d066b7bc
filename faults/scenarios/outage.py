"""Faults 23 and 24: a provider that is away for half an hour, and a kill that comes when nothing answers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import milepost as mp
from faults.lives import ROOT
from faults.scenarios.workers import begin, stop
from faults.scoreboard import Fault
from faults.stage import Stage
from milepost.core import codec
from milepost.core import entries as e
from milepost.core import store_entries as s
from milepost.operations.verbs import Operator
from milepost.testing.world import Rules, Toxic

RUNS = 50
WORKERS = 2
TOGETHER = 20  # what `serve` drives at once
MINUTES = 30
STEP_S = 15  # less than any cool-down after the first: else who has just probed comes back before the others look
AFTERWARDS = 6
CLAIMS_EACH = 8
CALLS = 20
GRACE_S = 1.0
LATE_S = 4.0  # a machine that is busy may be slow to see a process end
QUIET_S = 1.5


def outage(stage: Stage) -> None:
    """Let the provider refuse everything for half an hour, with runs that want it; then let it work again."""
    tool = ["charge", "refund"][stage.seed % 2]
    stage.declare(lease="4h")  # the clock is moved in strides: no lease is to lapse by that
    begin(stage, tool, RUNS)
    refused = Toxic("gateway", status=stage.chance.choice([500, 503]), forward=False)
    stage.outside.obey(Rules(script=(refused,) * 10_000))
    workers = [stage.start("serve") for _ in range(WORKERS)]
    stage.until(lambda: stage.ask(lambda store: store.switches()), "the breaker opens")
    for _ in range(MINUTES * 60 // STEP_S):
        stage.outside.advance(f"{STEP_S}s")
        stage.until(lambda: quiet(stage), "all rest")
    during = stage.count(e.EffectStarted)
    told = audit(stage)
    probes = sum(isinstance(entry, s.BreakerProbed) for entry in told)
    stage.result.met(probes)
    stage.result.points += probes
    one_at_a_time(stage, told)
    most = WORKERS * TOGETHER + probes
    stage.result.must(during <= most, f"{during} calls in the outage, where {most} were in flight or probes")
    stage.result.must(probes <= MINUTES, f"{probes} probes in {MINUTES} minutes")
    stage.outside.obey(Rules(clock_ms=stage.outside.rules.clock_ms))
    for _ in range(AFTERWARDS):
        stage.outside.advance("5m")
        stage.until(lambda: quiet(stage), "all rest, or have ended")
    stage.until(lambda: all(run.status == "done" for run in stage.runs()), "no run is lost")
    stop(stage, workers)
    judged(stage, tool)


def quiet(stage: Stage) -> bool:
    """Whether nobody holds a run, and none is due."""
    now = stage.outside.clock.now()
    return all(run.owner is None and (run.due is None or run.due > now) for run in stage.runs())


def audit(stage: Stage) -> list[e.Entry]:
    """Return the entries of the store's own journal."""
    _, stored, _ = stage.ask(lambda store: store.chain("system"))
    return [codec.decode(one.body) for one in stored]


def one_at_a_time(stage: Stage, told: list[e.Entry]) -> None:
    """Check that no probe was made while another one was under way."""
    for before, after in pairwise(told):
        both = isinstance(before, s.BreakerProbed) and isinstance(after, s.BreakerProbed)
        stage.result.must(not both, f"two probes at once: {before}, {after}")


def judged(stage: Stage, tool: str) -> None:
    """Check what is left: each applied once, its money spent once and nothing reserved, and no stampede."""
    one_at_a_time(stage, audit(stage))
    names = [line.name for line in stage.outside.lines()]
    stage.result.must(sorted(names) == sorted(f"{tool}-{number}" for number in range(RUNS)), f"applied {names}")
    stage.result.must(not stage.ask(lambda store: store.switches()), "something is still held")
    claims = stage.count(e.Claimed)
    stage.result.must(claims <= RUNS * CLAIMS_EACH, f"{claims} claims: the runs did not rest")
    spent = [entry.spent for entry in stage.all_entries() if isinstance(entry, e.EffectConfirmed)]
    stage.result.must(len(spent) == RUNS, f"{len(spent)} confirmed")

    async def ledgers(app: mp.App) -> list[tuple[Any, Any]]:
        return [((await app.inspect.detail(run.id)).spent, (await app.inspect.detail(run.id)).reserved) for run in runs]

    runs = stage.runs()
    cost = {"usd": "1"} if tool == "charge" else {}
    found = [one for one in stage.client(ledgers) if one != (cost, {})]
    stage.result.must(not found, f"spent and reserved: {found[:3]}")
    stage.judge("after the outage")


# ---------------------------------------------------------------- a kill that nothing answers


class Supervised:
    """A `milepost worker` with its supervisor."""

    def __init__(self, stage: Stage, frozen: str) -> None:
        path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
        command = [
            sys.executable, "-m", "milepost", "worker", "--app", "faults.held", "--grace", f"{GRACE_S:g}s",
            "--frozen", frozen,
        ]  # fmt: skip
        environment = {**os.environ, "PYTHONPATH": path, "FAULTS_FOLDER": str(stage.folder)}
        self.log = stage.folder / "worker.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
        stage.until(lambda: " drives " in self.log.read_text(), "the worker drives", within_s=40)
        self.worker = self._child()

    def _child(self) -> int:
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(FileNotFoundError, ProcessLookupError):
                if int(path.read_text().rpartition(")")[2].split()[1]) == self.process.pid:
                    return int(path.parent.name)
        raise AssertionError("the supervisor has no worker")

    @property
    def dead(self) -> bool:
        """Whether the process that held the calls is gone."""
        with suppress(FileNotFoundError, ProcessLookupError):
            return Path(f"/proc/{self.worker}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        return True

    def end(self) -> None:
        """End both."""
        self.process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        self.process.kill()
        self.process.wait()


def kill_in_the_dark(stage: Stage) -> None:
    """Kill a run with calls in flight in threads; while the event loop stands; while the store is locked."""
    how = ["", "blocking", "locking"][stage.seed % 3]
    stage.outside.obey(Rules(script=(Toxic("drop"),) * CALLS))
    worker = Supervised(stage, "1500ms" if how == "locking" else "60s")
    try:
        run_id = started(stage, "twenty")
        stage.until(lambda: len(stage.outside.lines()) == CALLS, "all are in flight")
        if how:
            started(stage, how)
            mark = stage.folder / f"{how.removesuffix('ing')}-once"
            stage.until(mark.exists, f"the worker is {how}")
        killed(stage, worker, run_id)
    finally:
        worker.end()
    stage.judge("after the kill")


def started(stage: Stage, name: str) -> str:
    """Start a run of the held app, whose module only the worker imports; return its id."""
    command = [sys.executable, "-m", "milepost", "start", name, "null", "--app", "faults.held", "--json"]
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    environment = {**os.environ, "PYTHONPATH": path, "FAULTS_FOLDER": str(stage.folder)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=True)
    return str(done.stdout.partition('"run": "')[2].partition('"')[0])


def killed(stage: Stage, worker: Supervised, run_id: str) -> None:
    """Kill the run from here, and check what follows."""
    unknown = stage.ask(lambda store: _kill(store, run_id))
    returned = time.monotonic()
    sent = len(stage.outside.requests())
    stage.result.must(len(unknown) == CALLS, f"the kill lists {len(unknown)} of {CALLS} as unknown")
    stage.until(lambda: worker.dead, "the worker is dead")
    took = time.monotonic() - returned
    if not stage.result.must(took <= GRACE_S + LATE_S, f"the worker died {took:.1f} s after the kill"):
        stage.result.slow = True
    stage.result.met(worker.dead)
    stage.until(lambda: worker.log.read_text().count(" drives ") > 1, "another worker has begun", within_s=40)
    time.sleep(QUIET_S)
    stage.result.must(len(stage.outside.requests()) == sent == CALLS, "something was sent after the kill")
    stage.result.must(stage.ask(lambda store: store.run(run_id)).status == "killed", "it is not killed any more")
    left = [effect.outcome for effect in stage.open_effects() if effect.run_id == run_id]
    stage.result.must(left == ["unknown"] * CALLS, f"left open: {left}")
    stage.result.points += len(left)


async def _kill(store: Any, run_id: str) -> list[tuple[str, str]]:
    async def write(operation: Any) -> Any:
        (answer,) = await store.commit([operation])
        if isinstance(answer, Exception):
            raise answer
        return answer

    operator = Operator(store, write, lambda: time.time_ns() // 1_000_000)
    return await operator.kill(run_id, why="nothing answers", by="ann")


FAULTS = (
    Fault(
        23,
        f"a provider is away for {MINUTES} minutes",
        f"{RUNS} runs in {WORKERS} workers; a proxy answers 500 or 503 for {MINUTES} minutes by the clock, then all is "
        "well",
        "the breaker opens; one probe at a time; held calls reserve and spend nothing; no run is lost, none claimed "
        "again and again; each applied once",
        outage,
        tries=6,
        smoke=1,
        least=4,
    ),
    Fault(
        24,
        f"a kill while {CALLS} calls are in flight",
        "calls that never hear an answer, in threads; in turn with the event loop blocked, and with the store's lock "
        "held inside a transaction",
        f"nothing is sent after the kill has returned; the worker is dead within its grace; all {CALLS} unknown; "
        "nothing resumes by itself",
        kill_in_the_dark,
        tries=9,
        smoke=3,
        least=8,
    ),
)
