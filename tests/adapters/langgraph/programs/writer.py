"""A process that writes a thread: `writer.py STORE ACT`. What its nodes do is told to a file, and to who started it."""

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from langchain_core.runnables import RunnableConfig

from milepost.adapters.langgraph import Checkpointer, StaleWriter
from milepost.adapters.langgraph.threads_kept import Place
from milepost.stores.tables import Rows
from tests.adapters.langgraph.graphs import Notes, line, thread

STORE, ACT = sys.argv[1:3]
TOLD = Path(sys.argv[3])


def tell(what: str) -> None:
    with TOLD.open("a", encoding="utf-8") as file:
        file.write(f"{what}\n")


def say(what: object) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def first(_: Notes) -> Any:
    tell("first")
    return {"notes": ["first"]}


def second(_: Notes) -> Any:
    tell("second")
    if ACT == "wait":
        Dying.written.wait()  # what `first` wrote may be saved later than this begins
        say("in second")
        sys.stdin.readline()
    return {"notes": ["second"]}


class Dying(Checkpointer):
    """Dies where the checkpoint behind `first` would be saved: before, or in the middle of its transaction."""

    at_it = False
    written = threading.Event()

    def put_writes(self, config: RunnableConfig, writes: Any, task_id: str, task_path: str = "") -> None:
        super().put_writes(config, writes, task_id, task_path)
        if ("notes", ["first"]) in list(writes):
            self.written.set()

    def put(self, config: RunnableConfig, checkpoint: Any, metadata: Any, new_versions: Any) -> RunnableConfig:
        if "first" in checkpoint["channel_values"].get("notes", ()) and ACT.startswith("die"):
            self.written.wait()  # LangGraph hands both over at once
            self.at_it = True
        if self.at_it and ACT == "die before put":
            os.kill(os.getpid(), signal.SIGKILL)
        return super().put(config, checkpoint, metadata, new_versions)

    def _take(self, rows: Rows, config: RunnableConfig, place: Place) -> None:
        super()._take(rows, config, place)
        if self.at_it and ACT == "die in put":
            os.kill(os.getpid(), signal.SIGKILL)


with Dying(STORE) as checkpointer:
    graph = line(first, second).compile(checkpointer=checkpointer)
    try:
        begins: Any = {"notes": ["begin"]} if ACT != "go on" else None
        say(graph.invoke(begins, thread("t"), durability="sync")["notes"])
    except StaleWriter as stale:
        say(stale.code)
