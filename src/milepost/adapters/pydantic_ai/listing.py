"""What an agent may do, as tools of an app: its own function tools with what they promise, and questions to its model.

What is not promised is `irreversible`. A promise for a tool that the agent does not have is refused at once.
"""

from __future__ import annotations

from typing import Any

from pydantic_ai.agent import AbstractAgent
from pydantic_ai.tools import Tool as AgentTool
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset

import milepost as mp
from milepost.adapters.calls import asking
from milepost.adapters.promises import Promises, Theirs, declared

MODEL = "pydantic_ai.model"
OURS = "milepost"  # the key in a tool's metadata that says that it is declared with mp.tool


def listed(
    *agents: AbstractAgent[Any, Any], promises: Promises | None = None, cost: mp.Cost | None = None
) -> list[mp.Tool[..., Any]]:
    """Return the tools of agents, for `App(tools=…)`; one that several agents have stands there once.

    `promises` says by name what `mp.tool` takes (`effect`, `key_ttl`, `scopes`, `approval`, `cost`, `once` …) and
    `reconcile`, the function that finds out. `cost` is what one question to the model costs at worst, in any of the
    units requests, input_tokens, output_tokens, tokens, usd: what it really cost is settled from the response.
    Tools of MCP servers and of dynamic toolsets are not known here: list them with `foreign(name, schema, …)`.
    Raises InvalidDeclaration for a promise about no tool of these agents.
    """
    found = _function_tools(agents).values()
    theirs = (_theirs(tool) for tool in found if OURS not in (tool.metadata or {}))
    return [asking(MODEL, cost=cost), *declared(theirs, promises or {})]


def _theirs(tool: AgentTool[Any]) -> Theirs:
    return Theirs(tool.name, tool.tool_def.parameters_json_schema, tool.description or "")


def _function_tools(agents: tuple[AbstractAgent[Any, Any], ...]) -> dict[str, AgentTool[Any]]:
    found: dict[str, AgentTool[Any]] = {}

    def look(leaf: AbstractToolset[Any]) -> None:
        if isinstance(leaf, FunctionToolset):
            found.update(leaf.tools)

    for agent in agents:
        for each in agent.toolsets:
            each.apply(look)
    return found


def toolset(*tools: mp.Tool[..., Any], id: str = "milepost") -> FunctionToolset[Any]:
    """Return tools that are declared with `mp.tool` as a toolset for an agent. List them in `App(tools=…)` too."""
    return FunctionToolset([_offered(tool) for tool in tools], id=id)


def _offered(tool: mp.Tool[..., Any]) -> AgentTool[Any]:
    async def outside_a_run(**arguments: Any) -> Any:
        return await tool.direct(**arguments)

    schema = dict(tool.parameters)
    made: AgentTool[Any] = AgentTool.from_schema(outside_a_run, tool.name, tool.description, schema)
    made.metadata = {OURS: tool.version}
    return made
