"""What a call costs under Google ADK: bare, and with the recipe of docs/recipes.md as it stands there."""

import asyncio
from collections.abc import Sequence
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService

from benchmarks.adapters.calling import SCRIPT, compared, declared, folder, nothing, unheard
from tests.hosts.adk.host import Script, talk
from tests.hosts.recipes import program


async def main() -> None:
    """Compare."""
    app = declared()
    outcomes = program("docs/recipes.md", "adk_outcomes", folder()).Outcomes(app)
    sessions = InMemorySessionService()

    async def ask(name: str, plugins: Sequence[Any]) -> None:
        agent = LlmAgent(name="clerk", model=Script(model="script", batches=SCRIPT, asked=unheard), tools=[nothing])
        runner = Runner(app=App(name="desk", root_agent=agent, plugins=[*plugins]), session_service=sessions)
        await talk(runner, sessions, app_name="desk", user_id="ann", session_id=name)

    async with app:
        await compared(
            lambda number: ask(f"bare-{number}", []),
            lambda number: ask(f"durable-{number}", [outcomes]),
        )


if __name__ == "__main__":
    asyncio.run(main())
