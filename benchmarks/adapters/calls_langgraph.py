"""What a call costs under LangChain's agent: bare, and with the middleware; the checkpointer is in memory."""

import asyncio
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver

import milepost as mp
from benchmarks.adapters.calling import KEYED, TURNS, compared, nothing, store
from milepost.adapters.langgraph import Outcomes, promised


class Scripted(BaseChatModel):
    """Asks for one call in each turn."""

    turns: int = TURNS
    tool: str = "nothing"

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, *_: Any, **__: Any) -> Any:
        """Take any tools."""
        return self

    def _generate(self, messages: Any, *_: Any, **__: Any) -> ChatResult:
        turn = sum(isinstance(message, AIMessage) for message in messages)
        call = {"id": f"call_{turn}", "name": self.tool, "args": {"number": turn}}
        said = AIMessage("done") if turn == self.turns else AIMessage("", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=said)])


async def main() -> None:
    """Compare."""
    tool = StructuredTool.from_function(coroutine=nothing)
    kept = promised([tool], nothing=KEYED)
    app = mp.App(store(), tools=kept)
    agents: dict[str, Any] = {
        "bare": create_agent(Scripted(), [tool], checkpointer=InMemorySaver()),
        "durable": create_agent(
            Scripted(), [tool], middleware=[Outcomes(app, kept)], checkpointer=InMemorySaver()
        ),
    }  # fmt: skip

    async def talk(name: str, number: int) -> None:
        thread = {"configurable": {"thread_id": f"{name}-{number}"}, "recursion_limit": 4 * TURNS}
        await agents[name].ainvoke({"messages": [("user", "go")]}, thread)

    async with app:
        await compared(lambda number: talk("bare", number), lambda number: talk("durable", number))


if __name__ == "__main__":
    asyncio.run(main())
