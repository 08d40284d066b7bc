"""The outside world of the sweep: the environments of all suites in a process of its own, and a ledger of each.

It stays up while workers die. Environments are kept as the live objects that the suites made, since not all of them
survive a way through JSON (an inbox builds itself anew from its first mails). What it offers a careful caller is
decided by the class of a function, in `evaluation/classes.py`. Each applied call that changes something is in the
ledger of its account, under the caller's reference.

The protocol is one JSON object a line, and one JSON object in answer: `{"refused": why}` where nothing was changed.
"""

import argparse
import copy
import json
import socketserver
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from evaluation import classes
from evaluation.task import GroundTruthCall, canonical


class World(Protocol):
    """What others wrote: tasks, environments, functions and the verdict. Names of tasks are `suite/task`."""

    def tasks(self) -> Mapping[str, Sequence[GroundTruthCall]]:
        """Every task, and the calls that solve it."""

    def begin(self, task: str) -> Any:
        """A new environment, as the task finds it."""

    def call(self, task: str, environment: Any, function: str, args: Mapping[str, Any]) -> Any:
        """Run one function on the environment, which it may change. Raises whatever the function raises."""

    def show(self, environment: Any) -> str:
        """All of the environment, as JSON."""

    def useful(self, task: str, before: Any, after: Any) -> bool:
        """Whether the suite itself calls the task solved."""


class RefusedError(Exception):
    """A request that was not executed; nothing was changed."""


@dataclass
class Account:
    """One run's environment, how it was `before`, its version, its ledger, and how many calls have arrived."""

    task: str
    before: Any
    environment: Any
    version: int = 1
    asked: int = 0
    ledger: list[dict[str, Any]] = field(default_factory=list)

    def found(self, reference: str) -> list[Any]:
        """The answers of all applied requests with this reference."""
        return [line["answer"] for line in self.ledger if line["reference"] == reference]


class Outside:
    """All accounts, changed by one request at a time."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._lock = threading.Lock()
        self._accounts: dict[str, Account] = {}

    def answer(self, request: Mapping[str, Any]) -> Any:
        """Serve one request. Raises RefusedError where nothing was done."""
        if request["do"] == "cases":
            return [self._case(name, calls) for name, calls in self._world.tasks().items()]
        if request["do"] == "close":
            return self._ending(self._accounts.pop(request["account"]))  # outside the lock: verdicts take their time
        with self._lock:
            return self._serve(request)

    def _serve(self, request: Mapping[str, Any]) -> Any:
        if request["do"] == "open":
            return self._open(request["account"], request["task"])
        account = self._accounts[request["account"]]
        match request["do"]:
            case "call":
                return self._call(account, request)
            case "version":
                return account.version
            case "find":
                return self._find(account, request["function"], request["reference"])
            case "statement":
                return {"asked": account.asked, "ledger": account.ledger}
            case other:
                raise RefusedError(f"nobody here does {other!r}")

    def _open(self, name: str, task: str) -> bool:
        if name in self._accounts:
            raise RefusedError(f"account {name} exists")
        environment = self._world.begin(task)
        self._accounts[name] = Account(task, copy.deepcopy(environment), environment)
        return True

    def _call(self, account: Account, request: Mapping[str, Any]) -> Any:
        function, args, reference = request["function"], request["args"], request["reference"]
        effect = classes.of(function)
        account.asked += 1
        if effect == "keyed" and (earlier := account.found(reference)):
            return earlier[0]
        if effect == "absolute" and request["based_on"] != account.version:
            raise RefusedError(f"the record is at version {account.version}, not {request['based_on']}")
        answer = self._run(account, function, args)
        if effect != "read":
            account.version += 1
            account.ledger.append({"reference": reference, "function": function, "args": args, "answer": answer})
        return answer

    def _run(self, account: Account, function: str, args: Mapping[str, Any]) -> Any:
        try:
            return self._world.call(account.task, account.environment, function, copy.deepcopy(args))
        except Exception as error:
            # The suites check before they change anything, and say so by raising.
            raise RefusedError(f"{type(error).__name__}: {error}") from error

    @staticmethod
    def _find(account: Account, function: str, reference: str) -> list[Any]:
        if classes.of(function) not in {"queryable", "absolute", "keyed"}:
            raise RefusedError(f"{function} is {classes.of(function)}: nobody can be asked about it")
        return account.found(reference)

    def _ending(self, account: Account) -> dict[str, Any]:
        return {
            "environment": self._world.show(account.environment),
            "useful": self._world.useful(account.task, account.before, account.environment),
            "asked": account.asked,
            "ledger": account.ledger,
        }

    def _case(self, name: str, calls: Sequence[GroundTruthCall]) -> dict[str, Any]:
        """A task, and how it ends when the suite makes its calls itself, without any of us."""
        suite, _, task = name.partition("/")
        account = Account(name, self._world.begin(name), self._world.begin(name))
        answers, broken = list[str](), ""
        try:
            answers = [canonical(self._run(account, call.function, call.args)) for call in calls]
        except RefusedError as error:
            broken = str(error)
        ending = self._ending(account)
        return {
            "suite": suite,
            "id": task,
            "calls": [{"function": call.function, "args": call.args} for call in calls],
            "answers": answers,
            "environment": ending["environment"],
            "useful": ending["useful"],
            "broken": broken,
        }


class Desk(socketserver.StreamRequestHandler):
    """One connection: a request a line, an answer a line."""

    disable_nagle_algorithm = True
    outside: ClassVar[Outside]

    def handle(self) -> None:
        """Serve until the other side has gone, which a killed worker does without a word."""
        try:
            for line in self.rfile:
                try:
                    told = {"answer": self.outside.answer(json.loads(line))}
                except RefusedError as refusal:
                    told = {"refused": str(refusal)}
                self.wfile.write(json.dumps(told).encode() + b"\n")
        except ConnectionError:
            return


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 64


def serve(world: World, arguments: Sequence[str] | None = None) -> None:
    """Serve on a free loopback port, print it on the first line, and stop when standard input closes."""
    argparse.ArgumentParser(description=__doc__).parse_args(arguments)
    Desk.outside = Outside(world)
    server = _Server(("127.0.0.1", 0), Desk)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    sys.stdin.read()  # the parent holds the other end: when it is gone, for whatever reason, so is this world
