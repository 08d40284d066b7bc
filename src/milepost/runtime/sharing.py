"""Something that is open while anybody here uses it: opened by the first who comes, closed when the last one left.

It is opened, and closed, by a task of its own. So whose turn it is to come or to leave does not matter to it, no user's
cancellation tears it down under the others, and a resource that must be left in the task that entered it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Opened(Generic[T]):
    """One span in which it is open: `ready` has what was opened, or why it could not be."""

    ready: asyncio.Future[T]
    left: asyncio.Event
    task: asyncio.Task[None] | None = None
    users: int = 0


class Shared(Generic[T]):
    """An async context that users of one event loop share. Whoever comes while it is being closed opens it anew."""

    def __init__(self, make: Callable[[], AbstractAsyncContextManager[T]]) -> None:
        self._make = make
        self._open: Opened[T] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._wanted = 0

    @property
    def in_use(self) -> bool:
        """Whether it is open, or wanted, or not closed yet."""
        return self._wanted > 0 or self._closing is not None

    @asynccontextmanager
    async def use(self) -> AsyncIterator[T]:
        """Hold it open while the block runs. Raises to each who waits for it what opening raised."""
        self._wanted += 1
        try:
            while self._closing is not None:
                await asyncio.wait([self._closing])
            opened = self._opened()
            opened.users += 1
            try:
                await asyncio.wait([opened.ready])
                yield opened.ready.result()
            finally:
                opened.users -= 1
                if opened.users == 0:
                    await self._leave(opened)
        finally:
            self._wanted -= 1

    def _opened(self) -> Opened[T]:
        """Return the present span, which may begin with this."""
        if self._open is None:
            loop = asyncio.get_running_loop()
            opened = self._open = Opened(loop.create_future(), asyncio.Event())
            opened.task = loop.create_task(self._hold(opened), name="milepost-shared")
        return self._open

    async def _leave(self, opened: Opened[T]) -> None:
        """Close it, and wait until it is closed. Raises what closing raised."""
        assert opened.task is not None
        if self._open is opened:
            self._open, self._closing = None, opened.task
        opened.left.set()
        await asyncio.wait([opened.task])
        if not opened.task.cancelled():
            opened.task.result()

    async def _hold(self, opened: Opened[T]) -> None:
        try:
            async with self._make() as value:
                opened.ready.set_result(value)
                await opened.left.wait()
        except Exception as error:
            if opened.ready.done():
                raise
            opened.ready.set_exception(error)
            opened.ready.exception()  # whoever waited for it may have been cancelled meanwhile
        finally:
            if not opened.ready.done():
                opened.ready.cancel()
            if self._open is opened:  # it never opened, or its loop ends
                self._open = None
            if self._closing is opened.task:
                self._closing = None
