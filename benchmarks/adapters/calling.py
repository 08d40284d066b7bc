"""One conversation of many turns, a call of a tool in each, in rounds: bare and with Milepost, side by side.

A program (`calls_NAME`) gives two coroutine functions, which take the number of a conversation and make `TURNS` turns.
The tool does nothing, so what differs is the adapter, and the record on disk: for each call two awaited commits, of
`started` and of what came of it; more where the adapter records the model's answers, or attaches anew for each call.
In each round as many bare commits are made, through the same SQLite library on the same disk.
"""

import argparse
import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import milepost as mp
from benchmarks.baseline import opened
from benchmarks.timing import Slice, Stopwatch
from milepost.adapters.foreign import foreign

TURNS = 30
KEYED: dict[str, Any] = {"effect": "keyed", "key_ttl": "1h"}
SCRIPT: list[list[tuple[str, str, dict[str, Any]]]] = [
    [(f"call_{turn}", "nothing", {"number": turn})] for turn in range(TURNS)
]
"""What a model asks for, turn by turn: (id, tool, arguments)."""

Conversation = Callable[[int], Awaitable[None]]


async def nothing(number: int) -> str:
    """Do nothing."""
    return str(number)


def unheard() -> None:
    """Let it pass that the model was asked."""


def form() -> str | None:
    """Return the form of the comparison that was chosen."""
    chosen: str | None = _chosen().form
    return chosen


def folder() -> Path:
    """Return the folder that this process was given."""
    chosen: Path = _chosen().folder
    return chosen


def store() -> str:
    """Return the store of this process, in its folder."""
    return f"sqlite:///{folder() / 'store.db'}"


def declared() -> mp.App:
    """Return an app that knows the tool as one of the host's own."""
    schema = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
    return mp.App(store(), tools=[foreign("nothing", schema, **KEYED)])


async def compared(bare: Conversation, durable: Conversation) -> None:
    """Have conversations in turn, the first of each kind unmeasured, and print what they took."""
    taken: dict[str, list[Slice]] = {"bare": [], "durable": [], "fresh": [], "extended": []}
    with (
        opened(folder() / "fresh.db", extended=False) as fresh,
        opened(folder() / "extended.db", extended=True) as extended,
    ):
        for number in range(_chosen().rounds + 1):
            done = {}
            for name, conversation in (("bare", bare), ("durable", durable)):
                watch = Stopwatch()
                await conversation(number)
                done[name] = watch.slice(TURNS)
            done |= {"fresh": fresh(TURNS), "extended": extended(TURNS)}
            for name, one in done.items() if number else ():
                taken[name].append(one)
    print(json.dumps({name: [asdict(one) for one in slices] for name, slices in taken.items()}))


def _chosen() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("rounds", type=int)
    parser.add_argument("form", nargs="?", help="where a program has several")
    return parser.parse_args()
