"""The Claude Agent SDK without Milepost. `python -m benchmarks.adapters.bare_claude two:1`.

The program that it drives needs an account: in its place stands the one of the tests, which makes the calls as it does.
"""

import asyncio
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, create_sdk_mcp_server, query

from tests.adapters import outside
from tests.hosts.claude.command_line import CommandLine
from tests.hosts.scenario import Batch, go


async def ask(batch: Batch) -> list[Any]:
    """Ask once; return what the model was told."""
    line = CommandLine(batch, outside.HANDLERS)
    options = ClaudeAgentOptions(mcp_servers={"milepost": create_sdk_mcp_server("milepost", tools=[])})
    outside.model()
    async for _ in query(prompt="go on", options=options, transport=line):
        pass
    outside.model()
    return [text for text, _ in line.told]


if __name__ == "__main__":
    asyncio.run(go(ask))
