"""A host on Microsoft Agent Framework, with the recipe of docs/recipes.md or bare."""

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

from agent_framework import Agent, BaseChatClient, ChatResponse, Content, FunctionInvocationLayer, Message, tool

from tests.adapters import outside
from tests.hosts.recipes import recipe
from tests.hosts.scenario import BARE, Batch, declared, go


class Script(FunctionInvocationLayer, BaseChatClient):  # type: ignore[misc]
    """A model that asks for each batch in turn, and then is content."""

    def __init__(self, batches: Sequence[Batch], asked: Callable[[], None] = outside.model) -> None:
        super().__init__()
        self.batches, self.asked, self.told = batches, asked, list[Any]()

    async def _inner_get_response(self, *, messages: Sequence[Message], **_options: Any) -> ChatResponse:
        """Answer."""
        self.asked()
        self.told += [content.result for content in messages[-1].contents if content.type == "function_result"]
        turn = sum(any(content.type == "function_result" for content in message.contents) for message in messages)
        calls = [
            Content.from_function_call(id_, name, arguments=json.dumps(given))
            for id_, name, given in [*self.batches, []][turn]
        ]
        return ChatResponse(messages=[Message("assistant", calls or ["done"])])


async def main() -> None:
    """Make the agent for each batch, and ask it once."""
    recorded = [] if BARE else [recipe("agent_framework_outcomes").Outcomes(outside.app(declared()), key="session-7")]

    async def ask(batch: Batch) -> list[Any]:
        script = Script([batch])
        tools = [tool(handler, approval_mode="never_require") for handler in outside.HANDLERS.values()]
        await Agent(client=script, tools=tools, middleware=recorded).run("go on")
        return script.told

    await go(ask)


if __name__ == "__main__":
    asyncio.run(main())
