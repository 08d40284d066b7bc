"""An agent loop of its own, as a process: two calls of one batch at once, the second irreversible.

    python batch.py FOLDER BANK STORE

It prints what came of each, one line a call; killed in between and started again, it makes the same two calls.
"""

import asyncio
import sys

from mcp import Client, StdioServerParameters

import milepost as mp
from milepost.adapters.mcp import Server

folder, bank, store = sys.argv[1:]
server = Server(
    "bank",
    lambda: Client(StdioServerParameters(command=sys.executable, args=[bank, folder])),
    charge_once={"effect": "keyed", "key_ttl": "1h"},
    mail={},
)


async def main() -> None:
    tools = list((await server.tools()).values())
    async with mp.App(store, tools=tools).attach(key="thread-1") as run:
        outcomes = await asyncio.gather(
            server.attempt(run, "call_1", "charge_once", {"order": "batch.1", "cents": 5}),
            server.attempt(run, "call_2", "mail", {"to": "batch.2"}),
        )
        for outcome in outcomes:
            print(outcome.reason if isinstance(outcome, mp.Waiting) else type(outcome).__name__)  # noqa: T201
    await server.close()


asyncio.run(main())
