"""LangGraph with its own SQLite saver and without Milepost: a model, and its calls as tasks of their own.

`python -m benchmarks.adapters.bare_langgraph two|three`. A call is sent to the tools' node by `Send`, as the agent of
LangChain does it, so that what has finished is stored before the others have.
"""

import asyncio
import sys
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Send

from tests.adapters import outside
from tests.crash.world import here

BATCH = {"two": outside.TWO, "three": outside.THREE}[sys.argv[1]]
THREAD: Any = {"configurable": {"thread_id": "thread-7"}}
TOOLS = [
    StructuredTool.from_function(coroutine=handler, name=name, description=handler.__doc__)
    for name, handler in outside.HANDLERS.items()
]


async def ask(state: MessagesState) -> Any:
    """Ask for the batch, and say it is done once there are results."""
    outside.model()
    calls = [{"id": id_, "name": name, "args": given} for id_, name, given in BATCH]
    results = [message.text for message in state["messages"] if isinstance(message, ToolMessage)]
    said = AIMessage(", ".join(results)) if results else AIMessage("", tool_calls=calls)
    return {"messages": [said]}


def onward(state: MessagesState) -> Any:
    """Send each call to the tools, or end."""
    calls = getattr(state["messages"][-1], "tool_calls", [])
    return [Send("tools", [call]) for call in calls] or END


async def main() -> None:
    """Begin the thread, or go on with it where it stopped."""
    graph = StateGraph(MessagesState)
    graph.add_node("ask", ask)
    graph.add_node("tools", ToolNode(TOOLS))
    graph.add_edge(START, "ask")
    graph.add_conditional_edges("ask", onward, ["tools", END])
    graph.add_edge("tools", "ask")
    async with AsyncSqliteSaver.from_conn_string(str(here() / "saver.db")) as saver:

        async def stored() -> bool:
            found = await saver.aget_tuple(THREAD)
            return found is not None and outside.RESULTS["reserve"] in str(found.pending_writes)

        outside.stored(stored)
        desk: Any = graph.compile(checkpointer=saver)
        begun = (await desk.aget_state(THREAD)).next
        state = await desk.ainvoke(None if begun else {"messages": [("user", "go")]}, THREAD, durability="sync")
    outside.say(state["messages"][-1].text)


if __name__ == "__main__":
    asyncio.run(main())
