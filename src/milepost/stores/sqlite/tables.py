"""A surface's own tables in the file of a store, through a connection of its own."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, TypeVar, cast

import apsw

from milepost.errors import StoreFailed
from milepost.stores import hiding, named_sql
from milepost.stores.migrate import pending
from milepost.stores.sqlite.connection import connect, named_errors, prepare
from milepost.stores.sqlite.statements import SqliteStatements
from milepost.stores.tables import PlainRefused, brought

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from milepost.stores.encryption import Cipher
    from milepost.stores.tables import Brought, Rows

T = TypeVar("T")
OWN = named_sql.load("milepost.stores.sqlite", "tables.sql")


class SqliteTables:
    """See `milepost.stores.tables.Tables`."""

    def __init__(self, place: str, package: str, *, cipher: Cipher | None = None) -> None:
        """Open the file, or create it. Raises NotAStore, NewerSchema, StoreBusy, UnsafeLibrary, WrongKeyFile."""
        self.place = place
        self.cipher = cipher
        self._turn = threading.Lock()
        self._connection = connect(place, create=True)
        try:
            prepare(self._connection, place)
            hiding.is_on(SqliteStatements(self._connection), cipher, place)
            surface = brought(package, "sqlite")
            self._rows = _Rows(self._connection, surface.sql)
            with named_errors(place):
                self._migrate(surface)
        except BaseException:
            self._connection.close()
            raise

    def _migrate(self, surface: Brought) -> None:
        if self._pending(surface) == []:
            return
        self._run("BEGIN IMMEDIATE")
        try:
            self._run(OWN["make_tables"])
            for one in self._pending(surface) or ():
                self._run(one.sql)
                self._run(OWN["note_tables"], surface.name, one.number, one.name, one.checksum)
        except BaseException:
            self._run("ROLLBACK")
            raise
        self._run("COMMIT")

    def _pending(self, surface: Brought) -> list[Any] | None:
        if not self._run(OWN["has_tables"])[0][0]:
            return None
        applied = cast("list[tuple[int, str, str]]", self._run(OWN["tables_applied"], surface.name))
        return pending(self.place, surface.migrations, applied)

    def _run(self, sql: str, *args: Any) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, args).fetchall()

    def do(self, work: Callable[[Rows], T]) -> T:
        """Write in one transaction; see `Tables`."""

        def checked(rows: Rows) -> T:
            if self.cipher is None and self._run(OWN["encrypted"]):
                raise PlainRefused(self.place)
            return work(rows)

        return self._inside("BEGIN IMMEDIATE", checked)

    def look(self, work: Callable[[Rows], T]) -> T:
        """Read as of one instant."""
        return self._inside("BEGIN", work)

    def _inside(self, begin: str, work: Callable[[Rows], T]) -> T:
        with self._turn, named_errors(self.place):
            self._run(begin)
            try:
                answer = work(self._rows)
            except BaseException:
                if self._connection.in_transaction:
                    self._run("ROLLBACK")
                raise
            try:
                self._run("COMMIT")
            except apsw.Error as error:
                if self._connection.in_transaction:
                    self._run("ROLLBACK")
                raise StoreFailed(str(error)) from error
            return answer

    def close(self) -> None:
        """Close the connection."""
        with self._turn:
            self._connection.close()


class _Rows:
    """Statements by name. `Rows` says what each method does."""

    def __init__(self, connection: apsw.Connection, sql: dict[str, str]) -> None:
        self._connection = connection
        self._sql = sql

    def run(self, name: str, /, *args: Any) -> list[tuple[Any, ...]]:
        return self._connection.execute(self._sql[name], args).fetchall()

    def each(self, name: str, rows: Collection[tuple[Any, ...]], /) -> None:
        self._connection.executemany(self._sql[name], rows)
