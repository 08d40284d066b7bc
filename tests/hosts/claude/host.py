"""A host on the Claude Agent SDK: `python -m tests.hosts.claude.host tools|built_in two:1 three:1`."""

import asyncio
import sys
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, query

from milepost.adapters.claude import Guard
from tests.adapters import outside
from tests.hosts.claude.command_line import CommandLine
from tests.hosts.scenario import Batch, declared, go

BUILT_IN = sys.argv[1] == "built_in"
TOOLS = declared() if BUILT_IN else list(outside.TOOLS.values())
GUARD = Guard(outside.app(TOOLS), built_in={tool.name: tool for tool in TOOLS} if BUILT_IN else {})


async def ask(batch: Batch) -> list[Any]:
    """Ask once; return what the model was told."""
    if BUILT_IN:
        line = CommandLine(batch, outside.HANDLERS)
    else:
        line = CommandLine([(id_, f"mcp__milepost__{name}", given) for id_, name, given in batch])
    outside.model()  # the command line asks it for the batch, and then what it makes of the results
    async for _ in query(prompt="go on", options=GUARD.guarded(ClaudeAgentOptions()), transport=line):
        pass
    outside.model()
    return [text for text, _ in line.told]


if __name__ == "__main__":
    asyncio.run(go(ask))
