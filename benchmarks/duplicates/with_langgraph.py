"""The orders on LangGraph with its SQLite saver: the charge is a node, a thread of the graph is an order."""

from concurrent.futures import ThreadPoolExecutor
from typing import TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph

from benchmarks.duplicates import paying

WORK = paying.work()


class Buying(TypedDict):
    """One order, and how often the provider says that it was charged."""

    order: str
    charged: int


def _charge(state: Buying) -> dict[str, int]:
    return {"charged": int(paying.charge(WORK.port, state["order"])["charges"])}


def main() -> None:
    """Invoke the graph for every order, or resume it where its thread stopped."""
    with SqliteSaver.from_conn_string(str(WORK.folder / "langgraph.sqlite")) as saver:
        graph = StateGraph(Buying)
        graph.add_node("charge", _charge)
        graph.add_edge(START, "charge")
        graph.add_edge("charge", END)
        compiled = graph.compile(checkpointer=saver)

        def buy(order: str) -> None:
            thread: RunnableConfig = {"configurable": {"thread_id": order}}
            begun = compiled.get_state(thread).next
            compiled.invoke(None if begun else {"order": order, "charged": 0}, thread, durability="sync")

        with ThreadPoolExecutor(len(WORK.orders)) as pool:
            finished = list(pool.map(buy, WORK.orders))
    paying.report(finished=len(finished), in_doubt=0)


if __name__ == "__main__":
    main()
