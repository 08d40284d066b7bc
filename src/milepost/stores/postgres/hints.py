"""Hints between processes that something may be due: NOTIFY behind a commit, LISTEN on a connection of its own.

A hint only makes a worker look sooner than it would by itself; what is claimed is decided by what it reads then. So a
hint may be lost, come twice, or come for nothing. It is never part of the transaction that it is about: notifying
transactions commit one after the other, in the whole server, and effects must not wait for that.

Behind a pooler that hands connections on there is no LISTEN: then nothing is heard, and polling has to do. What is told
there is heard by others who are connected directly.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import psycopg

from milepost.errors import StoreError
from milepost.stores.api import Append, Claim, Create, Deliver, Head, Kill, Throw
from milepost.stores.fleet import Tick
from milepost.stores.pools import SetCeiling
from milepost.stores.postgres.connection import SQL, connect, settle

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from milepost.stores.api import Operation
    from milepost.stores.postgres.connection import Address, Connection

AGAIN_S = 5.0  # between two tries to listen, where the server is away


class Held:
    """Which runs this process holds, by what it wrote: their mail is brought by its own worker."""

    def __init__(self) -> None:
        self._runs: set[str] = set()

    def worth_telling(self, operations: Sequence[Operation], answers: Sequence[Any]) -> bool:
        """Take in what was written, and say whether it may have made something due for others."""
        telling = False
        for operation, answer in zip(operations, answers, strict=True):
            if isinstance(answer, Exception):
                continue
            match operation:
                case Append():
                    telling = self._appended(operation) or telling
                case Claim(run_id=run_id):
                    if isinstance(answer, Head):
                        self._runs.add(run_id)
                case Create(run=run):
                    telling = telling or run.due is not None
                case Deliver(post=post):
                    telling = telling or post.run_id not in self._runs
                case Kill() | Throw() | SetCeiling() | Tick():
                    telling = True
                case _:
                    pass
        return telling

    def _appended(self, append: Append) -> bool:
        telling = bool(append.once_settled or append.lifts)
        if append.posts:
            telling = telling or self._elsewhere(post.run_id for post in append.posts)
        if append.release is None:
            return telling
        self._runs.discard(append.head.run_id)
        now, due = append.release
        return telling or (due is not None and now is not None and due <= now)

    def _elsewhere(self, run_ids: Iterable[str]) -> bool:
        return any(run_id not in self._runs for run_id in run_ids)


class Listening:
    """Hears the hints of other processes. `heard` is asked by the event loop, and never waits."""

    def __init__(self, where: Address, mark: str) -> None:
        self._where = where
        self._mark = mark
        self._connection: Connection | None = None
        self._opening: threading.Thread | None = None
        self._pooled = False
        self._closed = False
        self._again_at = 0.0
        self._missed = False

    def heard(self) -> bool:
        """Say whether anybody else has told anything since this was asked last, or may have while nobody listened."""
        connection = self._connection
        if connection is None:
            self._listen()
            return False
        found, self._missed = self._missed, False
        try:
            connection.pgconn.consume_input()
            while (told := connection.pgconn.notifies()) is not None:
                found = found or told.extra.decode() != self._mark
        except psycopg.Error:
            connection.close()
            self._connection = None
        return found

    def _listen(self) -> None:
        now = time.monotonic()
        if self._pooled or self._closed or now < self._again_at:
            return
        self._again_at = now + AGAIN_S
        if self._opening is None or not self._opening.is_alive():
            self._opening = threading.Thread(target=self._open, name="milepost-listen", daemon=True)
            self._opening.start()

    def _open(self) -> None:
        try:
            connection = connect(self._where)
        except StoreError:
            return
        try:
            settle(connection, self._where)
            self._pooled = connection.prepare_threshold is None
            if self._pooled or self._closed:
                connection.close()
                return
            connection.execute(SQL["listen"], prepare=False)
        except (StoreError, psycopg.Error):
            connection.close()
            return
        self._missed = True
        self._connection = connection

    def close(self) -> None:
        """Hear no more."""
        self._closed = True
        if self._opening is not None:
            self._opening.join()
        if self._connection is not None:
            self._connection.close()
            self._connection = None
