"""A task, the calls that solve it, and what a suite of tasks must offer. This needs no agentdojo."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

READS = frozenset(
    {
        "get_balance",
        "get_iban",
        "get_most_recent_transactions",
        "get_scheduled_transactions",
        "get_user_info",
        "read_file",
    }
)
"""The banking functions that change nothing. Every other one is consequential."""


@dataclass(frozen=True)
class GroundTruthCall:
    """One call that the suite's authors wrote down as part of a task's solution."""

    function: str
    args: dict[str, Any]


@dataclass(frozen=True)
class Task:
    """One user task: its id, what a user asked, the calls that solve it and the answer that goes with them."""

    id: str
    prompt: str
    calls: tuple[GroundTruthCall, ...]
    answer: str

    @property
    def consequential(self) -> tuple[int, ...]:
        """The positions of the calls that change something, in order."""
        return tuple(at for at, call in enumerate(self.calls) if call.function not in READS)


class Functions(Protocol):
    """What a bank is made of: functions from an environment (as JSON) to the next one and an answer."""

    def call_function(self, environment: str, function: str, args: Mapping[str, Any]) -> tuple[str, Any]:
        """The environment after one function ran on it, and what it returned. Raises whatever the function raises."""


class Suite(Functions, Protocol):
    """Tasks, the environment that each starts from, and the check that says whether it was solved."""

    def initial_environment(self, task: Task) -> str:
        """The environment that the task starts from, as JSON."""

    def utility(self, task: Task, before: str, after: str) -> bool:
        """Whether the environment `after` shows the task as solved."""


def canonical(value: Any) -> str:
    """One JSON text for equal values, whatever the order of their keys, and whether a number is written 1 or 1.0."""
    return json.dumps(_whole(value), sort_keys=True, ensure_ascii=False)


def _whole(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _whole(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_whole(one) for one in value]
    return value
