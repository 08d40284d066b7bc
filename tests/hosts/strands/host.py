"""A host on Strands Agents with the recipe of docs/recipes.md."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterable
from typing import Any

from strands import Agent, tool
from strands.middleware import ExecuteToolStage
from strands.models import Model

from tests.adapters import outside
from tests.hosts.recipes import recipe
from tests.hosts.scenario import Batch, declared, go

OUTCOMES = recipe("strands_outcomes").outcomes(outside.app(declared()), key="session-7")


class Script(Model):  # type: ignore[misc]
    """A model that asks for the batch, and then is content."""

    def __init__(self, batch: Batch) -> None:
        self.batch, self.told = batch, list[str]()

    def update_config(self, **_config: Any) -> None:
        """Have nothing to configure."""

    def get_config(self) -> Any:
        """Have nothing configured."""
        return {}

    def structured_output(self, *_: Any, **_options: Any) -> AsyncGenerator[dict[str, Any], None]:
        """Have no structured output."""
        raise NotImplementedError

    async def stream(self, messages: Any, *_: Any, **_options: Any) -> AsyncIterable[dict[str, Any]]:
        """Answer."""
        outside.model()
        results = [block["toolResult"] for block in messages[-1]["content"] if "toolResult" in block]
        self.told += [result["content"][0]["text"] for result in results]
        yield {"messageStart": {"role": "assistant"}}
        for id_, name, given in [] if results else self.batch:
            yield {"contentBlockStart": {"start": {"toolUse": {"toolUseId": id_, "name": name}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(given)}}}}
            yield {"contentBlockStop": {}}
        if results:
            yield {"contentBlockDelta": {"delta": {"text": "done"}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn" if results else "tool_use"}}


async def ask(batch: Batch) -> list[str]:
    """Ask once; return what the model was told."""
    script = Script(batch)
    agent = Agent(model=script, tools=[tool(handler) for handler in outside.HANDLERS.values()], callback_handler=None)
    agent.add_middleware(ExecuteToolStage, OUTCOMES)
    await agent.invoke_async("go on")
    return script.told


if __name__ == "__main__":
    asyncio.run(go(ask))
