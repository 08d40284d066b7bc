"""A host on the Claude Agent SDK: `python -m tests.hosts.claude.host tools|built_in|bare two:1 three:1`.

The tools are Milepost's, or functions of the command line; those it has bare, too. The program that the SDK drives
needs an account: in its place stands the one of these tests, which makes the calls as it does.
"""

import asyncio
import sys
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, create_sdk_mcp_server, query

from milepost.adapters.claude import Guard
from tests.adapters import outside
from tests.hosts.claude.command_line import CommandLine
from tests.hosts.scenario import BARE, Batch, declared, go

BUILT_IN = BARE or "built_in" in sys.argv


def options() -> ClaudeAgentOptions:
    """Return the options, guarded or as they are."""
    if BARE:
        return ClaudeAgentOptions(mcp_servers={"milepost": create_sdk_mcp_server("milepost", tools=[])})
    tools = declared() if BUILT_IN else list(outside.TOOLS.values())
    guard = Guard(outside.app(tools), built_in={tool.name: tool for tool in tools} if BUILT_IN else {})
    return guard.guarded(ClaudeAgentOptions())


async def main() -> None:
    """Ask for each batch once."""
    chosen = options()

    async def ask(batch: Batch) -> list[Any]:
        if BUILT_IN:
            line = CommandLine(batch, outside.HANDLERS)
        else:
            line = CommandLine([(id_, f"mcp__milepost__{name}", given) for id_, name, given in batch])
        outside.model()  # the command line asks it for the batch, and then what it makes of the results
        async for _ in query(prompt="go on", options=chosen, transport=line):
            pass
        outside.model()
        return [text for text, _ in line.told]

    await go(ask)


if __name__ == "__main__":
    asyncio.run(main())
