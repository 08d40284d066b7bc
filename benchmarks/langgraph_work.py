"""The measured work on LangGraph with its SQLite saver: a node that goes round, a conversation. Prints what it took.

`durability="sync"`: each step is stored before the next begins, which is what the other rows do.
"""

import argparse
import asyncio
import json
import operator
import sqlite3
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph

from benchmarks.conversation import EARLY, LATE, TURNS, Growth, Marks, kilobyte
from benchmarks.timing import Slice, Stopwatch


class Left(TypedDict):
    """How often the node still goes round."""

    left: int


class Talk(TypedDict):
    """The whole conversation so far."""

    messages: Annotated[list[str], operator.add]


def _one_less(state: Left) -> Left:
    return {"left": state["left"] - 1}


async def _one_less_async(state: Left) -> Left:
    return {"left": state["left"] - 1}


def _round(saver: BaseCheckpointSaver[Any], node: Any) -> Any:
    graph = StateGraph(Left)
    graph.add_node("act", node)
    graph.add_edge(START, "act")
    graph.add_conditional_edges("act", lambda state: "act" if state["left"] else END, ["act", END])
    return graph.compile(checkpointer=saver)


def _thread(name: str, steps: int) -> RunnableConfig:
    return {"configurable": {"thread_id": name}, "recursion_limit": steps + 10}


def _alone(file: Path, steps: int) -> Slice:
    with SqliteSaver.from_conn_string(str(file)) as saver:
        graph = _round(saver, _one_less)
        watch = Stopwatch()
        graph.invoke({"left": steps}, _thread("one", steps), durability="sync")
        return watch.slice(steps)


async def _together(file: Path, runs: int, each: int) -> Slice:
    async with AsyncSqliteSaver.from_conn_string(str(file)) as saver:
        graph = _round(saver, _one_less_async)
        watch = Stopwatch()
        calls = (graph.ainvoke({"left": each}, _thread(f"{at}", each), durability="sync") for at in range(runs))
        await asyncio.gather(*calls)
        return watch.slice(runs * each)


def _growth(file: Path) -> Growth:
    marks = Marks(lambda: _stored(file))

    def turn(state: Talk) -> Talk:
        number = len(state["messages"])
        if number in {*EARLY, *LATE}:
            marks.note(number)
        return {"messages": [kilobyte(number)]}

    with SqliteSaver.from_conn_string(str(file)) as saver:
        graph = StateGraph(Talk)
        graph.add_node("turn", turn)
        graph.add_edge(START, "turn")
        graph.add_conditional_edges(
            "turn", lambda state: "turn" if len(state["messages"]) <= TURNS else END, ["turn", END]
        )
        compiled = graph.compile(checkpointer=saver)
        nothing: Talk = {"messages": []}
        compiled.invoke(nothing, _thread("talk", TURNS), durability="sync")
    return marks.growth()


def _stored(file: Path) -> int:
    with closing(sqlite3.connect(file)) as connection:
        pages, free, size = (
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
    return int((pages - free) * size)


def main() -> None:
    """Run one shape of the work in an empty folder."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("rate", "growth"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("runs", type=int)
    parser.add_argument("each", type=int)
    chosen = parser.parse_args()
    file = chosen.folder / "checkpoints.db"
    measured: Slice | Growth
    if chosen.what == "growth":
        measured = _growth(file)
    elif chosen.runs == 1:
        measured = _alone(file, chosen.each)
    else:
        measured = asyncio.run(_together(file, chosen.runs, chosen.each))
    print(json.dumps(asdict(measured)))


if __name__ == "__main__":
    main()
