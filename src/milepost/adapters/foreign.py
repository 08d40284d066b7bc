"""A tool of another framework, or of a server, declared as a Milepost tool.

Its arguments are those of its JSON schema, by name, as `definitions/free_arguments.py` reads them: so policy says
`args.cents`, and what a call leaves out is not sent. What is not declared about it is the worst case: irreversible.

    search = foreign("search", schema, effect="read")
    pay = foreign("pay", schema, scopes=["pay"])

    with through(pay, handler, arguments):
        outcome = await run.attempt(call_id, pay, **arguments)

Who sends is the framework's own handler of this very call, and it is there only while the framework makes that call.
`through` says so for the code inside it. It holds for these arguments alone: a resend of another call, which happens to
be made while this one is under way, must not be sent by a handler that would send this one. Where nobody is there to
send, an attempt fails as not sent: that is certain, and the next attempt inside `through` sends. Where a tool can be
sent without a host (by a client that the app opens) give `send` to `foreign`, and reconciling needs no host either.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from milepost.core.chunks import digest_of
from milepost.definitions.call import Call
from milepost.definitions.free_arguments import FreeArguments
from milepost.definitions.tools import Options, Tool
from milepost.errors import InvalidDeclaration, NotSent

Send: TypeAlias = Callable[[Call, dict[str, Any]], Awaitable[Any]] | Callable[[Call, dict[str, Any]], Any]


@dataclass(slots=True, eq=False)
class Host:
    """Who sends one call of one tool, while it is there."""

    tool: Tool[..., Any]
    digest: str
    send: Send
    outer: Host | None
    here: bool = True


_HOST: ContextVar[Host | None] = ContextVar("milepost_host", default=None)


class ForeignTool(Tool[..., Any]):
    """A tool that something outside of Milepost has declared. `parameters` is its schema as it was given."""

    def __init__(
        self, name: str, schema: Mapping[str, Any], send: Send | None, description: str, declared: Mapping[str, Any]
    ) -> None:
        async def sent_awaited(call: Call, /, **arguments: Any) -> Any:
            return await self._sender(arguments)(call, arguments)

        def sent_in_a_thread(call: Call, /, **arguments: Any) -> Any:
            return _plain(self.name, self._sender(arguments)(call, arguments))

        self._ways: list[Any] = [sent_awaited, sent_in_a_thread]
        way: Any
        for way in self._ways:
            way.__signature__, way.__annotations__ = _ONLY_CALL, {"call": Call}
            way.__name__, way.__doc__ = name, description
        self._send = send
        volatile = declared.get("volatile", ())
        taken = FreeArguments(name, schema, () if isinstance(volatile, str) else tuple(volatile))
        super().__init__(sent_awaited, Options(name=name, **declared), {}, taken)
        left_out = sorted(set(self.once) - set(taken.required))
        if left_out:
            why = f"once= of tool {name} names {', '.join(left_out)}, which a call may leave out: it must be required."
            raise InvalidDeclaration(why)
        self.fingerprint = digest_of(msgspec.json.encode([name, description, taken.schema], order="deterministic"))

    @property
    def fn(self) -> Callable[..., Any]:
        """What an attempt runs."""
        way: Callable[..., Any] = self._ways[0 if self.is_async else 1]
        return way

    @fn.setter
    def fn(self, fn: Callable[..., Any]) -> None:
        """It is what it is."""

    @property
    def is_async(self) -> bool:
        """Whether who sends, here and now, is awaited. Else it blocks, and an attempt runs it in a thread."""
        if self._send is not None:
            return _awaited(self._send)
        host = _HOST.get()
        while host is not None and host.tool is not self:
            host = host.outer
        return host is None or _awaited(host.send)

    @is_async.setter
    def is_async(self, is_async: bool) -> None:
        """It is what its sender is."""

    def _sender(self, arguments: dict[str, Any]) -> Send:
        """Return who sends this call. Raises NotSent where nobody does."""
        if self._send is not None:
            return self._send
        digest, host = self.arguments.bind((), arguments).digest, _HOST.get()
        while host is not None:
            if host.tool is self and host.digest == digest and host.here:
                return host.send
            host = host.outer
        raise NotSent(f"nobody is here to send {self.name}: its host sends it, while it makes the call itself")


def foreign(
    name: str, schema: Mapping[str, Any], send: Send | None = None, *, description: str = "", **declared: Any
) -> ForeignTool:
    """Declare a tool whose arguments are those of a JSON schema. It is irreversible unless `effect` says otherwise.

    `declared` is what `mp.tool` takes besides: effect, key_ttl, scopes, approval, cost, retry, once, risk, version and
    so on. `once` and `volatile` name properties of the schema; what `once` names must be required. A reconciler, a cost
    and a rule of approval take the arguments by name, `**rest` where the schema allows more than it lists.

    `send(call, arguments)` sends it: an `async def`, or a `def`, which is run in a thread. Without it `through` says
    who does. What it returns must be what JSON can say. The schema and the description are the tool's fingerprint, so
    that a change of them shows in the manifest as changed code does. Raises InvalidDeclaration.
    """
    try:
        return ForeignTool(name, schema, send, description, declared)
    except TypeError as error:
        raise InvalidDeclaration(f"tool {name}: {error}.") from error


@contextmanager
def through(tool: Tool[..., Any], send: Send, arguments: Mapping[str, Any]) -> Iterator[None]:
    """Let calls of this foreign tool with these arguments be sent by `send`, for as long as the block runs.

    It holds in this task, and in what is started from it. `send(call, arguments)` is an `async def`, or a `def`, which
    is run in a thread. Raises InvalidArguments for arguments that do not fit, InvalidDeclaration for another tool.
    """
    if not isinstance(tool, ForeignTool):
        raise InvalidDeclaration(f"{tool.name} has code of its own: through() is for tools made by foreign().")
    host = Host(tool, tool.arguments.from_json(arguments).digest, send, _HOST.get())
    before = _HOST.set(host)
    try:
        yield
    finally:
        host.here = False
        _HOST.reset(before)


_ONLY_CALL = inspect.Signature([inspect.Parameter("call", inspect.Parameter.POSITIONAL_ONLY, annotation=Call)])


def _awaited(send: Send) -> bool:
    return inspect.iscoroutinefunction(send) or inspect.iscoroutinefunction(getattr(send, "__call__", None))  # noqa: B004


def _plain(tool: str, answer: Any) -> Any:
    """Return what a `def` returned. Raises NotSent for a coroutine, which nobody has begun."""
    if inspect.iscoroutine(answer):
        answer.close()
        raise NotSent(f"what sends {tool} is no async def, and returned a coroutine: declare it async def")
    return answer
