"""What passes between Temporal's workflow, our activities and whoever wakes a run: ids, statuses, numbers.

All of it stands in Temporal's history, so nothing of a run's input, state, results or texts may ever be among it.
Fields are only added, each with a default: a history that was written by an older version is read by a newer one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

WORKFLOW = "milepost.run"
ADVANCE = "milepost.advance"
CANCEL = "milepost.cancel"
WAKE = "milepost.wake"
TASK_QUEUE = "milepost"
UNKNOWN_RUN = "UnknownRun"


@dataclass(frozen=True)
class Pace:
    """How a run is driven. It is written into the run's workflow when that starts, and stays as it is there.

    An activity ends after `segments` boundaries at the latest; one whose worker was not heard of for `heartbeat_s`
    seconds is tried again; a run that waits for no moment is looked at every `again_s` seconds, in case nobody told;
    after `rounds` activities the workflow goes on with a history of its own.
    """

    segments: int = 20
    heartbeat_s: float = 10.0
    again_s: float = 86_400.0
    rounds: int = 100


@dataclass(frozen=True)
class Order:
    """What a workflow is given: the run to drive, and how."""

    run: str
    pace: Pace = field(default_factory=Pace)


@dataclass(frozen=True)
class Advance:
    """What an activity is given."""

    run: str
    segments: int


@dataclass(frozen=True)
class Where:
    """Where an activity left a run. `wait_ms` is None where it waits for no moment, 0 where it goes on at once."""

    status: str
    reason: str = ""
    wait_ms: int | None = None
    ended: bool = False


@dataclass(frozen=True)
class Wake:
    """News of a run: it can move. `lost` says that who held it under `epoch` is gone."""

    epoch: int = 0
    lost: bool = False
