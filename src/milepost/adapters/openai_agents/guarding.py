"""Agents whose tools go through the outcome protocol, and those tools as an app lists them.

What is not promised is `irreversible`. What cannot be guarded is refused when the agent is guarded.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Mapping
from dataclasses import replace
from traceback import walk_tb
from typing import Any, TypeVar

from agents import (
    Agent,
    CodeInterpreterTool,
    FileSearchTool,
    FunctionTool,
    Handoff,
    HostedMCPTool,
    ImageGenerationTool,
    Model,
    ModelBehaviorError,
    RunContextWrapper,
    ToolSearchTool,
    UserError,
    WebSearchTool,
)
from agents.tool import set_function_tool_failure_error_function
from agents.tool_context import ToolContext
from pydantic import BaseModel

import milepost as mp
from milepost.adapters.calls import asking, sending
from milepost.adapters.openai_agents.holding import TURN, Attached, attached, inside, keeping
from milepost.adapters.openai_agents.models import MODEL, RecordedModel
from milepost.adapters.promises import Promises, Theirs, declared
from milepost.adapters.saying import to_model

T = TypeVar("T")
HOSTED = (
    CodeInterpreterTool, FileSearchTool, HostedMCPTool, ImageGenerationTool, ToolSearchTool, WebSearchTool,
)  # fmt: skip  # done at the provider, inside a question
COMES_BY_ITSELF = {"time", "breaker"}


class Guard:
    """What a guarded tool is invoked by."""

    def __init__(self, tool: FunctionTool, ours: mp.Tool[..., Any] | None) -> None:
        self.ours = ours
        self.wants = tool.needs_approval
        self.inner = set_function_tool_failure_error_function(copy.copy(tool), None)  # it raises what it raises

    async def __call__(self, ctx: ToolContext[Any], arguments: str) -> Any:
        """Make the call, or return what is recorded of it. Raises Parked once no call beside it is under way."""
        held = attached()
        if held is None:
            return await self.inner.on_invoke_tool(ctx, arguments)
        tool, id_ = held.tool(self.inner.name), ctx.tool_call_id

        async def work() -> Any:
            try:
                return _plain(await inside(lambda: self.inner.on_invoke_tool(ctx, arguments)))
            except ModelBehaviorError as error:
                if _came_to_the_function(error):
                    raise
                raise mp.Rejected(str(error)) from error

        with held.calls, held.told_again():
            try:
                send = None if self.ours else sending(work)
                outcome = await held.threads.attempt(held.key, id_, tool, arguments, send=send)
            except mp.InvalidArguments as error:
                return error.for_model()
            except mp.MilepostError as error:
                await held.halt(error)
                raise
            if isinstance(outcome, mp.Confirmed):
                held.waits.pop(id_, None)
                return _plain(outcome.value)
            if isinstance(outcome, mp.Failed):
                held.waits.pop(id_, None)
                return to_model(outcome, tool.name)
            parked = held.waiting(id_, outcome)
            await held.calls.others()
            turn = TURN.get()
            if turn is not None:
                turn.parked = parked
            raise parked

    async def needs_approval(self, ctx: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str) -> bool:
        """Tell whether the call has to wait, which is an interruption. What is recorded needs nothing any more."""
        held = attached()
        if held is None:
            return await self._wanted(ctx, arguments, call_id)
        try:
            outcome = await _looked(held, call_id, held.tool(self.inner.name), arguments)
        except mp.InvalidArguments:
            return False  # the model is told, when it is invoked
        except mp.MilepostError as error:
            with held.calls:
                await held.halt(error)
            raise
        if isinstance(outcome, mp.Confirmed | mp.Failed):
            return False
        if isinstance(outcome, mp.Waiting) and (outcome.ask or outcome.reason not in COMES_BY_ITSELF):
            held.waiting(call_id, outcome)
            held.begun_again()
            return True
        return await self._wanted(ctx, arguments, call_id)

    async def _wanted(self, ctx: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str) -> bool:
        return await self.wants(ctx, arguments, call_id) if callable(self.wants) else self.wants

    async def settled(self, held: Attached, call_id: str, arguments: str) -> bool:
        """Tell whether a call that has waited need not wait any more, as far as the record has a say in it."""
        outcome = await _looked(held, call_id, held.tool(self.inner.name), arguments)
        return self.wants is False and not isinstance(outcome, mp.Waiting)


async def _looked(held: Attached, id_: str, tool: mp.Tool[..., Any], arguments: Mapping[str, Any] | str) -> Any:
    return await held.run.look(id_, tool, **tool.arguments.from_json(arguments).named())


def _came_to_the_function(error: ModelBehaviorError) -> bool:
    """Tell whether an error may have come out of a tool's function: else the SDK could not read the arguments.

    Then nothing but the module that reads them stands between the place where it was raised and here.
    """
    frames = [frame.f_globals.get("__name__") for frame, _ in walk_tb(error.__traceback__)]
    return any(module not in {__name__, inside.__module__, FunctionTool.__module__} for module in frames)


def _plain(result: Any) -> Any:
    """Return what a tool gave as the record can hold it: in the SDK's own dictionaries, or as the text that it uses."""
    if isinstance(result, BaseModel):
        return result.model_dump(mode="json", exclude_none=True)
    if isinstance(result, list) and all(isinstance(one, BaseModel) for one in result):
        return [_plain(one) for one in result]
    return result if isinstance(result, str | int | bool | None) or _is_json(result) else str(result)


def _is_json(result: Any) -> bool:
    if isinstance(result, dict):
        return all(isinstance(name, str) and _is_json(one) for name, one in result.items())
    if isinstance(result, list):
        return all(_is_json(one) for one in result)
    return isinstance(result, str | int | float | bool | None)


# ---------------------------------------------------------------- agents


def guarded(agent: Agent[T]) -> Agent[T]:
    """Return the agent with guarded tools, and a recorded model where it brings one, and so those it hands off to.

    Raises UserError for what cannot be guarded: tools of MCP servers, and local tools that are no functions.
    """
    return _guarded(agent, {})


def _guarded(agent: Agent[T], done: dict[int, Agent[Any]]) -> Agent[T]:
    if id(agent) in done:
        return done[id(agent)]
    if agent.mcp_servers:
        raise UserError(
            f"{agent.name} has MCP servers, whose tools nobody guards here. Put the MCP gateway before them."
        )
    tools = [_guarded_tool(tool, agent.name) for tool in agent.tools]
    model = agent.model
    if isinstance(model, Model) and not isinstance(model, RecordedModel):
        model = RecordedModel(model)
    made = done[id(agent)] = agent.clone(tools=tools, model=model, handoffs=[])
    made.handoffs = [
        _guarded_handoff(one, done) if isinstance(one, Handoff) else _guarded(one, done) for one in agent.handoffs
    ]
    return made


def _is_bare(model: Any) -> bool:
    return isinstance(model, Model) and not isinstance(model, RecordedModel)


def _guarded_tool(tool: Any, of: str) -> Any:
    if isinstance(tool, HOSTED):
        return tool
    if not isinstance(tool, FunctionTool):
        raise UserError(
            f"{of} has {type(tool).__name__}, which acts here and cannot be guarded. Make it a function tool."
        )
    if isinstance(tool.on_invoke_tool, Guard):
        return tool
    inner = tool._agent_instance if tool._is_agent_tool else None  # noqa: SLF001  the SDK says it nowhere else
    if inner is not None:
        if any(isinstance(one, FunctionTool) and not _is_guarded(one) for one in inner.tools) or _is_bare(inner.model):
            raise UserError(
                f"{tool.name} runs the agent {inner.name}, which is not guarded: guarded({inner.name}).as_tool(…)"
            )
        return tool
    guard = Guard(tool, getattr(tool.on_invoke_tool, "ours", None))
    made = copy.copy(tool)
    made.on_invoke_tool, made.needs_approval = guard, guard.needs_approval
    made.timeout_seconds = None  # the app's tool has one: what times out there is unknown, and is not told as a failure
    return set_function_tool_failure_error_function(made, None)


def _is_guarded(tool: FunctionTool) -> bool:
    return isinstance(tool.on_invoke_tool, Guard) or tool._is_agent_tool  # noqa: SLF001


def _guarded_handoff(handoff: Handoff[Any, Any], done: dict[int, Agent[Any]]) -> Handoff[Any, Any]:
    async def invoked(ctx: RunContextWrapper[Any], arguments: str) -> Any:
        return _guarded(await handoff.on_invoke_handoff(ctx, arguments), done)

    made = replace(handoff, on_invoke_handoff=invoked)
    target = handoff._agent_ref() if handoff._agent_ref else None  # noqa: SLF001  by it a snapshot finds its agents
    if isinstance(target, Agent):
        made._agent_ref = weakref.ref(_guarded(target, done))  # noqa: SLF001
    return made


# ---------------------------------------------------------------- tools of the app


def listed(
    *agents: Agent[Any], promises: Promises | None = None, cost: mp.Cost | None = None
) -> list[mp.Tool[..., Any]]:
    """Return the function tools of agents, and of those they hand off to, for `App(tools=…)`.

    `promises` says by name what `mp.tool` takes (`effect`, `key_ttl`, `scopes`, `approval`, `cost`, `once` …) and
    `reconcile`, the function that finds out. `cost` is what one question to a model costs at worst, in any of the units
    requests, input_tokens, output_tokens and tokens, which are settled from the response; other units are not.
    Raises InvalidDeclaration for a promise about no tool of these agents.
    """
    found = (getattr(tool.on_invoke_tool, "ours", None) or _theirs(tool) for tool in _function_tools([*agents], set()))
    return [asking(MODEL, cost=cost), keeping(), *declared(found, promises or {})]


def _theirs(tool: FunctionTool) -> Theirs:
    timeout = None if tool.timeout_seconds is None else f"{round(tool.timeout_seconds * 1000)}ms"
    return Theirs(tool.name, tool.params_json_schema, tool.description, timeout)


def guards_of(agent: Agent[Any]) -> dict[str, Guard]:
    """Return the guards of an agent, and of those it hands off to, by the names of their tools.

    Raises InvalidDeclaration for an agent that is not guarded.
    """
    found = {}
    for tool in _function_tools([agent], set()):
        if not isinstance(tool.on_invoke_tool, Guard):
            raise mp.InvalidDeclaration(f"{tool.name} of {agent.name} is not guarded: run guarded({agent.name}).")
        found[tool.name] = tool.on_invoke_tool
    return found


def _function_tools(agents: list[Any], seen: set[int]) -> list[FunctionTool]:
    found: list[FunctionTool] = []
    for agent in agents:
        if not isinstance(agent, Agent) or id(agent) in seen:
            continue
        seen.add(id(agent))
        found.extend(tool for tool in agent.tools if isinstance(tool, FunctionTool) and not tool._is_agent_tool)  # noqa: SLF001
        inner = [tool._agent_instance for tool in agent.tools if isinstance(tool, FunctionTool)]  # noqa: SLF001
        refs = [one._agent_ref() if isinstance(one, Handoff) and one._agent_ref else one for one in agent.handoffs]  # noqa: SLF001
        found.extend(_function_tools([*inner, *refs], seen))
    return found


class _Ours:
    """What a tool of Milepost is invoked by where no run is held."""

    def __init__(self, tool: mp.Tool[..., Any]) -> None:
        self.ours = tool

    async def __call__(self, _: ToolContext[Any], arguments: str) -> Any:
        return await self.ours.direct(**self.ours.arguments.from_json(arguments).named())


def tools_of(*tools: mp.Tool[..., Any]) -> list[FunctionTool]:
    """Return tools that are declared with `mp.tool` as function tools for an agent."""
    return [
        FunctionTool(tool.name, tool.description, dict(tool.parameters), _Ours(tool), strict_json_schema=False)
        for tool in tools
    ]
