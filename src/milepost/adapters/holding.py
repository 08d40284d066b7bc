"""What a host works through while it holds a run, and where in its program that is.

It is inside `durable(…)`, and not inside a step: what an agent does while a tool is made, or while a model is asked, is
a part of that step.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

from milepost.adapters.batches import Batch
from milepost.adapters.calls import Questions
from milepost.adapters.threads import Threads
from milepost.definitions.run import AttachedRun


class Attached:
    """What a host works through: `questions` are what it asks of its models, `calls` what it makes at once."""

    def __init__(self, threads: Threads, key: str, run: AttachedRun) -> None:
        self.threads = threads
        self.key = key
        self.run = run
        self.tools = threads.app.tools
        self.questions = Questions(run)
        self.calls = Batch()


A = TypeVar("A", bound=Attached)


class Place(Generic[A]):
    """Where in a program a run is held, for one adapter."""

    def __init__(self, name: str) -> None:
        self._held: ContextVar[A | None] = ContextVar(name, default=None)

    def held(self) -> A | None:
        """Return what is held here, None outside `holding` and inside a step."""
        return self._held.get()

    @contextmanager
    def holding(self, attached: A) -> Iterator[None]:
        """Hold it while the block runs."""
        token = self._held.set(attached)
        try:
            yield
        finally:
            self._held.reset(token)

    async def inside(self, work: Callable[[], Awaitable[Any]]) -> Any:
        """Do the work of one step."""
        token = self._held.set(None)
        try:
            return await work()
        finally:
            self._held.reset(token)
