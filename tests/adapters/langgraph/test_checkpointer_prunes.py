"""What pruning keeps, and what a channel that is stored as its changes is made from."""

import threading
from collections.abc import Sequence
from typing import Annotated, Any, TypedDict

from langgraph.channels import DeltaChannel
from langgraph.graph import END, START, StateGraph

from milepost.adapters.langgraph import Checkpointer
from tests.adapters.langgraph.graphs import checkpoint, place, thread
from tests.polling import eventually


def joined(state: list[str] | None, writes: Sequence[list[str]]) -> list[str]:
    return [*(state or []), *(word for some in writes for word in some)]


class Words(TypedDict):
    words: Annotated[list[str], DeltaChannel(joined, list, snapshot_frequency=5)]


def graph(saver: Checkpointer) -> Any:
    def node(_: Any) -> Any:
        return {"words": ["node"]}

    made: Any = StateGraph(Words)
    made.add_node("node", node)
    made.add_edge(START, "node")
    made.add_edge("node", END)
    return made.compile(checkpointer=saver)


def test_a_channel_that_is_stored_as_its_changes_survives_a_pruning_and_a_copy(store: str) -> None:
    wanted: list[str] = []
    with Checkpointer(store) as saver:
        for position in range(4):
            graph(saver).invoke({"words": [f"{position}"]}, thread("t"))
            wanted += [f"{position}", "node"]
        before = len(list(saver.list(place("t"))))

        saver.prune(["t"])
        saver.copy_thread("t", "copy")
        history = saver.get_delta_channel_history(config=place("t"), channels=["words"])

    with Checkpointer(store) as again:
        after = len(list(again.list(place("t"))))
        assert graph(again).get_state(thread("t")).values["words"] == wanted
        assert graph(again).get_state(thread("copy")).values["words"] == wanted
        graph(again).invoke({"words": ["more"]}, thread("t"))
        assert graph(again).get_state(thread("t")).values["words"] == [*wanted, "more", "node"]
    assert 1 < after < before
    assert "seed" in history["words"]


def test_every_thread_is_listed_and_pages_follow_each_other(store: str) -> None:
    with Checkpointer(store) as saver:
        for position in range(60):
            saver.put(place(f"t{position % 2}"), checkpoint(a=position), {"step": position}, {})

        everything = [found.metadata["step"] for found in saver.list(None)]
        few = [found.metadata["step"] for found in saver.list(None, limit=53)]
        one = [found.metadata["step"] for found in saver.list(thread("t1"), filter={"step": 7})]

    assert everything == list(range(59, -1, -1))
    assert few == everything[:53]
    assert one == [7]


def test_a_pruning_beside_a_writer_takes_nothing_that_the_writer_goes_on_with(store: str) -> None:
    with Checkpointer(store) as writing, Checkpointer(store) as pruning:
        ended = threading.Event()

        def write() -> None:
            parent = None
            for position in range(25):
                kept = checkpoint(a=["x" * 3_000, "y" * 3_000, position])
                writing.put(place("t", parent), kept, {}, {})
                parent = kept["id"]
            ended.set()

        writer = threading.Thread(target=write)
        writer.start()

        def pruned() -> bool:
            pruning.prune(["t"])
            return not writer.is_alive()

        eventually(pruned, within_s=120)  # with a pause after each: SQLite's lock is given to nobody in turn
        writer.join()

        assert ended.is_set()
        found = pruning.get_tuple(place("t"))
    assert found is not None
    assert found.checkpoint["channel_values"]["a"][2] == 24
