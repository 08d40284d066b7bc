"""What a call costs under Microsoft Agent Framework: bare, and with the recipe of docs/recipes.md as it is."""

import asyncio
from collections.abc import Sequence
from typing import Any

from agent_framework import Agent, tool

from benchmarks.adapters.calling import SCRIPT, compared, declared, folder, nothing, unheard
from tests.hosts.agent_framework.host import Script
from tests.hosts.recipes import program


async def ask(middleware: Sequence[Any]) -> None:
    """Have one conversation."""
    tools = [tool(nothing, approval_mode="never_require")]
    await Agent(client=Script(SCRIPT, unheard), tools=tools, middleware=[*middleware]).run("go on")


async def main() -> None:
    """Compare."""
    app = declared()
    recipe = program("docs/recipes.md", "agent_framework_outcomes", folder())
    async with app:
        await compared(
            lambda _: ask([]),
            lambda number: ask([recipe.Outcomes(app, key=f"session-{number}")]),
        )


if __name__ == "__main__":
    asyncio.run(main())
