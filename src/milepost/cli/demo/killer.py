"""Runs a worker, sends it SIGKILL at seeded moments, and starts it again, until the work is done.

A *life* is the time from a start of the worker to its end. The moment of each kill is drawn before the life begins:

* Most kills come some time after the life's first new step, so that work moves on; the others come soon after the
  start, while the worker imports, recovers or reconciles.
* Most kills are aimed: they then wait, for a bounded time, until an effect that is worth it is in flight. Whether any
  was is judged after the process is dead, when nothing can change any more. An attempt that an earlier kill left behind
  does not count again.
* A life is cut short when the work would otherwise be done before the wanted number of kills.

Once both numbers are reached, the worker is left alone to finish. Everything is bounded: the kills, the failures of the
worker's own, and the time. Only the process that was started here is ever signalled, by its id.
"""

import random
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from milepost.cli.demo.failure import DemoFailed

_LOOK_SECONDS = 0.004


@dataclass(frozen=True)
class Plan:
    """How to kill. Times are in seconds.

    Killing goes on until `kills` are made and `on_effect` of them landed on an effect in flight, but stops at
    `most_kills` and after `killing_time`. Past `whole_time` the demo fails. `steps` is the number of steps that the
    whole work has, and paces the kills over it.
    """

    seed: int
    steps: int
    kills: int = 20
    on_effect: int = 10
    most_kills: int = 40
    life: tuple[float, float] = (0.05, 0.6)
    early_life: tuple[float, float] = (0.05, 0.6)
    early_share: float = 0.15
    aimed_share: float = 0.8
    patience: float = 0.4
    linger: tuple[float, float] = (0.0, 0.12)
    warm_up: float = 6.0
    killing_time: float = 90.0
    whole_time: float = 180.0
    most_crashes: int = 3


@dataclass(frozen=True)
class Kill:
    """One kill: how many seconds the process had lived, and whether an effect was in flight when it died."""

    pid: int
    lived: float
    on_effect: bool


@dataclass
class Report:
    """What the killer did, and the number of `steps` that it saw begun.

    `first_steps` has, for each restart that got so far, the seconds from the process's start to its first new step.
    """

    steps: int = 0
    kills: list[Kill] = field(default_factory=list)
    first_steps: list[float] = field(default_factory=list)
    crashes: int = 0
    seconds: float = 0.0

    @property
    def on_effect(self) -> int:
        """How many kills landed on an effect in flight."""
        return sum(kill.on_effect for kill in self.kills)

    @property
    def restarts(self) -> int:
        """How often the worker was started again."""
        return len(self.kills) + self.crashes


@dataclass(frozen=True)
class _Wish:
    """How one life should end: `after` seconds from the start (`early`) or from the first new step."""

    early: bool
    after: float
    aimed: bool
    linger: float  # how long an aimed kill lets the effect go on


class Killer:
    """Runs `argv` to its end, killing it on the way.

    `progress` says how many steps have begun so far. `in_flight` names each attempt at an effect that has started and
    of which nothing more is recorded; an aimed kill waits for one that is `worth` it. `on_look` is called on each look
    at the worker, a few hundred times a second.
    """

    def __init__(
        self,
        argv: Sequence[str],
        plan: Plan,
        *,
        progress: Callable[[], int],
        in_flight: Callable[[], Collection[str]],
        log: Path,
        worth: Callable[[str], bool] = lambda _: True,
        on_look: Callable[[Report], None] = lambda _: None,
    ) -> None:
        self._argv = list(argv)
        self._plan = plan
        self._progress = progress
        self._in_flight = in_flight
        self._left_behind: frozenset[str] = frozenset()
        self._log = log
        self._worth = worth
        self._on_look = on_look
        self._random = random.Random(plan.seed)
        self._report = Report()
        self._began = 0.0

    def run(self) -> Report:
        """Start, kill and restart the worker until it ends by itself with status 0.

        `DemoFailed` when it fails by itself too often, or does not end in the plan's time. No process is left behind.
        """
        self._began = time.monotonic()
        ended = False
        while not ended:
            with self._log.open("ab") as log:
                worker = subprocess.Popen(self._argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)  # noqa: S603
            try:
                ended = self._live(worker)
            finally:
                worker.kill()
                worker.wait()
        self._report.steps = self._progress()
        self._report.seconds = time.monotonic() - self._began
        return self._report

    def _live(self, worker: subprocess.Popen[bytes]) -> bool:
        """Follow one life to its end; True when the worker ended its work."""
        started, first_step, before = time.monotonic(), None, self._progress()
        wish = self._draw()
        while worker.poll() is None:
            now, done = time.monotonic(), self._progress()
            self._report.steps = done
            if first_step is None and done > before:
                first_step = now
                self._note_first_step(now - started)
            if now - self._began > self._plan.whole_time:
                raise DemoFailed("the worker", f"it was not done after {self._plan.whole_time:.0f} s", str(self._log))
            if self._wants_more(now) and self._is_due(wish, now, started, first_step, done):
                return self._kill(worker, wish, started)
            self._on_look(self._report)
            time.sleep(_LOOK_SECONDS)
        return self._ended(worker.returncode)

    def _draw(self) -> _Wish:
        # All draws of a life are made at once, so that their number never depends on how the life goes.
        early = self._random.random() < self._plan.early_share
        after = self._random.uniform(*(self._plan.early_life if early else self._plan.life))
        aimed = self._random.random() < self._plan.aimed_share
        return _Wish(early, after, aimed=aimed and not early, linger=self._random.uniform(*self._plan.linger))

    def _wants_more(self, now: float) -> bool:
        kills = len(self._report.kills)
        satisfied = kills >= self._plan.kills and self._report.on_effect >= self._plan.on_effect
        return not satisfied and kills < self._plan.most_kills and now - self._began < self._plan.killing_time

    def _is_due(self, wish: _Wish, now: float, started: float, first_step: float | None, done: int) -> bool:
        if wish.early:
            return now - started >= wish.after
        if first_step is None:
            return now - started >= self._plan.warm_up
        # The share of the work that this life may leave behind, so that enough work remains for the kills to come.
        allowed = self._plan.steps * (len(self._report.kills) + 1) / (self._plan.kills + 2)
        return now - first_step >= wish.after or done >= allowed

    def _kill(self, worker: subprocess.Popen[bytes], wish: _Wish, started: float) -> bool:
        if wish.aimed:
            self._await_effect(worker)
            time.sleep(wish.linger)
        worker.send_signal(signal.SIGKILL)
        status = worker.wait()
        if status != -signal.SIGKILL:
            return self._ended(status)
        lived = time.monotonic() - started
        hit = self._new_in_flight()
        self._report.kills.append(Kill(worker.pid, lived, on_effect=bool(hit)))
        self._left_behind |= hit
        self._on_look(self._report)
        return False

    def _await_effect(self, worker: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + self._plan.patience
        while worker.poll() is None and time.monotonic() < deadline:
            if any(self._worth(name) for name in self._new_in_flight()):
                return
            time.sleep(_LOOK_SECONDS)

    def _new_in_flight(self) -> frozenset[str]:
        return frozenset(self._in_flight()) - self._left_behind

    def _note_first_step(self, seconds: float) -> None:
        if self._report.restarts:
            self._report.first_steps.append(seconds)

    def _ended(self, status: int) -> bool:
        if status == 0:
            return True
        self._report.crashes += 1
        if self._report.crashes > self._plan.most_crashes:
            raise DemoFailed("the worker", f"it failed by itself {self._report.crashes} times", str(self._log))
        return False
