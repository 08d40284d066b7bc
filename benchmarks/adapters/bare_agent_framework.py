"""Microsoft Agent Framework without Milepost. `python -m benchmarks.adapters.bare_agent_framework two:1`."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from agent_framework import Agent, BaseChatClient, ChatResponse, Content, FunctionInvocationLayer, Message, tool

from tests.adapters import outside
from tests.hosts.scenario import Batch, go


class Script(FunctionInvocationLayer, BaseChatClient):  # type: ignore[misc]
    """A model that asks for the batch, and then is content."""

    def __init__(self, batch: Batch) -> None:
        super().__init__()
        self.batch, self.told = batch, list[Any]()

    async def _inner_get_response(self, *, messages: Sequence[Message], **_options: Any) -> ChatResponse:
        """Answer."""
        outside.model()
        results = [content.result for content in messages[-1].contents if content.type == "function_result"]
        self.told += results
        calls = [Content.from_function_call(id_, name, arguments=json.dumps(given)) for id_, name, given in self.batch]
        return ChatResponse(messages=[Message("assistant", ["done"] if results else calls)])


async def ask(batch: Batch) -> list[Any]:
    """Ask once; return what the model was told."""
    script = Script(batch)
    tools = [tool(handler, approval_mode="never_require") for handler in outside.HANDLERS.values()]
    await Agent(client=script, tools=tools).run("go on")
    return script.told


if __name__ == "__main__":
    asyncio.run(go(ask))
