"""What a call costs under Pydantic AI, bare and durable; the durable one records each answer of the model too."""

import asyncio

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import milepost as mp
from benchmarks.adapters.calling import KEYED, TURNS, compared, nothing, store
from milepost.adapters.pydantic_ai import MilepostDurability, Threads, durable, listed


def model(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """Ask for one call in each turn."""
    turn = sum(isinstance(message, ModelResponse) for message in messages)
    if turn == TURNS:
        return ModelResponse(parts=[TextPart("done")])
    return ModelResponse(parts=[ToolCallPart("nothing", {"number": turn}, f"call_{turn}")])


async def main() -> None:
    """Compare."""
    plain = Agent(FunctionModel(model), name="plain", tools=[nothing])
    agent = Agent(FunctionModel(model), name="desk", tools=[nothing], capabilities=[MilepostDurability[None]()])
    app = mp.App(store(), tools=listed(agent, promises={"nothing": KEYED}))
    threads = Threads(app)

    async def bare(_: int) -> None:
        await plain.run("go")

    async def with_milepost(number: int) -> None:
        async with durable(threads, f"thread-{number}"):
            await agent.run("go")

    async with app:
        await compared(bare, with_milepost)


if __name__ == "__main__":
    asyncio.run(main())
