"""A LangChain agent, or a ToolNode in a graph of one's own, for the scenario of `tests.adapters.outside`.

    python -m tests.adapters.langgraph.host two|three FORM [WORD]

FORM is who hosts, and how: `agent`, `agent-sync`, `agent-tools` (Milepost's own tools), `node`, `node-sync`, or `bare`,
an agent without Milepost. A thread that waits goes on: with WORD as the answer to its interrupt, else without one.
"""

import asyncio
import sys
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command

from milepost.adapters.langgraph import Checkpointer, Outcomes, promised
from tests.adapters import outside
from tests.crash.world import here

BATCHES = {"two": outside.TWO, "three": outside.THREE}
CONFIG: Any = {"configurable": {"thread_id": "thread-7"}}


class Scripted(BaseChatModel):
    """Asks for the batch, and says it is done once it has results."""

    script: list[tuple[str, str, dict[str, Any]]]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, *_: Any, **__: Any) -> Any:
        return self

    def _generate(self, messages: Any, *_: Any, **__: Any) -> ChatResult:
        outside.model()
        asked = [{"id": id_, "name": name, "args": args} for id_, name, args in self.script]
        said = AIMessage("done") if isinstance(messages[-1], ToolMessage) else AIMessage("", tool_calls=asked)
        return ChatResult(generations=[ChatGeneration(message=said)])


def tool(name: str, *, sync: bool = False) -> BaseTool:
    """One of the tools of `outside`, as LangChain has them."""
    about = outside.HANDLERS[name].__doc__ or ""
    if sync:
        blocking = outside.HANDLERS_SYNC[name]
        return StructuredTool.from_function(blocking, name=name, description=about, args_schema=outside.SCHEMAS[name])
    return StructuredTool.from_function(coroutine=outside.HANDLERS[name], name=name, description=about)


def built(form: str, batch: str, checkpointer: Checkpointer) -> Any:
    """The agent, or the graph, of a form."""
    tools = [tool(name, sync=form.endswith("-sync")) for name in outside.HANDLERS]
    model = Scripted(script=BATCHES[batch])
    if form == "bare":
        return create_agent(model, tools, checkpointer=checkpointer)
    kept = [*outside.TOOLS.values()] if form == "agent-tools" else promised(tools, **outside.DECLARED)
    outcomes = Outcomes(outside.app(kept), kept)
    if form.startswith("agent"):
        given = [] if form == "agent-tools" else tools
        return create_agent(model, given, middleware=[outcomes], checkpointer=checkpointer)
    node = ToolNode(tools, wrap_tool_call=outcomes.wrap_tool_call, awrap_tool_call=outcomes.awrap_tool_call)
    return around(model, node).compile(checkpointer=checkpointer)


def around(model: BaseChatModel, node: ToolNode) -> StateGraph[Any, Any, Any, Any]:
    """A graph of one's own: a model, and a node for its tools."""

    def ask(state: MessagesState) -> Any:
        return {"messages": [model.invoke(state["messages"])]}

    own = StateGraph(MessagesState)
    own.add_node("ask", ask)
    own.add_node("tools", node)
    own.add_edge(START, "ask")
    own.add_conditional_edges("ask", tools_condition)
    own.add_edge("tools", "ask")
    return own


def told(state: Any) -> dict[str, Any]:
    """What the host has to say of a thread: which calls wait, and what the model was told of the others."""
    parked = [interrupt.value for interrupt in state.interrupts]
    messages = state.values["messages"]
    results = {message.tool_call_id: message.text for message in messages if isinstance(message, ToolMessage)}
    return {"parked": parked, "results": results, "last": messages[-1].text}


def given(state: Any, word: str | None) -> Any:
    """What the graph is invoked with: a thread that waits goes on, with a word or without one."""
    if not state.next:
        return {"messages": [("user", "go")]}
    return None if word is None else Command(resume=word)


def live(form: str, batch: str, word: str | None = None) -> dict[str, Any]:
    """One life of the host: until it has ended, or waits."""
    with Checkpointer(outside.url(here())) as checkpointer:
        agent = built(form, batch, checkpointer)

        async def awaited() -> None:
            await agent.ainvoke(given(await agent.aget_state(CONFIG), word), CONFIG, durability="sync")

        if form.endswith("-sync"):
            agent.invoke(given(agent.get_state(CONFIG), word), CONFIG, durability="sync")
        else:
            asyncio.run(awaited())
        return told(agent.get_state(CONFIG))


if __name__ == "__main__":
    outside.say(live(sys.argv[2], sys.argv[1], *sys.argv[3:]))
