"""Who may write a thread: one invocation of a graph at a time, in whatever process, and it knows what it goes on from.

A graph reads its thread when it is invoked, and writes from then on. What it reads is marked: with the thread's writer
and version as they are, and with a name of its own. Its first write takes the thread, if nobody has written since that
read; each later one needs to find its own name there. So of two that go on from one checkpoint the first to write has
the thread, and whoever reads after that and writes takes it in turn: the one before is stale from then on, and each
write of it is refused with StaleWriter. Nothing is ever interleaved. To read takes nothing.

The mark travels in the configuration that LangGraph keeps for the invocation. Graphs inside a graph get no part of
that: they write, in namespaces of their own, by the mark of the invocation around them, which they find in their
context, and otherwise as long as the thread is this process's. A thread that is not there yet has nothing that could be
marked: it is taken by the name of the checkpointer itself, which tells processes apart, and not invocations in one.
"""

from __future__ import annotations

import secrets
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from milepost.errors import MilepostError

if TYPE_CHECKING:
    from collections.abc import Mapping

KEY = "__milepost_mark"  # LangGraph keeps what begins with two underscores out of metadata
_around: ContextVar[Mapping[str, Mark] | None] = ContextVar("milepost_langgraph_mark", default=None)


class StaleWriter(MilepostError):
    """Somebody else has written to this thread since this invocation read it."""

    code = "stale_writer"

    def __init__(self, thread: str) -> None:
        super().__init__(
            f"thread {thread!r} was taken by another invocation, or has been written to since it was read. Nothing "
            "was written. To go on from what is there now, invoke the graph again."
        )
        self.thread = thread


@dataclass(frozen=True, slots=True)
class Held:
    """A thread's row: the name of its writer, and how often it was written to."""

    writer: str = ""
    version: int = 0


@dataclass(frozen=True, slots=True)
class Mark:
    """What an invocation knows: the row as it was read, and the name that it writes by."""

    seen: Held
    name: str

    @classmethod
    def of(cls, held: Held, saver: str) -> Mark:
        """Mark what was read, for a new invocation."""
        return cls(held, f"{saver}.{secrets.token_hex(8)}")

    def text(self) -> str:
        """Return it as it travels in a configuration."""
        return f"{self.seen.version}/{self.seen.writer}/{self.name}"

    @classmethod
    def read(cls, text: object) -> Mark | None:
        """Return the mark that a configuration holds."""
        if not isinstance(text, str):
            return None
        version, writer, name = text.split("/")
        return cls(Held(writer, int(version)), name)


def is_invocation(config: Mapping[str, object]) -> bool:
    """Say whether a graph that runs asks, by what it puts into a configuration; else a person's code does."""
    return any(name.startswith("__pregel_") for name in config)


def remember(thread: str, mark: Mark) -> None:
    """Let graphs inside the one that is invoked here find its mark."""
    _around.set({**(_around.get() or {}), thread: mark})


def around(thread: str) -> Mark | None:
    """Return the mark of the invocation around this one."""
    return (_around.get() or {}).get(thread)


def writer_of(held: Held, mark: Mark | None, saver: str, *, inside: Mark | None = None, nested: bool = False) -> str:
    """Return the name that a write is made by; '' where it may not be made.

    `mark` is that of the invocation, and `inside` that of the one around it, where this is `nested`.
    """
    for known in (mark, inside if nested else None):
        if known is not None and (held.writer == known.name or held == known.seen):
            return known.name
    unmarked = f"{saver}."
    if mark is None and nested and held.writer.startswith(unmarked):
        return held.writer
    return unmarked if mark is None and held.writer in {"", unmarked} else ""
