"""The tools of one MCP server, as tools of a run.

    bank = Server("bank", lambda: Client("http://127.0.0.1:9000/mcp"), find={"effect": "read"}, charge={…})
    tools = await bank.tools()

Only declared tools are made, and a declared one that the server does not have is refused: a misspelt name must not
leave a tool without the promise that was meant for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mcp_types import CallToolResult
from mcp_types import Tool as Listed

from milepost.adapters.foreign import foreign
from milepost.adapters.mcp import sending
from milepost.adapters.mcp.connection import Connection
from milepost.definitions.call import Confirmed
from milepost.errors import InvalidDeclaration

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import ToolAnnotations

    from milepost.definitions.call import Call, Outcome
    from milepost.definitions.run import AttachedRun
    from milepost.definitions.tools import Effect, Tool

PAGES = 100


class Server:
    """One MCP server. `connect` makes a new client of MCP each time it is called; `declared` says by name what holds.

    A declaration is what `milepost.tool` takes; besides, `errors="rejected"` (see `sending`) and `key_argument`, the
    argument in which the server expects our key, which nobody else sees. An empty one means the worst: irreversible.
    """

    def __init__(self, name: str, connect: Callable[[], Client] | Connection, /, **declared: Mapping[str, Any]) -> None:
        self.name = name
        self.connection = connect if isinstance(connect, Connection) else Connection(name, connect)
        self.tightened: dict[str, str] = {}
        self._declared = {tool: dict(said) for tool, said in declared.items()}
        self._tools: dict[str, Tool[..., Any]] = {}

    async def close(self) -> None:
        """Leave the server; the next call connects anew."""
        await self.connection.close()

    async def listed(self) -> list[Listed]:
        """Ask the server for its tools. Raises NotSent where it cannot be reached."""
        found: list[Listed] = []
        cursor: str | None = None
        async with self.connection.use() as client:
            for _ in range(PAGES):
                page = await client.list_tools(cursor=cursor, cache_mode="refresh")
                found += page.tools
                cursor = page.next_cursor
                if cursor is None:
                    break
        return found

    async def tools(self) -> Mapping[str, Tool[..., Any]]:
        """Return the declared tools by the server's own names, to be listed by an App or a workflow.

        Raises NotSent where the server cannot be reached, InvalidDeclaration where it does not have a declared tool.
        """
        if not self._tools:
            self.declare(await self.listed())
        return self._tools

    def declare(self, listed: Sequence[Listed]) -> Mapping[str, Tool[..., Any]]:
        """Make the tools from what the server listed, then or at an earlier time. Raises InvalidDeclaration."""
        by_name = {one.name: one for one in listed}
        missing = sorted(self._declared.keys() - by_name.keys())
        if missing:
            offered = ", ".join(sorted(by_name)) or "no tools"
            raise InvalidDeclaration(f"{self.name} has no tool {', '.join(missing)}. It offers {offered}.")
        self._tools = {name: self._tool(by_name[name], **said) for name, said in self._declared.items()}
        return self._tools

    def _tool(
        self, listed: Listed, *, errors: sending.Errors = "unknown", key_argument: str | None = None, **declared: Any
    ) -> Tool[..., Any]:
        effect, why = tightened(declared.pop("effect", None), listed.annotations)
        if why:
            self.tightened[listed.name] = why
            declared.pop("key_ttl", None)
        name = declared.pop("name", f"{self.name}_{listed.name}")
        schema = listed.input_schema if key_argument is None else without(listed.input_schema, key_argument, name)
        sending.checked_schema(schema, name)

        async def send(call: Call, arguments: dict[str, Any]) -> Any:
            given = arguments if key_argument is None else {**arguments, key_argument: call.key}
            return await sending.send(self.connection, listed.name, given, call, errors=errors)

        description = declared.pop("description", listed.description or "")
        return foreign(name, schema, send, description=description, effect=effect, **declared)

    # ------------------------------------------------------------ calling

    async def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None) -> CallToolResult:
        """Call a tool as a step of the segment that this is awaited in, as `mcp.Client.call_tool` is called.

        Raises StepFailed where it failed, InvalidArguments, and NoRun outside a run.
        """
        tool = self._fitting(name, arguments)
        return sending.from_json(await tool.from_json(dict(arguments or {})))

    async def attempt(
        self, run: AttachedRun, id: str, name: str, arguments: Mapping[str, Any] | None = None
    ) -> Outcome[CallToolResult]:
        """Call a tool on an attached run, under the host's own id of the call; never raises for waiting."""
        outcome = await run.attempt(id, self._fitting(name, arguments), **dict(arguments or {}))
        return Confirmed(sending.from_json(outcome.value)) if isinstance(outcome, Confirmed) else outcome

    def _fitting(self, name: str, arguments: Mapping[str, Any] | None) -> Tool[..., Any]:
        found = self._tools.get(name)
        if found is None:
            known = ", ".join(sorted(self._tools)) or "none before tools() was awaited"
            raise InvalidDeclaration(f"{self.name} has no declared tool {name}. Declared: {known}.")
        sending.fitting(found, arguments or {})
        return found


def tightened(declared: Effect | None, hints: ToolAnnotations | None) -> tuple[Effect, str]:
    """Return the class that holds, and why it is another than the declared one (empty where it is not).

    Nobody checks what a server says of its tools, so a hint never loosens: without a declaration a tool is
    irreversible, however harmless it calls itself. Where one contradicts a declaration, the server knows of a danger.
    """
    if declared is None:
        return "irreversible", ""
    if hints is not None and declared == "read" and hints.read_only_hint is False:
        return "irreversible", "it is declared a read, and its server says that it is not read-only"
    if hints is not None and declared == "absolute" and hints.idempotent_hint is False:
        return "irreversible", "it is declared absolute, and its server says that it is not idempotent"
    return declared, ""


def without(schema: Mapping[str, Any], argument: str, tool: str) -> dict[str, Any]:
    """Return a schema without one argument, which we fill in. Raises InvalidDeclaration where it has none."""
    properties = dict(schema.get("properties", {}))
    if properties.pop(argument, None) is None:
        raise InvalidDeclaration(f"{tool} has no argument {argument!r} to put our key into.")
    required = [name for name in schema.get("required", ()) if name != argument]
    return {**schema, "properties": properties, "required": required}
