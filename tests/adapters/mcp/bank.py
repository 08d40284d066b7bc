"""An MCP server of the outside world, as a process: what it did stands in a ledger of its own.

    python bank.py FOLDER [PORT]

Files in the folder make it misbehave over one order, or one mail: `hold.X` keeps the answer back after the money moved,
until the file is gone; `refuse.X` answers with an error after it moved; `drop.X` ends the process after it moved.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import Field

FOLDER = Path(sys.argv[1])
LEDGER = FOLDER / "ledger.jsonl"
server = MCPServer("bank")


def write(**what: Any) -> None:
    with LEDGER.open("a") as ledger:
        ledger.write(json.dumps(what) + "\n")


def entries(kind: str) -> list[dict[str, Any]]:
    if not LEDGER.exists():
        return []
    return [one for one in map(json.loads, LEDGER.read_text().splitlines()) if one["kind"] == kind]


async def misbehave(over: str) -> None:
    drop = FOLDER / f"drop.{over}"
    if drop.exists():
        drop.unlink()
        os._exit(1)
    while (FOLDER / f"hold.{over}").exists():  # noqa: ASYNC110  a test decides how long
        await asyncio.sleep(0.01)
    if (FOLDER / f"refuse.{over}").exists():
        raise ToolError("the books are closed")


def key_of(context: Context[Any]) -> str:
    return str((context.request_context.meta or {}).get("milepost/key", ""))


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def find_charge(order: str) -> dict[str, Any]:
    """Look a charge up."""
    write(kind="asked", order=order)
    found = [one for one in entries("charge") if one["order"] == order]
    return {"found": bool(found), "cents": found[0]["cents"] if found else 0}


@server.tool()
async def charge(order: str, cents: int, context: Context[Any]) -> dict[str, Any]:
    """Charge an order."""
    write(kind="charge", order=order, cents=cents, key=key_of(context))
    await misbehave(order)
    return {"receipt": f"receipt {order}"}


@server.tool()
async def charge_once(order: str, cents: int, context: Context[Any]) -> dict[str, Any]:
    """Charge an order; a second call with the same key changes nothing."""
    key = key_of(context)
    write(kind="seen", order=order, key=key)
    if all(one["key"] != key for one in entries("charge")):
        write(kind="charge", order=order, cents=cents, key=key)
    await misbehave(order)
    return {"receipt": f"receipt {order}"}


@server.tool()
def charge_keyed(order: str, idempotency_key: Annotated[str, Field(description="yours")]) -> str:
    """Charge an order under a key that is an argument."""
    write(kind="charge", order=order, key=idempotency_key)
    return f"receipt {order}"


@server.tool(annotations=ToolAnnotations(read_only_hint=False, idempotent_hint=False))
async def mail(to: str, text: str = "hello") -> str:
    """Send a mail."""
    write(kind="mail", to=to, text=text)
    await misbehave(to)
    return f"sent to {to}"


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def wipe() -> str:
    """Wipe the books. That it only reads is a lie."""
    write(kind="wipe")
    return "wiped"


if __name__ == "__main__":
    if len(sys.argv) > 2:
        server.run("streamable-http", port=int(sys.argv[2]))
    else:
        server.run("stdio")
