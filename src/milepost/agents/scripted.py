"""A model that says what a test tells it to: no provider, no network, no extra.

What it says follows from the turn and the attempt that it is asked for, and from nothing that a process remembers: so a
second process goes on with the script where the first one was killed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec

from milepost.agents.messages import Reply, ToolCall, Usage, size_of
from milepost.agents.models import ModelRefused, Request, Said
from milepost.agents.results import FINAL
from milepost.definitions.values import encode

Line: TypeAlias = "str | Reply | Exception | Callable[[Request], str | Reply] | Sequence[Line]"
PIECE = 8


def call(tool: str, /, **arguments: Any) -> Reply:
    """Return a reply that calls a tool with these arguments; see `together` for several calls in one reply."""
    return Reply(calls=(ToolCall("", tool, json.dumps(arguments)),))


def together(*replies: Reply) -> Reply:
    """Return one reply with the texts and the calls of all."""
    text = "\n".join(reply.text for reply in replies if reply.text)
    return Reply(text, tuple(call for reply in replies for call in reply.calls))


def final(answer: Any) -> Reply:
    """Return a reply that gives a typed final answer."""
    data = encode(answer).decode()
    arguments = data if data.startswith("{") else f'{{"answer":{data}}}'
    return Reply(calls=(ToolCall("", FINAL, arguments),))


class ScriptedModel:
    """A model with one line for each turn: a text, a Reply, an exception to raise, or a function of the request.

    A list is one turn by its attempts: `[TimeoutError(), "yes"]`. A function may do what a test needs (count, hang, be
    killed) before it returns its line. Raises ModelRefused past the end of the script.
    """

    def __init__(self, *lines: Line, name: str = "scripted") -> None:
        self._lines = lines
        self._name = name

    @property
    def name(self) -> str:
        """The name that it was given."""
        return self._name

    async def ask(self, request: Request, said: Said) -> Reply:
        """Return the line of this turn."""
        line = self._line(request)
        if isinstance(line, Exception):
            raise line
        reply = Reply(line) if isinstance(line, str) else line
        for at in range(0, len(reply.text), PIECE):
            said(reply.text[at : at + PIECE])
        if not reply.usage.requests:
            usage = Usage(len(request.instructions.encode()) + size_of(request.messages), size_of([reply]), requests=1)
            return msgspec.structs.replace(reply, model=self._name, usage=usage)
        return reply

    def _line(self, request: Request) -> Any:
        if request.turn > len(self._lines):
            raise ModelRefused(f"the script has {len(self._lines)} turns, and turn {request.turn} was asked for")
        line: Any = self._lines[request.turn - 1]
        if isinstance(line, list | tuple):
            line = line[min(request.attempt, len(line)) - 1]
        return line(request) if callable(line) else line
