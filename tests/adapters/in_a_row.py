"""Calls of one host, one after the other, each through its adapter's own entry: what a call costs is counted from here.

    python -m tests.adapters.in_a_row URL COUNT FORM

FORM is `langgraph` (an agent in an app that its host has opened), `langgraph-sync` (an agent that is invoked by a plain
script), `gateway` (the calls of a caller, as the gateway makes them) or `claude` (calls as a guard makes them). Each
call says that it is being made: by then its `started` is on the disk.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from langchain.agents import create_agent
from langchain_core.tools import StructuredTool

import milepost as mp
from benchmarks.adapters.calls_langgraph import Scripted
from milepost.adapters.anew import Calls as Anew
from milepost.adapters.foreign import foreign
from milepost.adapters.langgraph import Outcomes, promised
from milepost.adapters.mcp.gateway.calls import Calls
from milepost.adapters.mcp.gateway.config import CallerEntry, Config
from milepost.adapters.threads import LINGER, Threads

URL, COUNT, FORM = sys.argv[1], int(sys.argv[2]), sys.argv[3]
SCHEMA = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
KEYED: dict[str, Any] = {"effect": "keyed", "key_ttl": "1h"}
THREAD: Any = {"configurable": {"thread_id": "thread-7"}, "recursion_limit": 4 * COUNT + 4}
GO: Any = {"messages": [("user", "go")]}
CALLER = CallerEntry("desk", "", ("act",), (), None, {})
CONFIG = Config("servers.toml", "", None, None, None, 3_600_000, "127.0.0.1", 0, None, (), {"desk": CALLER})


def act_sync(number: int) -> str:
    """Say so, and do nothing."""
    sys.stdout.write(f"acting {number}.\n")
    sys.stdout.flush()
    return str(number)


async def act(number: int) -> str:
    """Say so, and do nothing."""
    return act_sync(number)


async def langgraph() -> None:
    tool = StructuredTool.from_function(coroutine=act)
    kept = promised([tool], act=KEYED)
    app = mp.App(URL, tools=kept)
    agent = create_agent(Scripted(turns=COUNT, tool="act"), [tool], middleware=[Outcomes(app, kept)])
    async with app:
        await agent.ainvoke(GO, THREAD)


def langgraph_sync() -> None:
    tool = StructuredTool.from_function(act_sync, name="act")
    kept = promised([tool], act=KEYED)
    agent = create_agent(
        Scripted(turns=COUNT, tool="act"), [tool], middleware=[Outcomes(mp.App(URL, tools=kept), kept)]
    )
    agent.invoke(GO, THREAD)


async def sent(_: mp.Call, arguments: dict[str, Any]) -> Any:
    return {"content": [], "number": act_sync(**arguments)}


async def gateway() -> None:
    tool = foreign("act", SCHEMA, sent, **KEYED)
    app = mp.App(URL, tools=[tool])
    async with app:
        calls = Calls(app, CALLER, CONFIG)
        await _each(lambda number: calls.attempt(tool, {"number": number}, {}))


async def claude() -> None:
    tool = foreign("act", SCHEMA, sent, **KEYED)
    app = mp.App(URL, tools=[tool])
    async with app:
        calls = Anew(Threads(app, linger=LINGER))
        await _each(lambda number: calls.told("thread-7", f"call_{number}", tool, {"number": number}))


async def _each(call: Callable[[int], Awaitable[Any]]) -> None:
    for number in range(COUNT):
        await call(number)


if __name__ == "__main__":
    if FORM == "langgraph-sync":
        langgraph_sync()
    else:
        asyncio.run({"langgraph": langgraph, "gateway": gateway, "claude": claude}[FORM]())
