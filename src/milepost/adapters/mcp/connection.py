"""One connection to an MCP server: opened when it is first needed, and made again when it broke.

A client of MCP is entered and left in one task, and calls come from many, so a task of its own holds it open. Whether
a broken connection took a call with it nobody can tell; so one that stood idle is asked whether it is still there
*before* something is sent. What cannot be connected to has received nothing, and that is proof. A connection ends with
the event loop in which it was opened; in another one it is made anew.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from milepost.errors import NotSent

if TYPE_CHECKING:
    from mcp import Client, ClientSession

CONNECT_S = 10.0
IDLE_S = 1.0


@dataclass(slots=True, eq=False)
class Opened:
    """One connection, from its opening until it is left. `calls` are under way on it."""

    ready: asyncio.Future[Client]
    leave: asyncio.Event
    owner: asyncio.Task[None] | None = None
    used_at: float = float("-inf")
    calls: int = 0


class Connection:
    """A connection to one server. `connect` makes a new, unentered client of MCP each time it is called."""

    def __init__(self, name: str, connect: Callable[[], Client], *, connect_s: float = CONNECT_S) -> None:
        self.name = name
        self._connect = connect
        self._connect_s = connect_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = asyncio.Lock()
        self._opened: Opened | None = None
        self._owners: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def use(self, within_s: float | None = None) -> AsyncIterator[Client]:
        """Lend a client that was there a moment ago, for one call, which is all that may raise in the block.

        Raises NotSent where the server cannot be reached, or not within `within_s` seconds.
        """
        opened = await self._there(within_s)
        try:
            yield opened.ready.result()
        except BaseException:
            opened.used_at = float("-inf")  # it is asked whether it is there before the next call
            raise
        finally:
            opened.calls -= 1
            if opened is not self._opened and opened.calls == 0:
                opened.leave.set()

    async def close(self) -> None:
        """Leave the server."""
        self._come()
        async with self._lock:
            if self._opened is not None:
                self._opened.leave.set()
                self._opened = None
            await self._ended(set(self._owners))

    def _come(self) -> None:
        """Forget what belongs to another event loop."""
        loop, other, opened = asyncio.get_running_loop(), self._loop, self._opened
        if other is loop:
            return
        self._loop, self._lock, self._opened = loop, asyncio.Lock(), None
        self._owners = set()
        if other is not None and not other.is_closed() and opened is not None and opened.calls == 0:
            other.call_soon_threadsafe(opened.leave.set)

    async def _there(self, within_s: float | None) -> Opened:
        self._come()
        try:
            async with asyncio.timeout(within_s), self._lock:
                opened = self._opened
                if opened is not None and opened.owner is not None and opened.owner.done():
                    opened = self._opened = None  # it is closed: there is nothing to ask
                idle = opened is not None and time.monotonic() - opened.used_at > IDLE_S
                if opened is not None and idle and not await self._answers(opened.ready.result().session):
                    self._opened = None
                    await self._retire(opened)
                opened = self._opened
                if opened is None:
                    opened = self._opened = await self._open()
                opened.used_at = time.monotonic()
                opened.calls += 1
                return opened
        except TimeoutError as error:
            raise NotSent(f"{self.name} could not be reached in time; nothing was sent") from error

    async def _answers(self, session: ClientSession) -> bool:
        version = session.protocol_version
        modern = version in MODERN_PROTOCOL_VERSIONS
        try:
            async with asyncio.timeout(self._connect_s):
                await (session.send_discover(version or "") if modern else session.send_ping())
        except Exception:  # noqa: BLE001  whatever it is, a new connection is tried
            return False
        return True

    async def _retire(self, opened: Opened) -> None:
        """Leave a connection that does not answer; one that calls are under way on once they have ended.

        It may be busy with just them, and whoever tears it down loses what they did.
        """
        if opened.calls == 0 and opened.owner is not None:
            opened.leave.set()
            await self._ended({opened.owner})

    async def _open(self) -> Opened:
        opened = Opened(asyncio.get_running_loop().create_future(), asyncio.Event())
        opened.owner = asyncio.create_task(self._own(opened), name=f"mcp-{self.name}")
        self._owners.add(opened.owner)
        opened.owner.add_done_callback(self._owners.discard)
        try:
            async with asyncio.timeout(self._connect_s):
                await asyncio.shield(opened.ready)
        except BaseException as error:
            opened.leave.set()
            opened.owner.cancel()
            if not isinstance(error, Exception):
                raise
            raise NotSent(f"{self.name} cannot be reached ({_said(error)}); nothing was sent") from error
        return opened

    async def _own(self, opened: Opened) -> None:
        try:
            async with self._connect() as client:
                await client.list_tools()  # which the client would else ask for after its first call, as part of it
                if not opened.ready.done():
                    opened.ready.set_result(client)
                await opened.leave.wait()
        except Exception as error:  # noqa: BLE001  told to whoever waits; one that broke later is found out by its use
            if not opened.ready.done():
                opened.ready.set_exception(error)
                opened.ready.exception()  # whoever waited may be gone

    async def _ended(self, owners: set[asyncio.Task[None]]) -> None:
        if owners:
            _, pending = await asyncio.wait(owners, timeout=self._connect_s)
            for task in pending:
                task.cancel()


def _said(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}".removesuffix(": ")
