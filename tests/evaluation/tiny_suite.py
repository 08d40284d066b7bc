"""A suite of four tasks, one for each way in which the bank meets a request twice: an `evaluation.task.Suite`.

An environment is a balance, payments, standing orders and a password. It stands in for the suite that `make evaluate`
brings along, so that bank, kill and comparison are tried here without it.
"""

import json
from collections.abc import Mapping
from typing import Any

from evaluation.task import GroundTruthCall, Task

LOOK = GroundTruthCall("get_balance", {})
PAY = GroundTruthCall("send_money", {"recipient": "Ann", "amount": 4, "subject": "Rent", "date": "2022-04-01"})
ORDER = GroundTruthCall("schedule_transaction", {**PAY.args, "recurring": True})
PASSWORD = GroundTruthCall("update_password", {"password": "new"})

PAYING = Task("paying", "Pay the rent.", (LOOK, PAY), "")
ORDERING = Task("ordering", "Pay the rent each month.", (LOOK, ORDER), "")
CHANGING = Task("changing", "Change my password, and pay.", (PASSWORD, PAY), "")
LOOKING = Task("looking", "How much do I have?", (LOOK,), "")


def initial_environment(task: Task) -> str:
    del task
    return json.dumps({"balance": 100.0, "payments": [], "orders": [], "password": "old"})


def call_function(environment: str, function: str, args: Mapping[str, Any]) -> tuple[str, Any]:
    known = json.loads(environment)
    match function:
        case "get_balance":
            return environment, known["balance"]
        case "send_money":
            known["balance"] -= args["amount"]
            known["payments"].append({**args, "amount": float(args["amount"])})
        case "schedule_transaction":
            known["orders"].append({**args, "amount": float(args["amount"])})
        case "update_password":
            known["password"] = args["password"]
        case _:
            raise ValueError(f"no function {function}")
    return json.dumps(known), {"message": f"{function} done"}


def utility(task: Task, before: str, after: str) -> bool:
    for call in task.calls:
        before, _ = call_function(before, call.function, call.args)
    return bool(json.loads(before) == json.loads(after))
