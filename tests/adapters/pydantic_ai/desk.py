"""A refund desk on Pydantic AI, as a process: `desk.py FOLDER bare|durable`.

Its model asks for two tools at once, and answers when it has what they gave. Each line of `ledger.txt` is an effect,
each of `asked.txt` a request to the model. While there is a file `hang`, the second tool hangs once its effect is done.
"""

import asyncio
import sys
from pathlib import Path

from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import milepost as mp
from milepost.adapters.pydantic_ai import MilepostDurability, Threads, durable, listed

PROMPT = "refund order 7"
KEY = "ticket-42"


def note(file: Path, line: str) -> None:
    with file.open("a", encoding="utf-8") as ledger:
        ledger.write(f"{line}\n")


def desk(folder: Path) -> Agent[None, str | DeferredToolRequests]:
    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        note(folder / "asked.txt", f"{len(messages)} messages")
        got = [str(part.content) for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
        if got:
            return ModelResponse(parts=[TextPart(" and ".join(got))])
        looked = ToolCallPart("flag", {"order": "7"}, "call_1")
        return ModelResponse(parts=[looked, ToolCallPart("refund", {"order": "7", "cents": 500}, "call_2")])

    agent = Agent(
        FunctionModel(model),
        name="desk",
        output_type=[str, DeferredToolRequests],
        capabilities=[MilepostDurability[None]()],
    )

    @agent.tool_plain
    async def flag(order: str) -> str:
        note(folder / "ledger.txt", f"flag {order}")
        return f"flagged {order}"

    @agent.tool_plain
    async def refund(order: str, cents: int) -> str:
        note(folder / "ledger.txt", f"refund {order} {cents}")
        if (folder / "hang").exists():
            await asyncio.Event().wait()
        return f"refunded {order}"

    return agent


def app_of(folder: Path, agent: Agent[None, str | DeferredToolRequests]) -> mp.App:
    return mp.App(f"sqlite:///{folder}/desk.db", tools=listed(agent, promises={"flag": {"effect": "absolute"}}))


async def said_by(folder: Path, how: str) -> str:
    agent = desk(folder)
    if how == "bare":
        result = await agent.run(PROMPT)
    else:
        async with durable(Threads(app_of(folder, agent)), KEY):
            result = await agent.run(PROMPT)
    said = result.output
    waits = [call.tool_call_id for call in said.calls] if isinstance(said, DeferredToolRequests) else []
    return f"waits: {', '.join(waits)}" if waits else f"said: {said}"


if __name__ == "__main__":
    sys.stdout.write(asyncio.run(said_by(Path(sys.argv[1]), sys.argv[2])))
