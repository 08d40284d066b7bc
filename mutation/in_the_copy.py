"""A pytest plugin for the copy that mutmut works in: the quick tests of a mutant first, the slow ones only if asked.

Most mutants are killed by any test that reaches them; the slow tests wait for real time and are needed for few. So all
mutants meet the quick ones, and only those that survive them meet the slow ones. How long a test takes is what mutmut
measured when it looked which tests reach which function.

A mutant that was stopped because a test took too long is not counted like one that a test refuted: it may be the
machine that was slow. It ends with a code of its own, and is tried once more.

mutmut calls a mutated function through two more, so the stack may be three times as deep.
"""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

STATS = Path("mutmut-stats.json")  # mutmut takes out of it what a run does not ask for
MEASURED = Path("measured.json")  # so this is kept: all tests, as they were measured first
WHICH = "MUTANTS_MEET"  # "quick" or "slow"; not set: all
QUICK_S = 0.5
TOO_LONG = 36  # mutmut's own code for what was stopped by the clock
STOPPED = "from pytest-timeout"
HANGING_S = 10  # a test that takes so much longer than five times what it took is stopped: its mutant hangs

_failed: set[str] = set()  # each mutant has a process of its own

sys.setrecursionlimit(4 * sys.getrecursionlimit())


def measured(path: Path) -> dict[str, float]:
    """Return how many seconds each test took."""
    seconds: dict[str, float] = json.loads(path.read_text(encoding="utf-8"))["duration_by_test"]
    return seconds


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the items in order, and leave out those that this run does not ask for."""
    if not MEASURED.exists():
        if not STATS.exists():
            return
        shutil.copy(STATS, MEASURED)
    seconds = measured(MEASURED)
    items.sort(key=lambda item: seconds.get(item.nodeid, 0.0))
    for item in items:
        item.add_marker(pytest.mark.timeout(HANGING_S + 5 * seconds.get(item.nodeid, 0.0)))
    which = os.environ.get(WHICH)
    if which is not None:
        wanted = [item for item in items if (seconds.get(item.nodeid, 0.0) < QUICK_S) == (which == "quick")]
        config.hook.pytest_deselected(items=[item for item in items if item not in wanted])
        items[:] = wanted


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note that a test was stopped by the clock, and that another one failed by itself."""
    if report.failed:
        _failed.add(STOPPED if STOPPED in report.longreprtext else report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Say so where nothing but the clock spoke against a mutant."""
    if _failed == {STOPPED}:
        session.exitstatus = TOO_LONG
