"""What a call costs under the Claude Agent SDK: as it is, and with the guard's options.

`python -m benchmarks.adapters.calls_claude FOLDER ROUNDS server|built_in`: a tool of a server inside this process, or
one that the command line makes, which the hooks record. In the place of the command line stands that of the tests.
"""

import asyncio
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, create_sdk_mcp_server, query, tool

import milepost as mp
from benchmarks.adapters.calling import KEYED, SCRIPT, compared, declared, form, nothing, store
from milepost.adapters.claude import Guard
from tests.hosts.claude.command_line import CommandLine


@tool("nothing", "Do nothing.", {"number": int})  # type: ignore[untyped-decorator]
async def bare(arguments: dict[str, Any]) -> dict[str, Any]:
    """Do nothing, in the words of the SDK."""
    return {"content": [{"type": "text", "text": await nothing(**arguments)}]}


async def ask(options: ClaudeAgentOptions, session: str) -> None:
    """Have one conversation."""
    own = {"nothing": nothing} if form() == "built_in" else {}
    name = "nothing" if own else "mcp__milepost__nothing"
    calls = [(id_, name, given) for ((id_, _, given),) in SCRIPT]
    line = CommandLine(calls, own, at_once=False, session=session)
    async for _ in query(prompt="go on", options=options, transport=line):
        pass


async def main() -> None:
    """Compare."""
    plain = ClaudeAgentOptions(mcp_servers={"milepost": create_sdk_mcp_server("milepost", tools=[bare])})
    if form() == "built_in":
        app = declared()
        guard = Guard(app, built_in=app.tools)
    else:
        app = mp.App(store(), tools=[mp.tool(**KEYED)(nothing)])
        guard = Guard(app)
    options = guard.guarded(ClaudeAgentOptions())
    async with app:
        await compared(
            lambda number: ask(plain, f"bare-{number}"),
            lambda number: ask(options, f"durable-{number}"),
        )


if __name__ == "__main__":
    asyncio.run(main())
