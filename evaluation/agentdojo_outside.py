"""The outside world of the sweep, over all suites of AgentDojo: its tasks, environments, functions and verdicts.

Together with `evaluation/suite.py` the only file that imports agentdojo.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from agentdojo.default_suites.v1.tools import cloud_drive_client, email_client
from agentdojo.functions_runtime import FunctionsRuntime
from agentdojo.task_suite.load_suites import get_suite
from pydantic import BaseModel

from evaluation.classes import CLASSES
from evaluation.outside import serve
from evaluation.suite import VERSION
from evaluation.task import GroundTruthCall

SUITES = ("banking", "slack", "travel", "workspace")

NOW = dt.datetime(2024, 5, 15, 12, 0)  # noqa: DTZ001 - the suites' moments have no zone
"""When everything happens: two runs that do the same must leave the same environment."""


def stop_the_clock() -> None:
    """Mails and files are dated by the wall clock: give their modules one that stands still."""
    stopped = SimpleNamespace(datetime=SimpleNamespace(now=lambda: NOW))
    for module in (email_client, cloud_drive_client):
        module.datetime = stopped


class Dojo:
    """The suites, each loaded once; every task begins with a deep copy."""

    def __init__(self) -> None:
        self._suites = {name: get_suite(VERSION, name) for name in SUITES}
        self._functions = {name: FunctionsRuntime(suite.tools) for name, suite in self._suites.items()}
        if unclassed := {name for known in self._functions.values() for name in known.functions} - set(CLASSES):
            raise LookupError(f"no class for {', '.join(sorted(unclassed))}")
        self._first = {name: suite.load_and_inject_default_environment({}) for name, suite in self._suites.items()}

    def tasks(self) -> Mapping[str, Sequence[GroundTruthCall]]:
        """Every user task of every suite, and its ground truth."""
        found = {}
        for suite in SUITES:
            for id_, task in self._suites[suite].user_tasks.items():
                truth = task.ground_truth(self.begin(f"{suite}/{id_}"))
                found[f"{suite}/{id_}"] = [GroundTruthCall(call.function, dict(call.args)) for call in truth]
        return found

    def begin(self, task: str) -> Any:
        """The environment as the task wants it."""
        return self._task(task).init_environment(self._first[_suite(task)].model_copy(deep=True))

    def call(self, task: str, environment: Any, function: str, args: Mapping[str, Any]) -> Any:
        """Run one of the suite's functions. Raises whatever it raises."""
        returned, _ = self._functions[_suite(task)].run_function(environment, function, args, raise_on_error=True)
        return _plain(returned)

    @staticmethod
    def show(environment: Any) -> str:
        """Every field of the environment."""
        return str(environment.model_dump_json())

    def useful(self, task: str, before: Any, after: Any) -> bool:
        """The suite's verdict, given the answer that belongs to its ground truth."""
        theirs = self._task(task)
        truth = theirs.ground_truth(self.begin(task))
        # The suite asks the traces first and falls back to the environments; so do we.
        verdict = theirs.utility_from_traces(theirs.GROUND_TRUTH_OUTPUT, before, after, truth)
        return bool(theirs.utility(theirs.GROUND_TRUTH_OUTPUT, before, after) if verdict is None else verdict)

    def _task(self, name: str) -> Any:
        return self._suites[_suite(name)].user_tasks[name.partition("/")[2]]


def _suite(task: str) -> str:
    return task.partition("/")[0]


def _plain(returned: Any) -> Any:
    if isinstance(returned, BaseModel):
        return returned.model_dump(mode="json")
    if isinstance(returned, list):
        return [_plain(one) for one in returned]
    if isinstance(returned, dict):
        return {key: _plain(one) for key, one in returned.items()}
    return returned


if __name__ == "__main__":
    stop_the_clock()
    serve(Dojo())
