"""Calls of a host whose ids do not survive a crash, and what its model is told of them.

Many hosts keep no response of the model before its calls are made, or cannot go on with one that has no results: after
a crash the model is asked again, and makes the calls that it still wants anew, under new ids. So here a new id whose
tool and arguments equal an earlier call of the run, which has not failed, asks for the outcome of that call and sends
nothing: it is told the recorded result, or that it is not known yet. Reads, and tools declared `repeatable=True`, begin
anew. A host whose ids are stable can use this as well; an id that is on record is that call.

    calls = Calls(Threads(app))
    told = await calls.told(session_id, call_id, tool, arguments, send)      # told.text, told.is_error
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from milepost.adapters.foreign import Send
from milepost.adapters.saying import to_model
from milepost.adapters.threads import Threads
from milepost.definitions.call import Confirmed, Failed, Outcome
from milepost.definitions.tools import Tool
from milepost.errors import Diverged, InvalidArguments, InvalidDeclaration, MilepostError, RunEnded, RunHeld


@dataclass(frozen=True)
class Said:
    """What the model is told of a call. An outcome that is not known, or waits, is no error: errors are tried again."""

    text: str
    is_error: bool = False


@dataclass(frozen=True)
class Attempted:
    """What came of an attempt. `equals` is the earlier call whose outcome this is, None for one of its own."""

    outcome: Outcome[Any]
    equals: str | None


class Calls:
    """The calls of sessions, by the key of their run."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._turns: WeakValueDictionary[tuple[str, str, str], asyncio.Lock] = WeakValueDictionary()

    async def told(
        self, key: str, id_: str | None, tool: Tool[..., Any], arguments: Mapping[str, Any], send: Send | None = None
    ) -> Said:
        """Attempt a call as `attempt` does, and return what to tell the model of it. Raises no error of Milepost."""
        try:
            return said(await self.attempt(key, id_, tool, arguments, send), tool)
        except MilepostError as error:
            return refused(error, tool)

    def under_way(self, key: str, tool: Tool[..., Any], arguments: Mapping[str, Any]) -> bool:
        """Say whether a call with these arguments is being made right now. Raises InvalidArguments."""
        return self._turn(key, tool, arguments).locked()

    async def attempt(
        self,
        key: str,
        id_: str | None,
        tool: Tool[..., Any],
        arguments: Mapping[str, Any],
        send: Send | None = None,
    ) -> Attempted:
        """Attempt a call under the model's id of it, or under that of the earlier call that it equals.

        Where nothing tells the id (None) it is made of the arguments, so that equal calls are one; where equal calls
        are calls of their own, it is a new one each time. Raises InvalidArguments, and what attaching raises.
        """
        anew = tool.repeatable or tool.effect == "read"
        given = tool.arguments.from_json(arguments)
        if id_ is None:
            id_ = uuid.uuid4().hex if anew else f"{tool.name}.{given.digest[:24]}"
        async with self._turn(key, tool, arguments), self._threads.attached(key) as run:
            known = anew or run.recorded(id_) is not None
            earlier = None if known else run.earlier(tool, **given.named())
            equals = None if earlier is None else earlier[0]
            outcome = await self._threads.attempt(key, equals or id_, tool, arguments, send=send)
        return Attempted(outcome, equals)

    def _turn(self, key: str, tool: Tool[..., Any], arguments: Mapping[str, Any]) -> asyncio.Lock:
        """Return the lock of equal calls: who comes second finds the record of the first. Others never wait for it."""
        equal = (key, tool.name, tool.arguments.from_json(arguments).digest)
        if tool.repeatable or tool.effect == "read":
            return asyncio.Lock()
        return self._turns.setdefault(equal, asyncio.Lock())


def said(attempted: Attempted, tool: Tool[..., Any]) -> Said:
    """Return what the model is told of what came of a call."""
    outcome = attempted.outcome
    if isinstance(outcome, Confirmed):
        text = outcome.value if isinstance(outcome.value, str) else tool.result.write(outcome.value).decode()
        if attempted.equals is None:
            return Said(text)
        return Said(
            f"{tool.name} was called before with the same arguments, as {attempted.equals}, and it is "
            f"done. Nothing was done now. The result of that call: {text}"
        )
    return Said(to_model(outcome, tool.name), isinstance(outcome, Failed))


def refused(error: MilepostError, tool: Tool[..., Any]) -> Said:
    """Return what the model is told where no outcome could be had. Only what certainly did not happen is an error."""
    match error:
        case InvalidArguments():
            return Said(error.for_model(), is_error=True)
        case RunHeld() | RunEnded() | Diverged() | InvalidDeclaration():
            return Said(f"{tool.name} was not called, and nothing was done: {error}", is_error=True)
        case _:
            return Said(
                f"It is not known whether {tool.name} happened: {str(error).rstrip('.')}. Do not make this call again. "
                "Tell the user that a person has to look at it."
            )
