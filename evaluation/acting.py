"""The suites' functions as Milepost tools, and the workflow that makes a task's calls, one segment each.

One tool is made for each line of `evaluation/classes.py`, by its class. The suite itself checks the arguments, so a
tool takes them as they stand. The outside world charges for reads (`LOOKS`), so that a read too is recorded as started
before it is asked, and a kill during it has a place in the record. `record_version` is free.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import milepost as mp
from evaluation.classes import CLASSES, Class
from evaluation.points import Moment
from evaluation.task import canonical

VISIBLE = "1s"
"""How long a call of a dead worker may still take to show: the world applies it on arrival, and no proxy holds one."""

WRITE = "outside:write"
"""The scope that every consequential tool needs."""

LOOKS = "looks"
"""The unit in which the outside world counts what it is asked."""

ONE_LOOK: mp.Cost = {LOOKS: 1}


class Stop(Protocol):
    """Where a worker is to die. It returns at once everywhere else, and never there."""

    async def reached(self, position: int, moment: Moment) -> None:
        """Say that the call at `position` is at `moment`."""


class Nowhere:
    """The worker that nobody kills."""

    async def reached(self, position: int, moment: Moment) -> None:
        """Go on."""


class Outside:
    """One account with the outside world, over one connection that is made at the first request."""

    def __init__(self, port: int, account: str, stop: Stop) -> None:
        self._port = port
        self._account = account
        self._stop = stop
        self._made = 0
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, function: str, args: Mapping[str, Any], reference: str = "", based_on: int = 0) -> Any:
        """Run one function out there. Raises `mp.Rejected` where it surely did not run, OSError where nobody knows."""
        position, self._made = self._made, self._made + 1
        await self._stop.reached(position, "before")
        answer = await self._ask(do="call", function=function, args=args, reference=reference, based_on=based_on)
        await self._stop.reached(position, "during")
        return answer

    async def version(self) -> int:
        """The version of the record; it rises with each change."""
        return int(await self._ask(do="version"))

    async def find(self, function: str, reference: str) -> mp.Finding[Any]:
        """What the ledger says about a reference."""
        found = await self._ask(do="find", function=function, reference=reference)
        match found:
            case []:
                return mp.did_not_happen()
            case [answer]:
                return mp.happened(answer)
            case _:
                return mp.conflict(found)

    async def close(self) -> None:
        """Hang up."""
        if self._streams is not None:
            self._streams[1].close()

    async def _ask(self, **request: Any) -> Any:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 24)
        reader, writer = self._streams
        writer.write(json.dumps({"account": self._account, **request}).encode() + b"\n")
        told = json.loads(await reader.readline())
        if "refused" in told:
            raise mp.Rejected(told["refused"])
        return told["answer"]


def outside_at(port: int, account: str, stop: Stop) -> Callable[[], AbstractAsyncContextManager[Outside]]:
    """How the app opens the outside world, once a process: where it is belongs to the process, not to the record."""

    @asynccontextmanager
    async def opened() -> AsyncGenerator[Outside]:
        outside = Outside(port, account, stop)
        try:
            yield outside
        finally:
            await outside.close()

    return opened


def _read(name: str) -> mp.Tool[..., Any]:
    @mp.tool(name=name, effect="read", cost=ONE_LOOK)
    async def look(call: mp.Call, args: dict[str, Any]) -> Any:
        """Look at something outside."""
        return await call.resource(Outside).call(name, args)

    return look


def _keyed(name: str) -> mp.Tool[..., Any]:
    @mp.tool(name=name, effect="keyed", key_ttl="24h", timeout="15s", scopes=[WRITE])
    async def act(call: mp.Call, args: dict[str, Any]) -> Any:
        """Do something outside that the key makes happen once."""
        return await call.resource(Outside).call(name, args, call.key)

    return act


def _absolute(name: str) -> mp.Tool[..., Any]:
    @mp.tool(name=name, effect="absolute", visible_within=VISIBLE, timeout="15s", scopes=[WRITE])
    async def put(call: mp.Call, args: dict[str, Any], based_on: int) -> Any:
        """Set something outside, if the record is still at version `based_on`."""
        return await call.resource(Outside).call(name, args, call.key, based_on)

    @put.reconcile
    async def _(call: mp.Call, args: dict[str, Any], based_on: int) -> mp.Finding[Any]:
        del args, based_on  # the reference names the request
        return await call.resource(Outside).find(name, call.key)

    return put


def _queryable(name: str) -> mp.Tool[..., Any]:
    @mp.tool(name=name, effect="queryable", visible_within=VISIBLE, timeout="15s", scopes=[WRITE])
    async def act(call: mp.Call, args: dict[str, Any]) -> Any:
        """Do something outside that can be asked about."""
        return await call.resource(Outside).call(name, args, call.key)

    @act.reconcile
    async def _(call: mp.Call, args: dict[str, Any]) -> mp.Finding[Any]:
        del args  # the reference names the request
        return await call.resource(Outside).find(name, call.key)

    return act


def _irreversible(name: str) -> mp.Tool[..., Any]:
    @mp.tool(name=name, effect="irreversible", timeout="15s", scopes=[WRITE])
    async def act(call: mp.Call, args: dict[str, Any]) -> Any:
        """Do something outside that nobody can take back or ask about."""
        return await call.resource(Outside).call(name, args, call.key)

    return act


_MADE_BY: Mapping[Class, Callable[[str], mp.Tool[..., Any]]] = {
    "read": _read,
    "keyed": _keyed,
    "absolute": _absolute,
    "queryable": _queryable,
    "irreversible": _irreversible,
}


@mp.tool(effect="read")
async def record_version(call: mp.Call) -> int:
    """The version of the record, which an absolute call is then based on. Not a function of any suite."""
    return await call.resource(Outside).version()


TOOLS: Mapping[str, mp.Tool[..., Any]] = {name: _MADE_BY[kind.effect](name) for name, kind in CLASSES.items()}
"""Every tool, of the class that the table gives it. Made once, in the process that workers are forked from."""


@dataclass(frozen=True)
class Planned:
    """One call that remains to be made, as the suite's authors wrote it down."""

    function: str
    args: dict[str, Any]


@dataclass(frozen=True)
class Progress:
    """What remains, and what each finished call answered (as JSON text, which is what an agent would be shown)."""

    remaining: list[Planned]
    answers: list[str] = field(default_factory=list)


def solving(stop: Stop, otherwise: Mapping[str, Class] | None = None) -> mp.Workflow[Progress, list[str]]:
    """The workflow, for a worker that dies where `stop` says. The stop is no part of what is recorded.

    `otherwise` claims another class for some tools than the table.
    """
    known = {**TOOLS, **{name: _MADE_BY[effect](name) for name, effect in (otherwise or {}).items()}}
    workflow = mp.Workflow(
        "solving", version="1", input=Progress, result=list[str], tools=[*known.values(), record_version]
    )

    @workflow.segment
    async def act(run: mp.Run, progress: Progress) -> mp.Next[list[str]]:
        """Make one call; the checkpoint behind it says that it is done."""
        position = len(progress.answers)
        if position:
            await stop.reached(position - 1, "between")
        planned, *remaining = progress.remaining
        tool = known[planned.function]
        if "based_on" in tool.parameters["properties"]:
            answer = await tool(planned.args, await record_version())
        else:
            answer = await tool(planned.args)
        answers = [*progress.answers, canonical(answer)]
        await stop.reached(position, "after")
        run.progress(len(answers), len(answers) + len(remaining), planned.function)
        return mp.go(act, Progress(remaining, answers)) if remaining else mp.done(answers)

    return workflow
