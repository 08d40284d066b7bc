"""A loop of one's own whose tools are those of an MCP server: Milepost is in its client, or a gateway in between.

`python -m benchmarks.adapters.mcp_host two|three bare|client|gateway`. With the gateway the host is that of `bare`, and
starts another program.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters
from mcp_types import TextContent

import milepost as mp
from benchmarks.adapters.mcp_bank import HOST
from milepost.adapters.mcp import Server
from milepost.adapters.saying import to_model
from tests.adapters import outside
from tests.crash.world import CRASH_AT, here

BATCH = {"two": outside.TWO, "three": outside.THREE}[sys.argv[1]]
BANK = ["-m", "benchmarks.adapters.mcp_bank"]
GATEWAY = """
store = "STORE"
[server.bank]
command = COMMAND
env = ENVIRONMENT
[server.bank.tool.reserve]
effect = "keyed"
key_ttl = "1h"
[server.bank.tool.refund]
[server.bank.tool.note]
[server.bank.tool.publish]
approval = true
[caller.desk]
tools = ["bank_reserve", "bank_refund", "bank_note", "bank_publish"]
[stdio]
caller = "desk"
"""


def surroundings() -> dict[str, str]:
    """Return what the server has to know of this process."""
    given = {name: value for name, value in os.environ.items() if name in {CRASH_AT, "CRASH_FOLDER", "PYTHONPATH"}}
    return {**given, HOST: str(os.getpid())}


def parameters(arguments: list[str]) -> StdioServerParameters:
    """Return how a server is started."""
    return StdioServerParameters(command=sys.executable, args=arguments, env={**os.environ, **surroundings()})


def file() -> Path:
    """Write the file of the gateway."""
    environment = "{ " + ", ".join(f"{name} = {json.dumps(value)}" for name, value in surroundings().items()) + " }"
    written = GATEWAY.replace("STORE", outside.url(here())).replace("ENVIRONMENT", environment)
    path = here() / "servers.toml"
    path.write_text(written.replace("COMMAND", json.dumps([sys.executable, *BANK])))
    return path


def text(result: Any) -> str:
    """Return what an answer says in words."""
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))


async def unchanged(arguments: list[str], prefix: str = "") -> list[str]:
    """Make the batch as a host does that knows nothing of Milepost."""
    async with Client(parameters(arguments)) as client:
        calls = (client.call_tool(f"{prefix}{name}", given) for _, name, given in BATCH)
        return [text(result) for result in await asyncio.gather(*calls)]


async def wrapped() -> list[str]:
    """Make the batch through the wrapper around the client."""
    bank = Server("bank", lambda: Client(parameters(BANK)), **outside.DECLARED)
    app = outside.app([])
    async with app.client():  # the server looks whether there is a record as it starts
        tools = list((await bank.tools()).values())
    app = outside.app(tools)

    async def told(run: mp.AttachedRun, id_: str, name: str, given: dict[str, Any]) -> str:
        outcome = await bank.attempt(run, id_, name, given)
        return text(outcome.value) if isinstance(outcome, mp.Confirmed) else to_model(outcome, name)

    async with app.attach(key="thread-7") as run:
        said = await asyncio.gather(*(told(run, *call) for call in BATCH))
    await bank.close()
    return said


async def main(form: str) -> list[str]:
    """Ask the model, and do what it asks for."""
    outside.model()
    if form == "client":
        said = await wrapped()
    elif form == "gateway":
        said = await unchanged(["-m", "milepost", "gateway", "--config", str(file())], "bank_")
    else:
        said = await unchanged(BANK)
    outside.model()
    return said


if __name__ == "__main__":
    outside.say(asyncio.run(main(sys.argv[2])))
