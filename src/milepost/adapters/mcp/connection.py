"""One connection to an MCP server: opened when it is first needed, and made again when it broke.

A client of MCP is entered and left in one task, and calls come from many, so a task of its own holds it open. Whether
a broken connection took a call with it nobody can tell; so one that stood idle is asked whether it is still there
*before* something is sent. What cannot be connected to has received nothing, and that is proof.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from milepost.errors import NotSent

if TYPE_CHECKING:
    from mcp import Client, ClientSession

CONNECT_S = 10.0
IDLE_S = 1.0


class Connection:
    """A connection to one server. `connect` makes a new, unentered client of MCP each time it is called."""

    def __init__(self, name: str, connect: Callable[[], Client], *, connect_s: float = CONNECT_S) -> None:
        self.name = name
        self._connect = connect
        self._connect_s = connect_s
        self._lock = asyncio.Lock()
        self._client: Client | None = None
        self._owner: asyncio.Task[None] | None = None
        self._leave = asyncio.Event()
        self._used_at = float("-inf")

    async def client(self) -> Client:
        """Return a client that was there a moment ago. Raises NotSent where the server cannot be reached."""
        async with self._lock:
            idle = time.monotonic() - self._used_at > IDLE_S
            if self._client is not None and idle and not await self._answers(self._client.session):
                await self._close()
            if self._client is None:
                self._client = await self._open()
            self._used_at = time.monotonic()
            return self._client

    async def close(self) -> None:
        """Leave the server."""
        async with self._lock:
            await self._close()

    def broken(self, client: Client) -> None:
        """Say that a call on this client ended without an answer: the next one is made on a new connection."""
        if self._client is client:
            self._used_at = float("-inf")

    async def _answers(self, session: ClientSession) -> bool:
        version = session.protocol_version
        modern = version in MODERN_PROTOCOL_VERSIONS
        try:
            async with asyncio.timeout(self._connect_s):
                await (session.send_discover(version or "") if modern else session.send_ping())
        except Exception:  # noqa: BLE001  whatever it is, a new connection is tried
            return False
        return True

    async def _open(self) -> Client:
        opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._leave = asyncio.Event()
        self._owner = asyncio.create_task(self._own(opened, self._leave), name=f"mcp-{self.name}")
        try:
            async with asyncio.timeout(self._connect_s):
                return await asyncio.shield(opened)
        except Exception as error:
            await self._close()
            raise NotSent(f"{self.name} cannot be reached ({_said(error)}); nothing was sent") from error

    async def _own(self, opened: asyncio.Future[Client], leave: asyncio.Event) -> None:
        try:
            async with self._connect() as client:
                await client.list_tools()  # which the client would else ask for after its first call, as part of it
                if not opened.done():
                    opened.set_result(client)
                await leave.wait()
        except Exception as error:  # noqa: BLE001  told to whoever waits; one that broke later is found out by its use
            if not opened.done():
                opened.set_exception(error)

    async def _close(self) -> None:
        self._client = None
        owner, self._owner = self._owner, None
        self._leave.set()
        if owner is not None:
            _, pending = await asyncio.wait([owner], timeout=self._connect_s)
            for task in pending:
                task.cancel()


def _said(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}".removesuffix(": ")
