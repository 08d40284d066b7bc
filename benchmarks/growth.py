"""What a long conversation stores: 410 turns, each adding a kilobyte to the state that every checkpoint holds.

Measured over the twenty turns around turn 50 and around turn 400. Were the state stored whole at each boundary, a late
turn would cost eight times what an early one does; stored in chunks, it costs its own kilobyte and a little more.
"""

import asyncio
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import apsw

import milepost as mp
from benchmarks.comparing import Bench, Row, Target, judged
from benchmarks.conversation import EARLY, LATE, TURNS, Growth, Marks, kilobyte


@dataclass(frozen=True)
class Talk:
    """The whole conversation so far."""

    messages: list[str]


def stored_bytes(file: Path) -> int:
    """What the database holds, in whole pages, free pages and the log's copies not counted; plus files beside it."""
    connection = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
    pages = connection.pragma("page_count") - connection.pragma("freelist_count")
    size: int = pages * connection.pragma("page_size")
    connection.close()
    beside = (other for other in file.parent.rglob("*") if other.is_file() and not other.name.startswith(file.name))
    return size + sum(other.stat().st_size for other in beside)


def rows(bench: Bench) -> Iterator[Row]:
    """Bytes and time a turn, late against early."""
    with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
        growth = asyncio.run(_converse(Path(folder) / "store.db"))
    yield from described("Milepost", growth, Target("most", 1.5, "times turn 50"))


def described(system: str, growth: Growth, target: Target | None = None) -> Iterator[Row]:
    """The rows of one system's growth; the ratio of the bytes is what a target judges."""
    ratio = growth.late_bytes / growth.early_bytes
    figure = f"{growth.early_bytes / 1e3:.1f} → {growth.late_bytes / 1e3:.1f} KB ({ratio:.2f} times)"
    name = f"{system}: stored a turn (+1 KB each), turn 50 → 400"
    yield Row(name, figure) if target is None else judged(name, figure, ratio, target)
    yield Row(f"{system}: time a turn, turn 50 → 400", f"{growth.early_ms:.2f} → {growth.late_ms:.2f} ms")


async def _converse(file: Path) -> Growth:
    marks = Marks(lambda: stored_bytes(file))
    edges = {*EARLY, *LATE}
    chat = mp.Workflow("chat", version="1", input=Talk, result=int, tools=[reply, settle])

    @chat.segment
    async def turn(run: mp.Run, talk: Talk) -> mp.Next[int]:
        del run
        number = len(talk.messages)
        if number in edges:
            await settle(number)  # an effect waits until all before it is stored: nothing is missing from the count
            marks.note(number)
        if number == TURNS:
            return mp.done(number)
        return mp.go(turn, Talk([*talk.messages, await reply(number)]))

    async with mp.App(f"sqlite:///{file}", workflows=[chat]) as app:
        handle = await app.start(chat, Talk([]), key="talk")
        if await handle.result() != TURNS:
            raise RuntimeError("the conversation ended early")
    return marks.growth()


@mp.tool(effect="read")
async def reply(turn: int) -> str:
    """A model's answer."""
    return kilobyte(turn)


@mp.tool(effect="keyed", key_ttl="24h")
async def settle(turn: int) -> int:
    """An effect that does nothing."""
    return turn
