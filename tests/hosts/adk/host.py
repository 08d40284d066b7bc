"""A host on Google ADK with the recipe of docs/recipes.md."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai import types

from tests.adapters import outside
from tests.hosts.recipes import recipe
from tests.hosts.scenario import Batch, declared, go

PLUGIN = recipe("adk_outcomes").Outcomes(outside.app(declared()))


class Script(BaseLlm):  # type: ignore[misc]
    """A model that asks for the batch, and then is content."""

    batch: list[Any]
    told: list[Any] = []  # noqa: RUF012  a field of pydantic's, copied for each model

    async def generate_content_async(self, llm_request: LlmRequest, **_: bool) -> AsyncGenerator[LlmResponse, None]:
        """Answer."""
        outside.model()
        answers = [part.function_response for part in llm_request.contents[-1].parts if part.function_response]
        self.told += [next(iter(answer.response.values())) for answer in answers]
        calls = [types.FunctionCall(id=id_, name=name, args=given) for id_, name, given in self.batch]
        parts = [types.Part(text="done")] if answers else [types.Part(function_call=call) for call in calls]
        yield LlmResponse(content=types.Content(role="model", parts=parts))


async def ask(batch: Batch) -> list[Any]:
    """Ask once; return what the model was told."""
    script = Script(model="script", batch=batch)
    agent = LlmAgent(name="clerk", model=script, tools=list(outside.HANDLERS.values()))
    sessions = InMemorySessionService()
    await sessions.create_session(app_name="desk", user_id="ann", session_id="session-7")
    runner = Runner(app=App(name="desk", root_agent=agent, plugins=[PLUGIN]), session_service=sessions)
    prompt = types.Content(role="user", parts=[types.Part(text="go on")])
    async for _ in runner.run_async(user_id="ann", session_id="session-7", new_message=prompt):
        pass
    return script.told


if __name__ == "__main__":
    asyncio.run(go(ask))
