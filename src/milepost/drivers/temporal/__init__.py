"""Temporal drives runs (extra `temporal`): `serve` is a worker, `start` starts a run; see docs/temporal.md.

Names are loaded when they are first asked for, since Temporal's sandbox imports this package anew for every workflow.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from milepost.errors import ExtraMissing

if TYPE_CHECKING:
    from milepost.drivers.temporal.clock import ServerClock
    from milepost.drivers.temporal.messages import Pace
    from milepost.drivers.temporal.serving import driving, serve
    from milepost.drivers.temporal.starting import drive, start, workflow_id

__all__ = ["Pace", "ServerClock", "drive", "driving", "serve", "start", "workflow_id"]

_WHERE = {
    "Pace": "messages",
    "ServerClock": "clock",
    "drive": "starting",
    "driving": "serving",
    "serve": "serving",
    "start": "starting",
    "workflow_id": "starting",
}


def __getattr__(name: str) -> Any:
    """Load a public name. Raises AttributeError for any other, ExtraMissing where temporalio is not installed."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("temporalio"):
            raise ExtraMissing("Temporal's drivers", "temporal") from error
        raise
