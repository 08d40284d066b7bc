"""What is asked of each run that is driven, asked by the event loop itself, over a connection of its own.

A hundred runs that are claimed ask a few hundred small questions. Each of them, given to a thread, would wait for its
turn of the interpreter, and its answer for another. Here they go down one pipeline, and the loop goes on until an
answer is there. A question that was not answered here (there is no connection yet, or it broke, or a pooler stands
between) is asked again by a thread, which waits for a server that is away and says what is wrong.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.pq import ExecStatus

from milepost.stores.postgres.connection import PLANS
from milepost.stores.postgres.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Iterable

    from psycopg.pq.abc import PGresult

    from milepost.stores.postgres.connection import Connection

    Rows = list[tuple[Any, ...]]

MOST = 500  # questions under way: others take the longer way meanwhile


class NotAnswered(Exception):
    """A question was not answered here."""


class Questions:
    """One connection that asks, without waiting, named statements that are given beforehand."""

    def __init__(self, connection: Connection, names: Iterable[str]) -> None:
        """Take a connection over, whose server knows the names of statements from here on. Raises psycopg.Error."""
        self._connection = connection
        connection.execute(PLANS.encode())
        self._wire = Wire(connection, names)
        self._wire.open()
        self._socket = self._wire.socket  # of one that broke nobody can ask it any more
        self._waiting: deque[tuple[str, asyncio.Future[Rows]]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._unsent = False
        self._ends = 0  # of what was sent together, as far as they have not come back
        self.broken = False

    def may_ask(self) -> bool:
        """Say whether a question may be asked by the running loop."""
        mine = self._loop is None or self._loop is asyncio.get_running_loop()
        return mine and not self.broken and len(self._waiting) < MOST

    async def rows(self, name: str, *args: Any) -> Rows:
        """Return a statement's rows. Raises NotAnswered."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Rows] = loop.create_future()
        try:
            self._wire.send(name, args)
        except psycopg.Error as error:
            self._break()
            raise NotAnswered from error
        self._waiting.append((name, answer))
        if self._loop is None:
            self._loop = loop
            loop.add_reader(self._socket, self._read)
        if not self._unsent:  # what is asked in one turn of the loop is sent together
            self._unsent = True
            loop.call_soon(self._send, loop)
        return await answer

    def _send(self, loop: asyncio.AbstractEventLoop) -> None:
        self._unsent = False
        if self.broken:
            return
        try:
            self._ends += 1
            if not self._wire.end():
                loop.add_writer(self._socket, self._write, loop)
        except psycopg.Error:
            self._break()

    def close(self) -> None:
        """Close the connection; what is still asked is not answered."""
        self._break()

    def _write(self, loop: asyncio.AbstractEventLoop) -> None:
        with suppress(psycopg.Error):  # what broke shows where it is read
            if not self._wire.left():
                return
        loop.remove_writer(self._socket)

    def _read(self) -> None:
        try:
            for result in self._wire.come():
                if result.status == ExecStatus.PIPELINE_SYNC:
                    self._ends -= 1
                else:
                    self._tell(result)
        except psycopg.Error:
            self._break()
        if not self._waiting and not self._ends:  # a connection that broke answers everything, and does not end it
            self._rest()

    def _tell(self, result: PGresult) -> None:
        name, future = self._waiting.popleft()
        if future.done():
            return  # who asked has gone
        if result.status == ExecStatus.TUPLES_OK:
            future.set_result(self._wire.rows_of(name, result))
        else:  # it failed, or stands behind one that did
            future.set_exception(NotAnswered())

    def _rest(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None and not loop.is_closed():
            loop.remove_reader(self._socket)
            loop.remove_writer(self._socket)

    def _break(self) -> None:
        if self.broken:
            return
        self.broken = True
        self._rest()
        self._connection.close()
        waiting, self._waiting = self._waiting, deque()
        for _, future in waiting:
            if not future.done() and not future.get_loop().is_closed():
                future.set_exception(NotAnswered())
