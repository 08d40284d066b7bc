"""Something that is open while anybody here uses it: opened by the first who comes, closed when the last one left.

It is opened, and closed, by a task of its own. So whose turn it is to come or to leave does not matter to it, no user's
cancellation tears it down under the others, and a resource that must be left in the task that entered it is.

Who leaves may let it linger: it stays open for a while, for whoever comes next, and is closed then, or by `leave`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
log = logging.getLogger("milepost")


@dataclass(slots=True, eq=False)
class Opened(Generic[T]):
    """One span in which it is open: `ready` has what was opened, or why it could not be."""

    ready: asyncio.Future[T]
    left: asyncio.Event
    task: asyncio.Task[None] | None = None
    users: int = 0
    lingers: asyncio.TimerHandle | None = None


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
        return self._wanted > 0 or self._open is not None or self._closing is not None

    @property
    def lingers(self) -> bool:
        """Whether it is open and nobody uses it."""
        return self._open is not None and self._open.lingers is not None

    @asynccontextmanager
    async def use(self, linger_s: float = 0.0) -> AsyncIterator[T]:
        """Hold it open while the block runs, and `linger_s` seconds longer. Raises to each what opening raised."""
        self._wanted += 1
        try:
            while self._closing is not None:
                await asyncio.wait([self._closing])
            opened = self._opened()
            opened.users += 1
            if opened.lingers is not None:
                opened.lingers.cancel()
                opened.lingers = None
            try:
                await asyncio.wait([opened.ready])
                yield opened.ready.result()
            finally:
                opened.users -= 1
                if opened.users == 0:
                    if linger_s and self._open is opened and opened.ready.done():
                        later = asyncio.get_running_loop().call_later
                        opened.lingers = later(linger_s, self._lapsed, opened)
                    else:
                        await self._leave(opened)
        finally:
            self._wanted -= 1

    async def leave(self) -> None:
        """Close it now if it only lingers, or wait until it is closed. Raises what closing raised."""
        if self._open is not None and self._open.lingers is not None:
            self._open.lingers.cancel()
            await self._leave(self._open)
        while self._closing is not None:
            await asyncio.wait([self._closing])

    def _lapsed(self, opened: Opened[T]) -> None:
        """Close what nobody came back for. Nobody waits for that: what it raises is logged."""
        if self._open is opened and opened.users == 0 and opened.task is not None:
            opened.task.add_done_callback(_logged)
            self._open, self._closing = None, opened.task
            opened.left.set()

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


def _logged(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.warning("what lingered could not be closed in good order: %s", error)
