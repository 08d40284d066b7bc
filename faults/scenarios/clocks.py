"""Fault 20: clocks that jump, go apart, start elsewhere, or stand still while a machine sleeps."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys

from faults.lives import ROOT
from faults.scenarios.killing import TWENTY
from faults.scenarios.workers import begin, rests, stop
from faults.scoreboard import Fault
from faults.stage import SECONDS_MOST, Stage
from faults.strace import ToolMissing
from faults.tools import UNHEARD_S
from faults.worker import SKEW
from milepost.core import entries as e
from milepost.testing.world import Rules

DAY_MS = 86_400_000
REQUESTS = 16
SHARED = 6
HANGS_S = 50.0


def wrong_clocks(stage: Stage) -> None:
    """Let a clock go wrong in the way that the seed means."""
    (jumps, jumps, sleeps, apart, starts_elsewhere)[stage.seed % 5](stage)


def jumps(stage: Stage) -> None:
    """The wall clock jumps a day ahead or back in the middle of a run, while answers are lost as well."""
    jump = stage.chance.choice([DAY_MS, -DAY_MS])
    at = stage.chance.randrange(1, REQUESTS)
    stage.declare(hears_s=UNHEARD_S, key_ttl="3d", tries=5)
    stage.outside.obey(Rules(seed=stage.seed, spares=("irreversible", "MAIL")))
    machine = stage.machine()
    life = stage.start("run", "twenty", "", "x")
    stage.until(lambda: len(stage.outside.met()) >= at or life.code is not None, "work goes on", within_s=HANGS_S)
    machine.advance(jump)
    stage.result.met(life.code is None)
    stage.until(lambda: life.code is not None, f"the run ends although the clock jumped by {jump} ms", within_s=HANGS_S)
    end(stage)


def sleeps(stage: Stage) -> None:
    """The machine is suspended for a day: the worker stands still, and the clock does not."""
    at = stage.chance.randrange(1, REQUESTS)
    life = stage.start("run", "twenty", "", "x")
    stage.until(lambda: len(stage.outside.met()) >= at or life.code is not None, "work goes on")
    life.send(signal.SIGSTOP)
    stage.until(lambda: life.stopped or life.code is not None, "it stands still")
    stage.outside.advance(DAY_MS)
    stage.result.met(life.code is None)
    life.send(signal.SIGCONT)
    stage.until(lambda: life.code is not None, "the run ends when the machine wakes", within_s=HANGS_S)
    end(stage)


def apart(stage: Stage) -> None:
    """Two workers share runs, and the clock of one is a day ahead or behind."""
    skew = stage.chance.choice([DAY_MS, -DAY_MS])
    stage.declare(key_ttl="3d")
    for tool in ("charge", "ship"):
        begin(stage, tool, SHARED // 2)
    workers = [stage.start("serve", environment={SKEW: str(by)}) for by in (0, skew)]
    stage.until(lambda: all(rests(run) for run in stage.runs()), "all runs are done", within_s=HANGS_S)
    stop(stage, workers)
    stage.judge(f"one clock is {skew} ms ahead")
    states = {run.status for run in stage.runs()}
    stage.result.must(states == {"done"}, f"runs are {states}")
    stage.result.must(len(stage.outside.lines()) == SHARED, f"applied {len(stage.outside.lines())} of {SHARED}")
    owners = {entry.owner for entry in stage.all_entries() if isinstance(entry, e.Claimed)}
    stage.result.points += len(owners)


def starts_elsewhere(stage: Stage) -> None:
    """A worker is killed, and the next one finds a monotonic clock a day ahead, as a restart would the other way."""
    unshare = shutil.which("unshare")
    if unshare is None:
        raise ToolMissing("unshare is not installed: it belongs to util-linux")
    life = stage.start("run", "twenty", "", "x")
    at = stage.chance.randrange(1, REQUESTS)
    stage.until(lambda: len(stage.outside.met()) >= at or life.code is not None, "work goes on")
    life.send(signal.SIGKILL)
    stage.ended(life)
    rights = [] if os.geteuid() == 0 else ["--map-root-user"]
    shifted = [unshare, *rights, "--time", "--monotonic", "86400", "--boottime", "86400", "--fork", "--kill-child"]
    done = subprocess.run(
        [*shifted, sys.executable, "-m", "faults.worker", str(stage.folder), "run", "twenty", "", "x"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])},
        capture_output=True,
        text=True,
        timeout=SECONDS_MOST,
        check=False,
    )
    if "unshare" in done.stderr:
        raise ToolMissing(f"no namespace for clocks is to be had here: {done.stderr.strip()}")
    stage.result.met(done.returncode == 0)
    stage.result.must(done.returncode == 0, f"the worker ended with {done.returncode}: {done.stderr[-300:]}")
    end(stage)


def end(stage: Stage) -> None:
    """Finish the run, and check that it paid for each effect once and keeps no money back."""
    stage.done("twenty", result=TWENTY)
    (run,) = stage.runs()
    detail = stage.client(lambda app: app.inspect.detail(run.id))
    stage.result.must(detail.spent.get("usd") == "4", f"it spent {detail.spent}, and four charges cost 1 usd each")
    stage.result.must(not detail.reserved, f"it keeps {detail.reserved} back")


FAULTS = (
    Fault(
        20,
        "clocks jump, go apart, start elsewhere, or stand still",
        "wall clock of worker and world a day ahead or back, with answers lost; SIGSTOP over a day; two workers a day "
        "apart; a time namespace with another monotonic clock",
        "nothing released early, no hang, same result, the budget spent exactly",
        wrong_clocks,
        tries=40,
        smoke=5,
    ),
)
