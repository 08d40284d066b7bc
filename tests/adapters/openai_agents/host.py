"""The scenario of `outside` on the OpenAI Agents SDK.

`python -m tests.adapters.openai_agents.host two|three bare|durable`. With a third
argument, `session`, the conversation is kept in one.
"""

import asyncio
import json
import sys
from typing import Any

from agents import Agent, RunConfig, Runner, SQLiteSession, function_tool
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call

from milepost.adapters.openai_agents import DurableSession, Threads, durable, guarded, listed, run
from tests.adapters import outside
from tests.crash.world import here

PROMPT = "see to order o-1"
BATCH = {"two": outside.TWO, "three": outside.THREE}[sys.argv[1]]
QUIET = RunConfig(tracing_disabled=True)


def answer(call: Any) -> ModelStep:
    """Ask for the batch, and then say what came of it."""
    outside.model()
    got = [item["output"] for item in call.input if item.get("type") == "function_call_output"]
    if got:
        return ModelStep(output=[assistant_message(", ".join(got))])
    return ModelStep(output=[function_call(name, json.dumps(said), call_id=id_) for id_, name, said in BATCH])


async def main() -> None:
    """Run the agent, and say what it said or what waits."""
    handlers = [outside.HANDLERS[name] for name in dict.fromkeys(name for _, name, _ in BATCH)]
    model = ScriptedModel([ModelStep(responder=answer)] * 2)
    agent = Agent("desk", model=model, tools=[function_tool(handler) for handler in handlers])
    if sys.argv[2] == "bare":
        session = SQLiteSession("desk", here() / "session.db") if "session" in sys.argv else None
        result = await Runner.run(agent, PROMPT, session=session, run_config=QUIET)
    else:
        promises = {handler.__name__: outside.DECLARED[handler.__name__] for handler in handlers}
        threads = Threads(outside.app(listed(agent, promises=promises)))
        async with durable(threads, "thread-7"):
            kept = DurableSession() if "session" in sys.argv else None
            result = await run(guarded(agent), PROMPT, session=kept, run_config=QUIET)
    waits = {str(one.call_id): "interruption" for one in result.interruptions}
    outside.say({"said": result.final_output, "waits": waits, "asked": len(result.raw_responses)})


if __name__ == "__main__":
    asyncio.run(main())
