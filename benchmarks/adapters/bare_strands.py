"""Strands Agents without Milepost, its session in files. `python -m benchmarks.adapters.bare_strands two|three`."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, AsyncIterable
from typing import Any

from strands import Agent, tool
from strands.models import Model
from strands.session import FileSessionManager

from tests.adapters import outside
from tests.crash.world import here

BATCH = {"two": outside.TWO, "three": outside.THREE}[sys.argv[1]]


class Script(Model):  # type: ignore[misc]
    """A model that asks for the batch until it has results that are no errors, and then says what came of it."""

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
        interrupted = any("interrupted" in str(result) for result in results)
        again = interrupted or not results
        yield {"messageStart": {"role": "assistant"}}
        for id_, name, given in BATCH if again else []:
            start = {"toolUseId": f"{id_}_{len(messages)}", "name": name}
            yield {"contentBlockStart": {"start": {"toolUse": start}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(given)}}}}
            yield {"contentBlockStop": {}}
        if not again:
            said = ", ".join(result["content"][0]["text"] for result in results)
            yield {"contentBlockDelta": {"delta": {"text": said}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if again else "end_turn"}}


async def main() -> None:
    """Ask once; the session is taken up if there is one."""
    agent = Agent(
        agent_id="clerk", model=Script(), tools=[tool(handler) for handler in outside.HANDLERS.values()],
        callback_handler=None, session_manager=FileSessionManager("session-7", storage_dir=str(here() / "sessions")),
    )  # fmt: skip
    outside.say(str(await agent.invoke_async("go on")))


if __name__ == "__main__":
    asyncio.run(main())
