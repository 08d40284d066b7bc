"""The MCP server of the scenario. Where it is told to, it kills the host, and the gateway, before `refund` answers."""

import os
import signal
from pathlib import Path

from mcp.server.mcpserver import MCPServer

from tests.adapters import outside
from tests.crash.world import CRASH_AT, World, here

HOST = "SCENARIO_HOST"  # the host's process
server = MCPServer("bank")


@server.tool()
async def reserve(order: str) -> str:
    """Reserve the money of an order."""
    return await outside.reserve(order)


@server.tool()
async def refund(order: str, cents: int) -> str:
    """Refund an order. It can be neither repeated nor looked up."""
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
    return await outside.note(text)


@server.tool()
async def publish(text: str) -> str:
    """Publish a text."""
    return await outside.publish(text)


async def main() -> None:
    """Serve. If the host, or the gateway, has a record, that is what `refund` and `note` wait for."""
    if Path(here() / "store.db").exists():
        async with outside.app([]).client():
            await server.run_stdio_async()
    else:
        await server.run_stdio_async()


if __name__ == "__main__":
    import asyncio

    asyncio.run(main())
