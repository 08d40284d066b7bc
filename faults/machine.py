"""A machine whose wall clock is wrong: what a process reads as the time, whoever reads it there."""

from __future__ import annotations

import time
from pathlib import Path

from faults.tools import Setup
from milepost.testing.world import rules


def run_on(setup: Setup, skew_ms: int) -> None:
    """Let this process run on the machine whose clock a try moves, and some milliseconds off it."""
    truly, folder, name = time.time_ns, Path(setup.world), setup.clock or setup.account

    def told() -> int:
        return truly() + (rules.read(folder, name).clock_ms + skew_ms) * 1_000_000

    time.time_ns = told
    time.time = lambda: told() / 1e9
