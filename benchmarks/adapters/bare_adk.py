"""Google ADK without Milepost: resumable, its session in SQLite. `python -m benchmarks.adapters.bare_adk two|three`.

A session that ends with calls which nobody answered is resumed by the id of its invocation, as ADK says.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.apps.app import ResumabilityConfig
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from tests.adapters import outside
from tests.crash.world import here

BATCH = {"two": outside.TWO, "three": outside.THREE}[sys.argv[1]]
SESSION: dict[str, Any] = {"app_name": "desk", "user_id": "ann", "session_id": "session-7"}


class Script(BaseLlm):  # type: ignore[misc]
    """A model that asks for the batch, and then says what came of it."""

    async def generate_content_async(self, llm_request: LlmRequest, **_: bool) -> AsyncGenerator[LlmResponse, None]:
        """Answer."""
        outside.model()
        answers = [part.function_response for part in llm_request.contents[-1].parts if part.function_response]
        calls = [types.FunctionCall(id=id_, name=name, args=given) for id_, name, given in BATCH]
        told = ", ".join(str(answer.response) for answer in answers)
        parts = [types.Part(text=told)] if answers else [types.Part(function_call=call) for call in calls]
        yield LlmResponse(content=types.Content(role="model", parts=parts))


async def main() -> None:
    """Begin the session, or resume it where it stopped."""
    agent = LlmAgent(name="clerk", model=Script(model="script"), tools=list(outside.HANDLERS.values()))
    sessions = SqliteSessionService(str(here() / "sessions.db"))
    app = App(name="desk", root_agent=agent, resumability_config=ResumabilityConfig(is_resumable=True))
    runner = Runner(app=app, session_service=sessions)
    begun = await sessions.get_session(**SESSION)
    if begun is None or not begun.events:
        if begun is None:
            await sessions.create_session(**SESSION)
        prompt = types.Content(role="user", parts=[types.Part(text="go on")])
        more: dict[str, Any] = {"new_message": prompt}
    else:
        more = {"invocation_id": begun.events[-1].invocation_id}
    said = ""
    async for event in runner.run_async(user_id="ann", session_id="session-7", **more):
        said = "".join(part.text or "" for part in event.content.parts) if event.content else said
    outside.say(said)


if __name__ == "__main__":
    asyncio.run(main())
