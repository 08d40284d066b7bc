"""What LangChain's tools promise, so that they are tools of Milepost, and the other way round."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast

from langchain_core.tools import StructuredTool

from milepost.adapters.foreign import ForeignTool, foreign
from milepost.definitions.tools import Tool
from milepost.errors import InvalidDeclaration, NoRun

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from langchain_core.tools import BaseTool
    from pydantic import BaseModel

    from milepost.definitions.call import Call

_CALL: ContextVar[Call | None] = ContextVar("milepost_langgraph_call", default=None)


@contextmanager
def running(call: Call) -> Iterator[None]:
    """Let `this_call` answer, for a tool that is run inside the block."""
    token = _CALL.set(call)
    try:
        yield
    finally:
        _CALL.reset(token)


def this_call() -> Call:
    """Return the call that a tool is being run for: its key, attempt, deadline and secrets. Raises NoRun outside."""
    call = _CALL.get()
    if call is None:
        raise NoRun("this_call()")
    return call


def promised(tools: Iterable[BaseTool | Tool[..., Any]], /, **promises: Mapping[str, Any]) -> list[Tool[..., Any]]:
    """Declare LangChain's tools by what they promise, by name, in the words of `mp.tool`: `search={"effect": "read"}`.

    One about which nothing is said is irreversible: unknown outcomes of it wait for a person. Milepost's own tools may
    stand among them. Raises InvalidDeclaration for a promise about a tool that is not there.
    """
    found: list[Tool[..., Any]] = []
    left = dict(promises)
    for tool in tools:
        if isinstance(tool, Tool):
            found.append(tool)
        else:
            declared = left.pop(tool.name, {})
            found.append(foreign(tool.name, _schema(tool), description=tool.description, **declared))
    if left:
        names = ", ".join(sorted(tool.name for tool in found))
        raise InvalidDeclaration(f"promised(): nothing here is named {', '.join(sorted(left))}. There are: {names}.")
    return found


def _schema(tool: BaseTool) -> Mapping[str, Any]:
    """Return the schema of what a model gives; what LangGraph injects is no argument."""
    schema = tool.tool_call_schema
    return schema if isinstance(schema, dict) else cast("type[BaseModel]", schema).model_json_schema()


def is_foreign(tool: Tool[..., Any]) -> bool:
    """Say whether a tool is one of LangChain's, which is sent by LangChain's own handler."""
    return isinstance(tool, ForeignTool)


def offered(tool: Tool[..., Any]) -> BaseTool:
    """Return a tool of Milepost's as LangChain wants it; it is run by an attempt, and never by LangChain."""

    def run(**_arguments: Any) -> Any:
        raise NoRun(tool.name)

    return StructuredTool.from_function(
        run, name=tool.name, description=tool.description or tool.name, args_schema=dict(tool.parameters)
    )
