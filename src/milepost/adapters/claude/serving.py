"""Milepost's tools as an MCP server inside the host's process.

The command line says which call of the model a request is: its id stands in the request's `_meta`. The SDK's own
handlers do not pass that on, so it is noted on the way in, by a middleware of the server. Where that is not to be had
(`mcp` before version 2, a command line that does not say it) a call goes by its arguments; see `adapters/anew`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextvars import ContextVar
from typing import Any

from claude_agent_sdk import McpSdkServerConfig, SdkMcpTool, ToolAnnotations, create_sdk_mcp_server

from milepost.adapters.anew import Said
from milepost.definitions.tools import Tool

TOOL_USE_ID = "claudecode/toolUseId"
Make = Callable[[Tool[..., Any], str | None, dict[str, Any]], Awaitable[Said]]

_ID: ContextVar[str | None] = ContextVar("milepost_claude_tool_use_id", default=None)


def server_of(name: str, tools: Iterable[Tool[..., Any]], make: Make) -> McpSdkServerConfig:
    """Return a server that offers these tools; `make(tool, tool_use_id, arguments)` makes a call of one."""
    config = create_sdk_mcp_server(name, tools=[_offered(tool, make) for tool in tools])
    middleware: list[Any] | None = getattr(config["instance"], "middleware", None)
    if middleware is not None:
        middleware.append(_note_id)
    return config


def _offered(tool: Tool[..., Any], make: Make) -> SdkMcpTool[Any]:
    async def handler(arguments: dict[str, Any]) -> dict[str, Any]:
        said = await make(tool, _ID.get(), arguments)
        return {"content": [{"type": "text", "text": said.text}], "is_error": said.is_error}

    return SdkMcpTool(
        name=tool.name,
        description=tool.description,
        input_schema={"type": "object", "properties": {}, **tool.parameters},
        handler=handler,
        annotations=ToolAnnotations(readOnlyHint=tool.effect == "read"),
    )


async def _note_id(request: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
    """Note the id of the call while its handler runs."""
    id_ = (request.meta or {}).get(TOOL_USE_ID)
    before = _ID.set(id_ if isinstance(id_, str) and id_ else None)
    try:
        return await call_next(request)
    finally:
        _ID.reset(before)
