"""Tools of a LangChain agent, or of a LangGraph ToolNode, under the outcome protocol.

    tools = promised([search, charge], search={"effect": "read"})
    app = mp.App("sqlite:///milepost.db", tools=tools)
    agent = create_agent(model, [search, charge], middleware=[Outcomes(app, tools)], checkpointer=…)

Each call goes through the attached run of its thread, under the model's own id of the call. LangGraph runs a node again
from its top after a crash and after each interrupt; the record then answers for what was done. What must wait is parked
by `interrupt()`, so that the other calls of a batch finish and are recorded, and looked at again when the graph goes
on, by `Command(resume=…)` or by `invoke(None, …)`: the record decides what came of it, and not what is said there.

It has to be the innermost middleware around a tool (the last in the list): what stands outside of it sees outcomes, and
what stood inside would be repeated unseen. What a model is told of a call that has no result is in `adapters/saying`.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import msgspec
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.errors import GraphBubbleUp
from langgraph.types import Command, interrupt
from pydantic import BaseModel, ValidationError

from milepost.adapters.batches import Batch
from milepost.adapters.calls import numbered, sending, sending_sync
from milepost.adapters.langgraph.promises import is_foreign, offered
from milepost.adapters.langgraph.values import Values
from milepost.adapters.saying import to_model, to_person
from milepost.adapters.threads import LINGER, Threads
from milepost.definitions.call import Confirmed, Failed
from milepost.errors import InvalidArguments, InvalidDeclaration, MilepostError, Waiting

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from langgraph.prebuilt.tool_node import ToolCallRequest

    from milepost.app import App
    from milepost.core.authority import Authority
    from milepost.definitions.tools import Cost, Tool

    Result = ToolMessage | Command[Any]


class Halted(GraphBubbleUp):
    """Milepost cannot go on with this thread: `error` says why. Neither a model nor a sibling of the call sees it.

    LangGraph shows an ordinary exception of a tool to the model, or cancels the calls beside it; this is raised out of
    the invocation, once those have finished.
    """

    def __init__(self, error: MilepostError) -> None:
        super().__init__(str(error))
        self.error = error


class ToolErred(Exception):
    """The tool's own code, or what stands around it, made a text of an exception: what was done is not known."""


class Outcomes(AgentMiddleware[Any, Any, Any]):
    """Middleware for `create_agent`; for a `ToolNode` give its two methods: `wrap_tool_call=`, `awrap_tool_call=`.

    `tools` are those of the app, as `promised` made them; a call of any other is told that it was not done. Milepost's
    own tools among them are offered to the agent as `tools`. `authority` and `budget` are what a thread's run begins
    with, `types` the classes that artifacts and commands of tools may hold (see `Checkpointer`).

    Its methods raise Halted where the run cannot be driven here: RunHeld while another process has the thread,
    Diverged, RunEnded, StoreError.
    """

    def __init__(
        self,
        app: App,
        tools: Sequence[Tool[..., Any]],
        *,
        authority: Authority | None = None,
        budget: Cost | None = None,
        types: Sequence[type] | Mapping[str, type] = (),
    ) -> None:
        super().__init__()
        self._threads = Threads(app, authority=authority, budget=budget, linger=LINGER)
        self._by_name = {tool.name: tool for tool in tools}
        self._values = Values(types)
        self._batches: dict[object, Batch] = {}
        self.tools = [offered(tool) for tool in tools if not is_foreign(tool)]

    # ------------------------------------------------------------ what LangChain calls

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Result]) -> Result:
        """Put one call through the protocol."""
        send = sending_sync(lambda: self._kept(handler(request)))
        if (refused := self._refused(request)) is not None:
            return refused
        while True:
            try:
                run, outcome = self._threads.sync(lambda: self._attempt(request, send))
            except InvalidArguments as error:
                return _message(request, error.for_model(), "error")
            except MilepostError as error:
                raise Halted(error) from error
            if not isinstance(outcome, Waiting):
                return self._told(request, outcome)
            interrupt(_parked(request, run, outcome))  # returns where the graph goes on: look again

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Result]]
    ) -> Result:
        """Put one call through the protocol."""

        async def made() -> Any:
            return self._kept(await handler(request))

        send = sending(made)
        if (refused := self._refused(request)) is not None:
            return refused
        while True:
            async with self._in_batch(request) as batch:
                try:
                    run, outcome = await self._attempt(request, send)
                except InvalidArguments as error:
                    return _message(request, error.for_model(), "error")
                except MilepostError as error:
                    await batch.others()
                    raise Halted(error) from error
                if not isinstance(outcome, Waiting):
                    return self._told(request, outcome)
                await batch.others()
            interrupt(_parked(request, run, outcome))

    # ------------------------------------------------------------ one call

    async def _attempt(self, request: ToolCallRequest, send: Any) -> tuple[str, Confirmed[Any] | Failed | Waiting]:
        call, key = request.tool_call, thread_of(request)
        tool = self._by_name[call["name"]]
        async with self._threads.attached(key) as run:
            sender = send if is_foreign(tool) else None
            return run.id, await self._threads.attempt(key, id_of(request), tool, call["args"], send=sender)

    def _refused(self, request: ToolCallRequest) -> ToolMessage | None:
        """Return what is said to a call that cannot be made at all; nothing was done, and nothing is recorded."""
        name = request.tool_call["name"]
        if name not in self._by_name:
            return _message(request, to_model(Failed("it is none of the tools that may be used here"), name), "error")
        schema = None if request.tool is None else request.tool.tool_call_schema
        if isinstance(schema, type) and issubclass(schema, BaseModel) and is_foreign(self._by_name[name]):
            try:
                schema.model_validate(request.tool_call["args"])
            except ValidationError as error:
                return _message(request, to_model(Failed(f"its arguments do not fit: {error}"), name), "error")
        return None

    def _kept(self, result: Result) -> Any:
        """Return what is recorded of a tool's result: its text, where it is no more, as a person would say it.

        Raises ToolErred for an exception that was made a text, UnknownType for a result that cannot be stored.
        """
        if isinstance(result, ToolMessage):
            if result.status == "error":
                raise ToolErred(str(result.content))
            if isinstance(result.content, str) and result.artifact is None:
                return result.content
        return msgspec.json.decode(self._values.write(result))

    def _told(self, request: ToolCallRequest, outcome: Confirmed[Any] | Failed) -> Result:
        tool = self._by_name[request.tool_call["name"]]
        if isinstance(outcome, Failed):
            return _message(request, to_model(outcome, tool.name), "error")
        value = outcome.value
        if is_foreign(tool) and isinstance(value, (dict, list)):
            kept = self._values.read(msgspec.json.encode(value))
            if isinstance(kept, (ToolMessage, Command, list)):
                return cast("Result", kept)
        return _message(request, value if isinstance(value, str) else tool.result.write(value).decode(), "success")

    @asynccontextmanager
    async def _in_batch(self, request: ToolCallRequest) -> AsyncIterator[Batch]:
        """Count this call to those that one node makes at once."""
        about = request.runtime.execution_info
        place = request.tool_call["id"] if about is None else (about.thread_id, about.task_id)
        batch = self._batches.setdefault(place, Batch())
        with batch:
            try:
                yield batch
            finally:
                if batch.calls == 1:
                    self._batches.pop(place, None)


def thread_of(request: ToolCallRequest) -> str:
    """Return the key of the thread's run. Raises InvalidDeclaration where there is no thread."""
    thread = request.runtime.config.get("configurable", {}).get("thread_id")
    if thread is None:
        why = "the graph was invoked without a thread: give it a checkpointer, and a thread_id in its configuration"
        raise InvalidDeclaration(why)
    return str(thread)


def id_of(request: ToolCallRequest) -> str:
    """Return the model's id of this call; where a model gives one id again in a thread, the calls are numbered."""
    state, id_ = request.state, str(request.tool_call["id"])
    if isinstance(state, dict):
        state = state.get("messages", ())
    messages = state if isinstance(state, (list, tuple)) else getattr(state, "messages", ())
    made = sum(
        1 for message in messages if isinstance(message, AIMessage) for call in message.tool_calls if call["id"] == id_
    )
    return numbered(id_, made)


def _message(request: ToolCallRequest, text: str, status: str) -> ToolMessage:
    call = request.tool_call
    return ToolMessage(text, name=call["name"], tool_call_id=call["id"], status=status)


def _parked(request: ToolCallRequest, run: str, waiting: Waiting) -> dict[str, Any]:
    """Return what is shown of a call that waits, to whoever invoked the graph."""
    return {
        "run": run,
        "call": request.tool_call["id"],
        "tool": request.tool_call["name"],
        "waiting_for": waiting.reason,
        "until": None if waiting.until is None else waiting.until.isoformat(),
        "ask": to_person(run, waiting),
    }
