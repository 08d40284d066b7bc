"""Two that write one thread are never interleaved, and what a killed process has saved is whole."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from milepost.adapters.langgraph import Checkpointer, StaleWriter
from milepost.adapters.langgraph.fencing import Held, Mark, writer_of
from tests.adapters.langgraph.graphs import Notes, checkpoint, line, place, thread
from tests.tidy.repository import ROOT

PROGRAM = "tests.adapters.langgraph.programs.writer"


class Process:
    """A process that writes a thread."""

    def __init__(self, store: str, act: str, told: Path) -> None:
        self.told = told
        self.program = subprocess.Popen(
            [sys.executable, "-m", PROGRAM, store, act, str(told)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def says(self) -> str:
        """Return its next line."""
        assert self.program.stdout is not None
        return self.program.stdout.readline().strip()

    def go_on(self) -> str:
        """Let it leave the node that it waits in; return what it says at the end."""
        said, _ = self.program.communicate("\n")
        return said.strip()

    def killed(self) -> bool:
        """Wait until it is dead; say whether it was killed."""
        self.program.communicate()
        return self.program.returncode == -signal.SIGKILL

    def did(self) -> list[str]:
        """Return what its nodes did."""
        return self.told.read_text().split()


@pytest.fixture
def told(tmp_path: Path) -> Path:
    """Where nodes tell what they did."""
    return tmp_path / "told"


def node(_: Notes) -> Any:
    return {"notes": ["here"]}


def test_of_two_processes_on_one_thread_the_stale_one_is_refused_and_nothing_is_interleaved(
    store: str, told: Path
) -> None:
    """The one that was overtaken writes nothing more, not even what a task of it had finished."""
    with Checkpointer(store) as here:
        graph = line(node).compile(checkpointer=here)
        slow = Process(store, "wait", told)
        assert slow.says() == "in second"

        graph.invoke({"notes": ["overtaking"]}, thread("t"))
        before = [found.config for found in here.list(place("t"))]
        said = slow.go_on()

        assert said == "stale_writer"
        assert [found.config for found in here.list(place("t"))] == before
        assert graph.get_state(thread("t")).values["notes"] == ["begin", "first", "overtaking", "here"]
        chain = [found.parent_config for found in here.list(place("t"))]
        assert len({str(parent) for parent in chain}) == len(chain)


@pytest.mark.parametrize(
    ("store", "moment"),
    [("sqlite", "die before put"), ("sqlite", "die in put"), ("postgres", "die in put")],
    indirect=["store"],
)
def test_a_process_killed_between_its_writes_and_its_checkpoint_is_gone_on_from_without_a_repetition(
    store: str, told: Path, moment: str
) -> None:
    """What a finished task wrote is there, and the task is not run again."""
    killed = Process(store, moment, told)
    assert killed.killed()
    assert killed.did() == ["first"]
    with Checkpointer(store) as here:
        found = here.get_tuple(place("t"))
        assert found is not None
        assert "notes" in {channel for _, channel, _ in found.pending_writes or ()}
        assert found.checkpoint["channel_values"]["notes"] == ["begin"]

    again = Process(store, "go on", told)

    assert again.go_on() == "['begin', 'first', 'second']"
    assert again.did() == ["first", "second"]


async def test_of_two_invocations_in_one_process_the_stale_one_is_refused(tmp_path: Path) -> None:
    reached, leave = asyncio.Event(), asyncio.Event()

    async def slow(state: Notes) -> Any:
        if state["notes"][-1] == "slow":
            reached.set()
            await leave.wait()
        return {"notes": ["done"]}

    with Checkpointer(f"sqlite:///{tmp_path / 'store.db'}") as saver:
        graph = line(slow).compile(checkpointer=saver)
        await graph.ainvoke({"notes": ["begin"]}, thread("t"))
        late = asyncio.create_task(graph.ainvoke({"notes": ["slow"]}, thread("t")))
        await reached.wait()

        await graph.aget_state(thread("t"))  # who only looks takes nothing
        await graph.ainvoke({"notes": ["quick"]}, thread("t"))
        leave.set()
        with pytest.raises(StaleWriter) as stale:
            await late

        notes = (await graph.aget_state(thread("t"))).values["notes"]
    assert stale.value.thread == "t"
    assert notes == ["begin", "done", "slow", "quick", "done"]


@pytest.mark.parametrize("new", [False, True])
def test_a_graph_inside_a_graph_goes_on_in_another_process_and_is_part_of_its_invocation(
    store: str, *, new: bool
) -> None:
    def ask(_: Notes) -> Any:
        return {"notes": [interrupt("?")]}

    def graph(saver: Checkpointer) -> Any:
        outer = StateGraph(Notes)
        outer.add_node("inner", line(node, ask).compile())
        outer.add_edge(START, "inner")
        return outer.compile(checkpointer=saver, interrupt_before=["inner"])

    with Checkpointer(store) as first, Checkpointer(store) as second:
        graph(first).invoke({"notes": ["begin"]}, thread("t"))
        then = second if new else first
        graph(then).invoke(None, thread("t"))  # the first that writes is the inner one
        graph(first).get_state(thread("t"))
        answered = graph(first).invoke(Command(resume="yes"), thread("t"))

    assert answered["notes"][-1] == "yes"


async def test_a_graph_inside_a_graph_is_awaited_as_part_of_its_invocation(tmp_path: Path) -> None:
    async def ask(_: Notes) -> Any:
        return {"notes": [interrupt("?")]}

    def graph(saver: Checkpointer) -> Any:
        outer = StateGraph(Notes)
        outer.add_node("inner", line(node, ask).compile())
        outer.add_edge(START, "inner")
        return outer.compile(checkpointer=saver, interrupt_before=["inner"])

    url = f"sqlite:///{tmp_path / 'store.db'}"
    with Checkpointer(url) as first, Checkpointer(url) as second:
        await graph(first).ainvoke({"notes": ["begin"]}, thread("t"))
        async for _ in graph(second).astream(None, thread("t"), stream_mode="values"):
            await graph(second).aget_state(thread("t"))  # to look in between disturbs nothing
        answered = await graph(first).ainvoke(Command(resume="yes"), thread("t"))

    assert answered["notes"][-1] == "yes"


async def test_a_save_that_its_caller_no_longer_waits_for_is_made(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    with Checkpointer(url) as saver:
        saving = asyncio.create_task(saver.aput(place("t"), checkpoint(a=1), {}, {}))
        await asyncio.sleep(0)
        saving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await saving

    with Checkpointer(url) as again:
        assert again.get_tuple(place("t")) is not None


def test_the_same_thread_is_written_by_two_processes_in_turns(store: str) -> None:
    with Checkpointer(store) as first, Checkpointer(store) as second:
        for position in range(4):
            graph = line(node).compile(checkpointer=(first, second)[position % 2])
            graph.invoke({"notes": [position]}, thread("t"))

        assert graph.get_state(thread("t")).values["notes"] == [0, "here", 1, "here", 2, "here", 3, "here"]


def test_who_goes_on_from_a_checkpoint_that_is_not_the_latest_makes_a_branch(store: str) -> None:
    with Checkpointer(store) as saver:
        graph = line(node).compile(checkpointer=saver)
        graph.invoke({"notes": ["begin"]}, thread("t"))
        begun = next(state for state in graph.get_state_history(thread("t")) if state.next == ("node",))

        graph.update_state(begun.config, {"notes": ["else"]})
        graph.invoke(None, thread("t"))

        assert graph.get_state(thread("t")).values["notes"] == ["begin", "else", "here"]


def test_a_thread_that_was_deleted_meanwhile_is_not_brought_back(store: str) -> None:
    with Checkpointer(store) as saver:
        saver.put(place("t"), checkpoint(a=1), {}, {})
        read = saver.get_tuple(place("t"))
        assert read is not None

        saver.delete_thread("t")
        with pytest.raises(StaleWriter):
            saver.put(read.config, checkpoint(a=2), {}, {})

        assert saver.get_tuple(place("t")) is None


MARK = Mark(Held("them.1", 4), "us.7")


@pytest.mark.parametrize(
    ("held", "mark", "nested", "inside", "writer"),
    [
        (Held("them.1", 4), MARK, False, None, "us.7"),  # nobody wrote since it was read
        (Held("us.7", 9), MARK, False, None, "us.7"),  # its own
        (Held("them.1", 5), MARK, False, None, ""),
        (Held("them.2", 4), MARK, False, None, ""),
        (Held("us.8", 4), MARK, False, None, ""),  # another invocation of this process
        (Held(), MARK, False, None, ""),  # deleted meanwhile
        (Held(), None, False, None, "us."),
        (Held("us.", 3), None, False, None, "us."),
        (Held("us.7", 3), None, False, None, ""),
        (Held("them.", 3), None, False, None, ""),
        (Held("us.7", 9), None, True, None, "us.7"),
        (Held("us.7", 9), None, True, MARK, "us.7"),
        (Held("them.1", 4), None, True, MARK, "us.7"),
        (Held("them.1", 5), None, True, MARK, ""),
        (Held("them.1", 5), None, True, None, ""),
        (Held(), None, True, None, "us."),
    ],
)
def test_who_may_write_a_thread(
    held: Held, mark: Mark | None, *, nested: bool, inside: Mark | None, writer: str
) -> None:
    assert writer_of(held, mark, "us", inside=inside, nested=nested) == writer


def test_a_mark_is_read_as_it_was_written() -> None:
    assert Mark.read(MARK.text()) == MARK
    assert Mark.read(None) is None
    assert Mark.of(Held("x.", 1), "us").name.startswith("us.")
