"""A host on Google ADK, with the recipe of docs/recipes.md or bare.

A session that it keeps is resumable, as ADK says: one that ends with calls which nobody answered is resumed by the id
of its invocation.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.apps.app import ResumabilityConfig
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import BaseSessionService, InMemorySessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from tests.adapters import outside
from tests.crash.world import here
from tests.hosts.recipes import recipe
from tests.hosts.scenario import BARE, KEPT, Batch, declared, go

TALK: dict[str, Any] = {"app_name": "desk", "user_id": "ann", "session_id": "session-7"}


class Script(BaseLlm):  # type: ignore[misc]
    """A model that asks for each batch in turn, and then is content."""

    batches: list[Any]
    asked: Any = outside.model
    told: list[Any] = []  # noqa: RUF012  a field of pydantic's, copied for each model

    async def generate_content_async(self, llm_request: LlmRequest, **_: bool) -> AsyncGenerator[LlmResponse, None]:
        """Answer."""
        self.asked()
        answers = [part.function_response for part in llm_request.contents[-1].parts if part.function_response]
        self.told += [next(iter(answer.response.values())) for answer in answers]
        turn = sum(any(part.function_call for part in content.parts) for content in llm_request.contents)
        calls = [types.FunctionCall(id=id_, name=name, args=given) for id_, name, given in [*self.batches, []][turn]]
        parts = [types.Part(function_call=call) for call in calls] or [types.Part(text="done")]
        yield LlmResponse(content=types.Content(role="model", parts=parts))


async def talk(runner: Runner, sessions: BaseSessionService, **session: Any) -> None:
    """Begin a session, or resume it where it stopped."""
    begun = await sessions.get_session(**session) or await sessions.create_session(**session)
    if begun.events:
        more: dict[str, Any] = {"invocation_id": begun.events[-1].invocation_id}
    else:
        more = {"new_message": types.Content(role="user", parts=[types.Part(text="go on")])}
    async for _ in runner.run_async(user_id=begun.user_id, session_id=begun.id, **more):
        pass


async def main() -> None:
    """Make the agent and its runner for each batch."""
    plugins = [] if BARE else [recipe("adk_outcomes").Outcomes(outside.app(declared()))]

    async def ask(batch: Batch) -> list[Any]:
        script = Script(model="script", batches=[batch])
        agent = LlmAgent(name="clerk", model=script, tools=list(outside.HANDLERS.values()))
        resumable = ResumabilityConfig(is_resumable=True) if KEPT else None
        app = App(name="desk", root_agent=agent, plugins=plugins, resumability_config=resumable)
        sessions = SqliteSessionService(str(here() / "sessions.db")) if KEPT else InMemorySessionService()
        await talk(Runner(app=app, session_service=sessions), sessions, **TALK)
        return script.told

    await go(ask)


if __name__ == "__main__":
    asyncio.run(main())
