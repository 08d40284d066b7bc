"""The MCP server of the scenario. Where it is told to, it kills the host, and the gateway, before `refund` answers."""

import asyncio
import os
import signal
from contextlib import AsyncExitStack

from mcp.server.mcpserver import MCPServer

from tests.adapters import outside
from tests.crash.world import CRASH_AT, World, here

HOST = "SCENARIO_HOST"  # the host's process
server = MCPServer("bank")
_opening = asyncio.Lock()
_record = AsyncExitStack()


async def look() -> None:
    """Open the record of the host or of the gateway, if there is one: it was written before anything came here."""
    async with _opening:
        if (here() / "store.db").exists() and not outside.recording():
            await _record.enter_async_context(outside.app([]).client())


@server.tool()
async def reserve(order: str) -> str:
    """Reserve the money of an order."""
    return await outside.reserve(order)


@server.tool()
async def refund(order: str, cents: int) -> str:
    """Refund an order. It can be neither repeated nor looked up."""
    await look()
    await outside.reserved()
    World(here()).apply("refund", "", 1, {"order": order, "cents": cents})
    if os.environ.get(CRASH_AT) == outside.KILL:
        for process in dict.fromkeys((os.getppid(), int(os.environ[HOST]))):
            os.kill(process, signal.SIGKILL)
        os._exit(1)
    return outside.RESULTS["refund"]


@server.tool()
async def note(text: str) -> str:
    """Write a note, slowly."""
    await look()
    return await outside.note(text)


@server.tool()
async def publish(text: str) -> str:
    """Publish a text."""
    return await outside.publish(text)


if __name__ == "__main__":
    server.run("stdio")
