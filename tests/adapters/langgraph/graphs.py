"""Graphs and values that the tests of the checkpointer share."""

import operator
from typing import Annotated, Any, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.graph import END, START, StateGraph


class Notes(TypedDict):
    """A list that grows."""

    notes: Annotated[list[Any], operator.add]


def thread(name: str, **more: Any) -> RunnableConfig:
    """The configuration of a thread."""
    return {"configurable": {"thread_id": name, **more}}


def place(name: str, id_: str | None = None, ns: str = "") -> RunnableConfig:
    """The configuration that a checkpoint is put behind, or that names it."""
    return thread(name, checkpoint_ns=ns, **({} if id_ is None else {"checkpoint_id": id_}))


def checkpoint(**values: Any) -> Checkpoint:
    """A checkpoint with these channels."""
    versions: ChannelVersions = dict.fromkeys(values, 1)
    return {**empty_checkpoint(), "id": str(uuid6()), "channel_values": values, "channel_versions": versions}


def line(*nodes: Any) -> StateGraph[Notes, None, Notes, Notes]:
    """A graph of nodes one behind the other, by the names of their functions."""
    graph = StateGraph(Notes)
    before = START
    for node in nodes:
        graph.add_node(node.__name__, node)
        graph.add_edge(before, node.__name__)
        before = node.__name__
    graph.add_edge(before, END)
    return graph
