"""Every place where a worker is to die: each call of each task, at four moments.

* `before`   `started` is durable, and the call has not left.
* `during`   the outside system has applied the call, and the answer is lost with the worker.
* `after`    the outcome is durable, and what follows the call has not run.
* `between`  the checkpoint behind the call is durable, and the next segment (or the report of the result) has not
             begun.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from evaluation.task import GroundTruthCall

Moment = Literal["before", "during", "after", "between"]

MOMENTS: tuple[Moment, ...] = get_args(Moment)


@dataclass(frozen=True)
class Ending:
    """How a task ends: environment and answers of its calls (JSON), and whether the suite calls it solved."""

    environment: str
    answers: tuple[str, ...]
    useful: bool


@dataclass(frozen=True)
class Case:
    """One task of one suite, the calls that solve it, and how it ends when the suite itself makes them.

    `broken` says why the suite's own ground truth does not get to an end, if it does not.
    """

    suite: str
    id: str
    calls: tuple[GroundTruthCall, ...]
    plain: Ending
    broken: str = ""

    @property
    def name(self) -> str:
        """The task's name across all suites."""
        return f"{self.suite}/{self.id}"

    @staticmethod
    def read(told: dict[str, Any]) -> "Case":
        """A case as the outside world tells it."""
        calls = tuple(GroundTruthCall(one["function"], one["args"]) for one in told["calls"])
        plain = Ending(told["environment"], tuple(told["answers"]), told["useful"])
        return Case(told["suite"], told["id"], calls, plain, told["broken"])


@dataclass(frozen=True)
class Point:
    """The worker of `case` dies at the call at `position` (from 0), at `moment`."""

    case: Case
    position: int
    moment: Moment

    @property
    def function(self) -> str:
        """What the call at that position calls."""
        return self.case.calls[self.position].function

    def __str__(self) -> str:
        """The place, as people read it."""
        return f"{self.case.name}, {self.moment} call {self.position + 1} ({self.function})"


def points_of(case: Case) -> list[Point]:
    """Every kill point of one task."""
    return [Point(case, at, moment) for at in range(len(case.calls)) for moment in MOMENTS]


def sample(points: Sequence[Point], size: int | None) -> list[Point]:
    """`size` of the points, spread evenly over all of them so that each moment has its turn; None for all."""
    if size is None or size >= len(points):
        return list(points)
    return [points[at * len(points) // size] for at in range(size)]
