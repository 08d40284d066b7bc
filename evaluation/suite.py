"""The suite as others wrote it: its tasks, their ground-truth calls, its banking functions and its utility check.

Only this file and `evaluation/agentdojo_outside.py` import agentdojo. A worker never does: it sees the calls as data
and the bank over HTTP.
"""

import importlib.metadata
from collections.abc import Mapping
from functools import cache
from typing import Any

from agentdojo.functions_runtime import FunctionsRuntime
from agentdojo.task_suite.load_suites import get_suite
from pydantic import BaseModel

from evaluation.task import GroundTruthCall, Task

VERSION = "v1.2.2"
SUITE = "banking"


@cache
def _suite() -> Any:
    return get_suite(VERSION, SUITE)


@cache
def _functions() -> Any:
    return FunctionsRuntime(_suite().tools)


def package_version() -> str:
    """The installed version of the agentdojo distribution."""
    return importlib.metadata.version("agentdojo")


def tasks() -> list[Task]:
    """Every user task of the suite, in the suite's order."""
    found = []
    for name, task in _suite().user_tasks.items():
        truth = task.ground_truth(_environment_of(task))
        calls = tuple(GroundTruthCall(call.function, dict(call.args)) for call in truth)
        found.append(Task(name, task.PROMPT, calls, task.GROUND_TRUTH_OUTPUT))
    return found


def initial_environment(task: Task) -> str:
    """The environment that the task starts from, as JSON."""
    return str(_environment_of(_suite().user_tasks[task.id]).model_dump_json())


def call_function(environment: str, function: str, args: Mapping[str, Any]) -> tuple[str, Any]:
    """The environment (as JSON) after one of the suite's functions ran on it, and what the function returned.

    Raises what the suite raises: `ToolNotFoundError`, pydantic's `ValidationError`, or the function's own error.
    """
    before = _suite().environment_type.model_validate_json(environment)
    returned, _ = _functions().run_function(before, function, args, raise_on_error=True)
    return before.model_dump_json(), _plain(returned)


def utility(task: Task, before: str, after: str) -> bool:
    """The suite's own verdict on the environment `after`, given the answer of its ground truth."""
    theirs = _suite().user_tasks[task.id]
    environments = [_suite().environment_type.model_validate_json(text) for text in (before, after)]
    # The suite asks the traces first and falls back to the environments; so do we.
    verdict = theirs.utility_from_traces(task.answer, *environments, theirs.ground_truth(environments[0]))
    return bool(theirs.utility(task.answer, *environments) if verdict is None else verdict)


def _environment_of(task: Any) -> Any:
    return task.init_environment(_suite().load_and_inject_default_environment({}))


def _plain(returned: Any) -> Any:
    if isinstance(returned, BaseModel):
        return returned.model_dump(mode="json")
    if isinstance(returned, list):
        return [_plain(one) for one in returned]
    return returned
