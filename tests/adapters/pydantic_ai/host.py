"""The scenario of `outside` on Pydantic AI: `python -m tests.adapters.pydantic_ai.host two|three bare|durable`."""

import asyncio
import sys

from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from milepost.adapters.pydantic_ai import MilepostDurability, Threads, durable, listed
from tests.adapters import outside

PROMPT = "see to order o-1"
BATCH = {"two": outside.TWO, "three": outside.THREE}[sys.argv[1]]


def model(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """Ask for the batch, and then say what came of it."""
    outside.model()
    got = [str(part.content) for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
    if got:
        return ModelResponse(parts=[TextPart(", ".join(got))])
    return ModelResponse(parts=[ToolCallPart(name, arguments, id_) for id_, name, arguments in BATCH])


async def main() -> None:
    """Run the agent, and say what it said or what waits."""
    tools = [outside.HANDLERS[name] for name in dict.fromkeys(name for _, name, _ in BATCH)]
    durability = MilepostDurability[None]()
    agent = Agent(
        FunctionModel(model), name="desk", tools=tools, output_type=[str, DeferredToolRequests],
        capabilities=[durability],
    )  # fmt: skip
    if sys.argv[2] == "bare":
        result = await agent.run(PROMPT)
    else:
        promises = {tool.__name__: outside.DECLARED[tool.__name__] for tool in tools}
        threads = Threads(outside.app(listed(agent, promises=promises)))
        async with durable(threads, "thread-7"):
            result = await agent.run(PROMPT)
    said: object = result.output
    waits = said if isinstance(said, DeferredToolRequests) else DeferredToolRequests()
    outside.say(
        {
            "said": said if isinstance(said, str) else None,
            "waits": {
                **{call.tool_call_id: "approval" for call in waits.approvals},
                **{call.tool_call_id: "call" for call in waits.calls},
            },
            "asked": result.usage.requests,
        }
    )


if __name__ == "__main__":
    asyncio.run(main())
