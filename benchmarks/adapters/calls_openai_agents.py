"""What a call costs under the OpenAI Agents SDK, bare and durable; the durable one records the model's answers too."""

import asyncio
import json
from typing import Any

from agents import Agent, RunConfig, Runner, function_tool
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call

import milepost as mp
from benchmarks.adapters.calling import KEYED, TURNS, compared, nothing, store
from milepost.adapters.openai_agents import Threads, durable, guarded, listed, run

QUIET = RunConfig(tracing_disabled=True)


def agent() -> Agent[Any]:
    """Return an agent whose model asks for one call in each turn."""
    steps = [
        ModelStep(output=[function_call("nothing", json.dumps({"number": turn}), call_id=f"call_{turn}")])
        for turn in range(TURNS)
    ]
    model = ScriptedModel([*steps, ModelStep(output=[assistant_message("done")])])
    return Agent("desk", model=model, tools=[function_tool(nothing)])


async def main() -> None:
    """Compare."""
    app = mp.App(store(), tools=listed(agent(), promises={"nothing": KEYED}))
    threads = Threads(app)

    async def bare(_: int) -> None:
        await Runner.run(agent(), "go", run_config=QUIET, max_turns=TURNS + 1)

    async def with_milepost(number: int) -> None:
        async with durable(threads, f"thread-{number}"):
            await run(guarded(agent()), "go", run_config=QUIET, max_turns=TURNS + 1)

    async with app:
        await compared(bare, with_milepost)


if __name__ == "__main__":
    asyncio.run(main())
