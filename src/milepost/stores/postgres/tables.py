"""A surface's own tables in the database of a store, through a connection of its own."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

import psycopg

from milepost.errors import StoreBusy, StoreUnreachable
from milepost.stores import hiding, named_sql
from milepost.stores.migrate import pending
from milepost.stores.postgres.connection import LIMITS, address, connect, named_errors, settle
from milepost.stores.postgres.schema import one_at_a_time, prepare
from milepost.stores.postgres.statements import NamedStatements
from milepost.stores.tables import PlainRefused, brought

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from milepost.stores.encryption import Cipher
    from milepost.stores.postgres.connection import Connection
    from milepost.stores.tables import Brought, Rows

T = TypeVar("T")
OWN = {name: text.encode() for name, text in named_sql.load("milepost.stores.postgres", "tables.sql").items()}
WRITING = f"{LIMITS}; SET LOCAL synchronous_commit = on".encode()
READING = f"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY; {LIMITS}".encode()
PATIENCE_S = 30.0  # how long a server that restarts, and a lock, are waited for


class PostgresTables:
    """See `milepost.stores.tables.Tables`."""

    def __init__(self, url: str, package: str, *, cipher: Cipher | None = None) -> None:
        """Open the database, or make the tables in it. Raises as opening the store does, and NotPermitted."""
        self._where = address(url)
        self.place = self._where.place
        self.cipher = cipher
        self._turn = threading.Lock()
        surface = brought(package, "postgres")
        self._sql = {name: text.encode() for name, text in surface.sql.items()}
        self._connection = connect(self._where)
        try:
            settle(self._connection, self._where)
            prepare(self._connection, self.place, create=True)
            hiding.is_on(NamedStatements(self._connection, self.place), cipher, self.place)
            with named_errors(self.place):
                self._migrate(surface)
                self._connection.execute(OWN["grant_tables"], prepare=False)
        except BaseException:
            self._connection.close()
            raise

    def _migrate(self, surface: Brought) -> None:
        if self._pending(surface) == []:
            return
        with one_at_a_time(self._connection):
            self._connection.execute(OWN["make_tables"], prepare=False)
            for one in self._pending(surface) or ():
                self._connection.execute(one.sql.encode(), prepare=False)
                self._asked("note_tables", surface.name, one.number, one.name, one.checksum)

    def _pending(self, surface: Brought) -> list[Any] | None:
        if not self._asked("has_tables")[0][0]:
            return None
        applied = cast("list[tuple[int, str, str]]", self._asked("tables_applied", surface.name))
        return pending(self.place, surface.migrations, applied)

    def _asked(self, name: str, *args: Any) -> list[tuple[Any, ...]]:
        cursor: psycopg.RawCursor[tuple[Any, ...]] = psycopg.RawCursor(self._connection)
        cursor.execute(OWN[name], args, prepare=False)
        return cursor.fetchall() if cursor.description else []

    def do(self, work: Callable[[Rows], T]) -> T:
        """Write in one transaction; see `Tables`."""

        def checked(rows: Rows) -> T:
            if self.cipher is None and self._asked("encrypted"):
                raise PlainRefused(self.place)
            return work(rows)

        return self._again(WRITING, checked)

    def look(self, work: Callable[[Rows], T]) -> T:
        """Read as of one instant."""
        return self._again(READING, work)

    def _again(self, begin: bytes, work: Callable[[Rows], T]) -> T:
        """Do it, and again where the connection broke, or somebody was in the way."""
        until, wait = time.monotonic() + PATIENCE_S, 0.05
        with self._turn:
            while True:
                try:
                    with self._inside(begin) as rows:
                        return work(rows)
                except (StoreUnreachable, StoreBusy):
                    if time.monotonic() + wait > until:
                        raise
                time.sleep(wait)
                wait = min(1.0, wait * 2)

    @contextmanager
    def _inside(self, begin: bytes) -> Iterator[Rows]:
        if self._connection.closed:
            self._connection = connect(self._where)
            settle(self._connection, self._where)
        with named_errors(self.place), self._connection.transaction():
            self._connection.execute(begin, prepare=False)
            yield _Rows(self._connection, self._sql)

    def close(self) -> None:
        """Close the connection."""
        with self._turn:
            self._connection.close()


class _Rows:
    """Statements by name. `Rows` says what each method does."""

    def __init__(self, connection: Connection, sql: dict[str, bytes]) -> None:
        self._cursor: psycopg.RawCursor[tuple[Any, ...]] = psycopg.RawCursor(connection)
        self._sql = sql

    def run(self, name: str, /, *args: Any) -> list[tuple[Any, ...]]:
        self._cursor.execute(self._sql[name], args)
        return self._cursor.fetchall() if self._cursor.description else []

    def each(self, name: str, rows: Collection[tuple[Any, ...]], /) -> None:
        if rows:
            self._cursor.executemany(self._sql[name], list(rows))
