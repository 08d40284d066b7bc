"""What Milepost is tested with, shipped so that users test their own workflows, tools and stores with it.

    from milepost.testing import World, crash_everywhere

Its parts, of which only the last two need pytest:

  manual_clock        time that only a test moves, and chance that repeats
  world               outside services in processes of their own, with faults on purpose and ledgers of what they did
  crashing            a workflow killed at every point of it in turn: `crash_everywhere`, `crash_at`
  scenarios           answers that are lost, requests that land late, a slow owner, a long outage
  check               journals against such a ledger: nothing lost, nothing repeated
  power_cut           what a disk may hold after the power went
  pytest_plugin       fixtures, and the seed of a failure
  store_conformance   what every store must do, as pytest classes

The names below are loaded when they are first asked for: pytest loads its plugin in every test run where Milepost is
installed, and what needs nothing of it must not wait for it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from milepost.testing.check import Applied, Violation
    from milepost.testing.crashing.everywhere import Options, crash_at, crash_everywhere
    from milepost.testing.crashing.points import NoSuchPoint
    from milepost.testing.crashing.report import Broken, Report, Unreliable
    from milepost.testing.crashing.worker import Outside, Outsides
    from milepost.testing.manual_clock import ManualClock
    from milepost.testing.scenarios import answer_lost, late_commit, long_outage, slow_owner
    from milepost.testing.world import Account, Rules, Toxic, World

__all__ = [
    "Account",
    "Applied",
    "Broken",
    "ManualClock",
    "NoSuchPoint",
    "Options",
    "Outside",
    "Outsides",
    "Report",
    "Rules",
    "Toxic",
    "Unreliable",
    "Violation",
    "World",
    "answer_lost",
    "crash_at",
    "crash_everywhere",
    "late_commit",
    "long_outage",
    "slow_owner",
]

_HOMES = {
    "check": "Applied Violation",
    "crashing.everywhere": "Options crash_at crash_everywhere",
    "crashing.points": "NoSuchPoint",
    "crashing.report": "Broken Report Unreliable",
    "crashing.worker": "Outside Outsides",
    "manual_clock": "ManualClock",
    "scenarios": "answer_lost late_commit long_outage slow_owner",
    "world": "Account Rules Toxic World",
}
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}

if not TYPE_CHECKING:  # where a checker sees it, every misspelt name would pass

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            msg = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(msg)
        value = globals()[name] = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
