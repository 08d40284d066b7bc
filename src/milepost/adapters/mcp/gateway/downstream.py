"""The servers behind the gateway: what they offer, and what of it is declared.

Every declared tool becomes a tool of Milepost, named `SERVER_TOOL` where the file says no name; what is not declared is
not there. The schemas are those of the moment at which the gateway started: a server that changes a tool later is sent
what was promised then.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from milepost.adapters.mcp.gateway.config import BadGateway
from milepost.adapters.mcp.gateway.reconciling import ARGUMENT, reconciler
from milepost.adapters.mcp.server import Server
from milepost.definitions.free_arguments import FreeArguments
from milepost.definitions.tools import Reconciler
from milepost.errors import InvalidDeclaration, NotSent

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp_types import Tool as Listed

    from milepost.adapters.mcp.gateway.config import Asked, Config, ServerEntry, ToolEntry
    from milepost.definitions.tools import Tool

FOR_MODELS = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True)
class Offered:
    """One tool that the gateway offers: what the server listed, what is declared, and the tool of Milepost."""

    server: str
    listed: Listed
    entry: ToolEntry
    tool: Tool[..., Any]
    tightened: str


@dataclass
class Downstream:
    """All servers of a file. `problems` is what is wrong; `unlisted` are the tools that stay hidden, by server."""

    servers: list[Server] = field(default_factory=list)
    offered: dict[str, Offered] = field(default_factory=dict)
    unlisted: dict[str, list[str]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    async def close(self) -> None:
        """Leave every server."""
        for server in self.servers:
            await server.close()


async def connect(config: Config) -> Downstream:
    """Ask every server what it offers, and make the tools. What is wrong is in `problems`."""
    found = Downstream()
    for entry in config.servers:
        await _add(found, entry)
    for caller in config.callers.values():
        unknown = [name for name in caller.tools if name not in found.offered]
        if unknown:
            known = ", ".join(sorted(found.offered)) or "none"
            found.problems.append(f"[caller.{caller.name}] may use {', '.join(unknown)}; declared are {known}")
    return found


async def required(config: Config) -> Downstream:
    """Connect. Raises BadGateway with everything that is wrong."""
    found = await connect(config)
    if found.problems:
        await found.close()
        raise BadGateway(config.path, found.problems)
    return found


async def _add(found: Downstream, entry: ServerEntry) -> None:
    where = f"[server.{entry.name}]"
    server = Server(entry.name, connector(entry))
    found.servers.append(server)
    try:
        listed = {one.name: one for one in await server.listed()}
    except NotSent as error:
        found.problems.append(f"{where}: {error}")
        return
    except Exception as error:  # noqa: BLE001  a server may answer anything; it is said, and nothing is served
        found.problems.append(f"{where} did not list its tools: {error}")
        return
    found.unlisted[entry.name] = sorted(listed.keys() - entry.tools.keys())
    for name, declared in entry.tools.items():
        try:
            offered = _offered(server, listed, name, declared)
            _fit_for_models(offered.tool.name, found)
        except InvalidDeclaration as error:
            found.problems.append(f"[server.{entry.name}.tool.{name}]: {error}")
        else:
            found.offered[offered.tool.name] = offered


def _offered(server: Server, listed: Mapping[str, Listed], name: str, entry: ToolEntry) -> Offered:
    alone = Server(server.name, server.connection, **{name: {**entry.declared, "approval": entry.approval}})
    tool = alone.declare(list(listed.values()))[name]
    if tool.scopes and tool.effect == "read" and not tool.costed and not entry.approval:
        raise InvalidDeclaration(
            "is a read that costs nothing, from which scopes keep nobody: leave them out, and list it only for callers "
            "that may use it"
        )
    if entry.asked is not None:
        _must_read(listed, entry.asked.tool)
        _must_be_named(tool, listed[entry.asked.tool], entry.asked)
        if tool.effect == "read":
            raise InvalidDeclaration("is a read, and has nothing to reconcile")
        tool.reconciler = Reconciler(reconciler(server.connection, entry.asked), is_async=True, takes_call=True)
    return Offered(server.name, listed[name], entry, tool, alone.tightened.get(name, ""))


def _must_read(listed: Mapping[str, Listed], asked: str) -> None:
    found = listed.get(asked)
    if found is None:
        raise InvalidDeclaration(f"its reconcile asks {asked}, which its server does not have")
    if found.annotations is not None and found.annotations.read_only_hint is False:
        raise InvalidDeclaration(f"its reconcile asks {asked}, of which its server says that it is not read-only")


def _must_be_named(tool: Tool[..., Any], asked: Listed, how: Asked) -> None:
    """Refuse what names nothing: a question with a misspelt filter may be answered about any attempt."""
    known = FreeArguments(asked.name, asked.input_schema)
    unknown = sorted(how.arguments.keys() - {*known.names})
    if unknown and not known.open:
        raise InvalidDeclaration(f"its reconcile gives {asked.name} {', '.join(unknown)}, which it does not take")
    own = FreeArguments(tool.name, tool.parameters)
    for value in (value for part in (how.arguments, how.happened, how.absent, how.same) for value in part.values()):
        name = value.removeprefix(ARGUMENT).split(".")[0] if isinstance(value, str) else ""
        if isinstance(value, str) and value.startswith(ARGUMENT) and name not in own.names and not own.open:
            raise InvalidDeclaration(f"its reconcile says {value}, and it has no argument {name}")


def _fit_for_models(name: str, found: Downstream) -> None:
    if not FOR_MODELS.fullmatch(name):
        raise InvalidDeclaration(
            f'{name!r} is no name that models can be given: declare another, name = "…", of up to 64 letters, '
            "digits, '_' or '-'"
        )
    if name in found.offered:
        raise InvalidDeclaration(f'another tool is offered as {name}: declare another name, name = "…"')


def connector(entry: ServerEntry) -> Callable[[], Client]:
    """Return what makes a new client of this server."""
    if entry.url is not None:
        return lambda: Client(_over_http(entry.url or "", entry.headers))
    command, *args = entry.command
    server = StdioServerParameters(command=command, args=args, env=dict(entry.env) or None, cwd=entry.cwd)
    return lambda: Client(server)


@asynccontextmanager
async def _over_http(url: str, headers: Mapping[str, str]) -> AsyncIterator[Any]:
    async with (
        create_mcp_http_client(headers=dict(headers)) as client,
        streamable_http_client(url, http_client=client) as streams,
    ):
        yield streams
