"""The measured work on DBOS: workflows whose steps do nothing, and a conversation. Prints what it took."""

import argparse
import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

from dbos import DBOS, DBOSConfig

from benchmarks.conversation import EARLY, LATE, TURNS, Growth, Marks, kilobyte
from benchmarks.timing import Slice, Stopwatch

MARKS: list[Marks] = []


def _act(number: int) -> int:
    return number


def _reply(turn: int) -> str:
    return kilobyte(turn)


def _chain(steps: int) -> int:
    for number in range(steps):
        act(number)
    return steps


def _talk(turns: int) -> int:
    """A conversation. DBOS stores what each step returned; the messages so far live in the process."""
    messages: list[str] = []
    for turn in range(turns):
        if turn in {*EARLY, *LATE}:
            MARKS[0].note(turn)
        messages.append(reply(turn))
    MARKS[0].note(turns)
    return len(messages)


# Not as decorators: where DBOS is not installed, a type checker would find every function untyped.
act: Callable[[int], int] = DBOS.step()(_act)
reply: Callable[[int], str] = DBOS.step()(_reply)
chain: Callable[[int], int] = DBOS.workflow()(_chain)
talk: Callable[[int], int] = DBOS.workflow()(_talk)


def _rate(runs: int, each: int) -> Slice:
    watch = Stopwatch()
    if runs == 1:
        chain(each)
    else:
        handles = [DBOS.start_workflow(chain, each) for _ in range(runs)]
        for handle in handles:
            handle.get_result()
    return watch.slice(runs * each)


def _growth(file: Path) -> Growth:
    MARKS.append(Marks(lambda: _stored(file)))
    talk(TURNS)
    return MARKS[0].growth()


def _stored(file: Path) -> int:
    with closing(sqlite3.connect(file)) as connection:
        pages, free, size = (
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
    return int((pages - free) * size)


def main() -> None:
    """Run one shape of the work in an empty folder or database."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("rate", "growth"))
    parser.add_argument("where", help="an empty folder, for SQLite, or the URL of an empty PostgreSQL database")
    parser.add_argument("runs", type=int)
    parser.add_argument("each", type=int)
    chosen = parser.parse_args()
    on_a_server = "://" in chosen.where
    file = Path(chosen.where) / "dbos.sqlite"
    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": chosen.where if on_a_server else f"sqlite:///{file}",
        "log_level": "ERROR",
    }
    DBOS(config=config)
    DBOS.launch()
    measured = _rate(chosen.runs, chosen.each) if chosen.what == "rate" else _growth(file)
    print(json.dumps(asdict(measured)), flush=True)
    os._exit(0)  # its threads take seconds to stop, and there is nothing left to keep


if __name__ == "__main__":
    main()
