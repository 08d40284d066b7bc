"""What LangChain's tools promise, so that they are tools of Milepost, and the other way round."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from langchain_core.tools import StructuredTool

from milepost.adapters.foreign import ForeignTool
from milepost.adapters.promises import Theirs, declared
from milepost.definitions.tools import Tool
from milepost.errors import NoRun

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from langchain_core.tools import BaseTool
    from pydantic import BaseModel


def promised(tools: Iterable[BaseTool | Tool[..., Any]], /, **promises: Mapping[str, Any]) -> list[Tool[..., Any]]:
    """Declare LangChain's tools by what they promise, by name, in the words of `mp.tool`: `search={"effect": "read"}`.

    One about which nothing is said is irreversible: unknown outcomes of it wait for a person. `reconcile` is the
    function that finds out. Milepost's own tools may stand among them. Raises InvalidDeclaration for a promise about a
    tool that is not there.
    """
    return declared((tool if isinstance(tool, Tool) else _theirs(tool) for tool in tools), promises)


def _theirs(tool: BaseTool) -> Theirs:
    """Return a tool with the schema of what a model gives; what LangGraph injects is no argument."""
    schema = tool.tool_call_schema
    if not isinstance(schema, dict):
        schema = cast("type[BaseModel]", schema).model_json_schema()
    return Theirs(tool.name, schema, tool.description)


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
