"""Rounds of work between two slices of the baseline, and what is said about them in the table.

A ratio is to the slices right before and after the work, and the median of the rounds is shown: a machine that others
use too wanders by a quarter within seconds, and a ratio to a baseline of a minute ago would say little.
"""

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarks.baseline import commits
from benchmarks.timing import Slice, Work, timed


@dataclass(frozen=True)
class Target:
    """What a figure has to reach: `least` or `most`, and of what, for the reader."""

    kind: Literal["least", "most"]
    value: float
    unit: str

    def met(self, measured: float) -> bool:
        """Whether a measured value reaches it."""
        return measured >= self.value if self.kind == "least" else measured <= self.value

    def __str__(self) -> str:
        return f"{'≥' if self.kind == 'least' else '≤'} {self.value:g} {self.unit}"


@dataclass(frozen=True)
class Row:
    """One line of the table: what was done, the figure, how it stands to the baselines, and whether that is enough."""

    work: str
    figure: str
    fresh: float | None = None
    extended: float | None = None
    cpu_us: float | None = None
    target: Target | None = None
    met: bool | None = None

    @property
    def verdict(self) -> str:
        """`met`, `missed`, or nothing where there is no target or no measurement."""
        return "" if self.met is None else "met" if self.met else "missed"


@dataclass(frozen=True)
class Bench:
    """How to measure: rounds of each work, a factor on the amount of work, and the folder (on a disk) to do it in."""

    rounds: int
    scale: float
    folder: Path

    def amount(self, count: int, least: int = 20) -> int:
        """A count of units, scaled, and at least `least`."""
        return max(least, round(count * self.scale))

    def rate_row(
        self, name: str, work: Work, unit: str, target: Target | None = None, rounds: int | None = None
    ) -> Row:
        """Time the work between baseline slices, in rounds, and judge its median ratio to the fresh log."""
        rates: list[Slice] = []
        to_fresh: list[float] = []
        to_extended: list[float] = []
        before = self._baseline()
        for _ in range(rounds or self.rounds):
            done = timed(work, self.folder)
            after = self._baseline()
            rates.append(done)
            to_fresh.append(done.rate / statistics.mean((before[0], after[0])))
            to_extended.append(done.rate / statistics.mean((before[1], after[1])))
            before = after
        ratio = statistics.median(to_fresh)
        return Row(
            name,
            f"{statistics.median(done.rate for done in rates):,.0f} {unit}",
            fresh=ratio,
            extended=statistics.median(to_extended),
            cpu_us=statistics.median(done.cpu / done.count * 1e6 for done in rates),
            target=target,
            met=None if target is None else target.met(ratio),
        )

    def _baseline(self) -> tuple[float, float]:
        """Bare commits a second just now: on a fresh log, on a pre-extended one."""
        count = self.amount(1000)
        fresh, extended = (timed(commits(count, extended=one), self.folder).rate for one in (False, True))
        return fresh, extended

    def baseline_rows(self) -> list[Row]:
        """The yardstick itself, for the reader: the two logs against each other."""
        return [
            self.rate_row(f"bare commits, {log} log", commits(self.amount(1000), extended=log != "fresh"), "commits/s")
            for log in ("fresh", "pre-extended")
        ]


def judged(work: str, figure: str, measured: float, target: Target) -> Row:
    """A row whose target is about the measured value itself and not about a ratio to the baseline."""
    return Row(work, figure, target=target, met=target.met(measured))
