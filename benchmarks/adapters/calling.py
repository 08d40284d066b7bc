"""One conversation of many turns, a call of a tool in each, in rounds: bare and with Milepost, side by side.

A program (`calls_NAME`) gives two coroutine functions, which take the number of a conversation and make `TURNS` turns.
The tool does nothing, so what differs is the adapter, and the record on disk: for each call two awaited commits, of
`started` and of what came of it; more where the adapter records the model's answers, or attaches anew for each call.
"""

import argparse
import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.timing import Slice, Stopwatch

TURNS = 30
KEYED: dict[str, Any] = {"effect": "keyed", "key_ttl": "1h"}
Conversation = Callable[[int], Awaitable[None]]


async def nothing(number: int) -> str:
    """Do nothing."""
    return str(number)


def form() -> str | None:
    """Return the form of the comparison that was chosen."""
    chosen: str | None = _chosen().form
    return chosen


def store() -> str:
    """Return the store of this process, in the folder that it was given."""
    return f"sqlite:///{_chosen().folder / 'store.db'}"


async def compared(bare: Conversation, durable: Conversation) -> None:
    """Have conversations in turn, the first of each kind unmeasured, and print what they took."""
    rounds = _chosen().rounds
    taken: dict[str, list[Slice]] = {"bare": [], "durable": []}
    for number in range(rounds + 1):
        for name, conversation in (("bare", bare), ("durable", durable)):
            watch = Stopwatch()
            await conversation(number)
            if number:
                taken[name].append(watch.slice(TURNS))
    print(json.dumps({name: [asdict(one) for one in slices] for name, slices in taken.items()}))


def _chosen() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("rounds", type=int)
    parser.add_argument("form", nargs="?", help="where a program has several")
    return parser.parse_args()
