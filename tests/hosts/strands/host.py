"""A host on Strands Agents, with the recipe of docs/recipes.md or bare. A session that it keeps is one of files."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Sequence
from typing import Any

from strands import Agent, tool
from strands.middleware import ExecuteToolStage
from strands.models import Model
from strands.session import FileSessionManager

from tests.adapters import outside
from tests.crash.world import here
from tests.hosts.recipes import recipe
from tests.hosts.scenario import BARE, KEPT, Batch, declared, go


class Script(Model):  # type: ignore[misc]
    """A model that asks for each batch in turn, until it has results that are no interruptions, and then is content."""

    def __init__(self, batches: Sequence[Batch], asked: Callable[[], None] = outside.model) -> None:
        self.batches, self.asked, self.told = batches, asked, list[str]()

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
        self.asked()
        self.told += [result["content"][0]["text"] for result in results(messages[-1])]
        calls = [*self.batches, []][sum(bool(results(message)) for message in messages)]
        yield {"messageStart": {"role": "assistant"}}
        for id_, name, given in calls:
            yield {"contentBlockStart": {"start": {"toolUse": {"toolUseId": id_, "name": name}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(given)}}}}
            yield {"contentBlockStop": {}}
        if not calls:
            yield {"contentBlockDelta": {"delta": {"text": "done"}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if calls else "end_turn"}}


def results(message: Any) -> list[Any]:
    """Return the results of a batch. What a restored session says of one that was interrupted is none."""
    found = [block["toolResult"] for block in message["content"] if "toolResult" in block]
    return [] if any("interrupted" in str(result) for result in found) else found


async def main() -> None:
    """Make the agent for each batch, and ask it once."""
    outcomes = None if BARE else recipe("strands_outcomes").outcomes(outside.app(declared()), key="session-7")

    async def ask(batch: Batch) -> list[str]:
        script = Script([batch])
        tools = [tool(handler) for handler in outside.HANDLERS.values()]
        kept = FileSessionManager("session-7", storage_dir=str(here() / "sessions")) if KEPT else None
        agent = Agent(agent_id="clerk", model=script, tools=tools, callback_handler=None, session_manager=kept)
        if outcomes is not None:
            agent.add_middleware(ExecuteToolStage, outcomes)
        await agent.invoke_async("go on")
        return script.told

    await go(ask)


if __name__ == "__main__":
    asyncio.run(main())
