"""The outside world of the tests: `tests/evaluation/tiny_suite.py` and a mailbox, in a process of its own."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from evaluation.outside import serve
from evaluation.task import GroundTruthCall
from tests.evaluation import tiny_suite

LOOK, PAY, ORDER, PASSWORD = tiny_suite.LOOK, tiny_suite.PAY, tiny_suite.ORDER, tiny_suite.PASSWORD
MAIL = GroundTruthCall("send_email", {"recipients": ["ann@example.org"], "subject": "Rent", "body": "Paid."})
MISTAKE = GroundTruthCall("share_file", {})

TASKS: Mapping[str, Sequence[GroundTruthCall]] = {
    "tiny/all_classes": (LOOK, ORDER, PASSWORD, PAY, MAIL),
    "tiny/the_same_twice": (LOOK, PAY, LOOK, PAY),
    "tiny/impossible": (LOOK, MISTAKE),
}


class Tiny:
    """An environment is a dictionary; what changes it is in the tiny suite, and one function that mails."""

    # Texts with sorted keys throughout: the order in which arguments arrive is no part of what was done.

    @staticmethod
    def tasks() -> Mapping[str, Sequence[GroundTruthCall]]:
        return TASKS

    def begin(self, task: str) -> Any:
        del task
        return {"suite": tiny_suite.initial_environment(tiny_suite.LOOKING), "sent": []}

    def call(self, task: str, environment: Any, function: str, args: Mapping[str, Any]) -> Any:
        del task
        if function == "send_email":
            environment["sent"].append(dict(args))
            return {"id": len(environment["sent"])}
        environment["suite"], answer = tiny_suite.call_function(
            environment["suite"], function, dict(sorted(args.items()))
        )
        return answer

    @staticmethod
    def show(environment: Any) -> str:
        return json.dumps(environment, sort_keys=True)

    def useful(self, task: str, before: Any, after: Any) -> bool:
        for call in TASKS[task]:
            if call == MISTAKE:
                return False
            self.call(task, before, call.function, call.args)
        return bool(before == after)


if __name__ == "__main__":
    serve(Tiny())
