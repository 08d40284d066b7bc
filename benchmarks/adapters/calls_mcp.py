"""What a call of an MCP tool costs, over stdio: the client as it is, and the wrapper around it or the gateway.

`python -m benchmarks.adapters.calls_mcp FOLDER ROUNDS client|gateway`; with `serve` it is the server itself.
"""

import asyncio
import json
import sys
from pathlib import Path

from mcp import Client, StdioServerParameters
from mcp.server.mcpserver import MCPServer

import milepost as mp
from benchmarks.adapters.calling import KEYED, TURNS, compared, form, nothing, store
from benchmarks.child import ROOT
from milepost.adapters.mcp import Server

ME = ["-m", "benchmarks.adapters.calls_mcp", "serve"]
BANK = StdioServerParameters(command=sys.executable, args=ME, cwd=ROOT)
GATEWAY = """
store = "STORE"
[server.bank]
command = COMMAND
cwd = "CWD"
[server.bank.tool.nothing]
effect = "keyed"
key_ttl = "1h"
[caller.desk]
tools = ["bank_nothing"]
[stdio]
caller = "desk"
"""


def gateway(folder: Path) -> StdioServerParameters:
    """Write the file of a gateway, and return how it is started."""
    written = GATEWAY.replace("STORE", store()).replace("CWD", str(ROOT))
    file = folder / "servers.toml"
    file.write_text(written.replace("COMMAND", json.dumps([sys.executable, *ME])))
    return StdioServerParameters(command=sys.executable, args=["-m", "milepost", "gateway", "--config", str(file)])


async def talk(client: Client, tool: str, number: int) -> None:
    """Call the tool once in each turn."""
    for turn in range(TURNS):
        await client.call_tool(tool, {"number": number * TURNS + turn})


async def wrapped(direct: Client) -> None:
    """Compare with the wrapper."""
    bank = Server("bank", lambda: Client(BANK), nothing=KEYED)
    app = mp.App(store(), tools=list((await bank.tools()).values()))

    async def with_milepost(number: int) -> None:
        async with app.attach(key=f"thread-{number}") as run:
            for turn in range(TURNS):
                await bank.attempt(run, f"call_{turn}", "nothing", {"number": turn})

    async with app:
        await compared(lambda number: talk(direct, "nothing", number), with_milepost)
    await bank.close()


async def main() -> None:
    """Compare."""
    async with Client(BANK) as direct:
        if form() == "client":
            await wrapped(direct)
        else:
            async with Client(gateway(Path(sys.argv[1]))) as through:
                await compared(
                    lambda number: talk(direct, "nothing", number),
                    lambda number: talk(through, "bank_nothing", number),
                )


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        server = MCPServer("bank")
        server.tool()(nothing)
        server.run("stdio")
    else:
        asyncio.run(main())
