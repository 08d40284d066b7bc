"""What a call costs under Strands Agents: bare, and with the recipe of docs/recipes.md as it stands there."""

import asyncio

from strands import Agent, tool
from strands.middleware import ExecuteToolStage

from benchmarks.adapters.calling import SCRIPT, compared, declared, folder, nothing, unheard
from tests.hosts.recipes import program
from tests.hosts.strands.host import Script


def agent() -> Agent:
    """Return an agent whose model asks for one call in each turn."""
    return Agent(model=Script(SCRIPT, unheard), tools=[tool(nothing)], callback_handler=None)


async def main() -> None:
    """Compare."""
    app = declared()
    recipe = program("docs/recipes.md", "strands_outcomes", folder())

    async def bare(_: int) -> None:
        await agent().invoke_async("go on")

    async def with_milepost(number: int) -> None:
        durable = agent()
        durable.add_middleware(ExecuteToolStage, recipe.outcomes(app, key=f"session-{number}"))
        await durable.invoke_async("go on")

    async with app:
        await compared(bare, with_milepost)


if __name__ == "__main__":
    asyncio.run(main())
