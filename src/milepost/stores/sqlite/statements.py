"""Runs the named statements of the embedded store."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from milepost.stores.sqlite.connection import SQL, named_errors
from milepost.stores.statements import Recount

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import apsw


class SqliteStatements:
    """Statements through one connection. `Statements` says what each of them does."""

    __slots__ = ("_connection", "_execute", "_executemany")

    def __init__(self, connection: apsw.Connection) -> None:
        cursor = connection.cursor()  # one for all: to make one for each statement costs a third of it
        self._connection = connection
        self._execute = cursor.execute
        self._executemany = cursor.executemany

    def run(self, name: str, /, *args: Any) -> list[Any]:
        """Run a statement and return its rows."""
        return self._execute(SQL[name], args).fetchall()

    def do(self, name: str, /, *args: Any) -> None:
        """Run a statement whose answer nobody needs."""
        self._execute(SQL[name], args).fetchall()

    def many(self, name: str, rows: Collection[Any], /) -> int:
        """Run a statement for each row; return how many rows were changed."""
        before = self._connection.total_changes()
        self._executemany(SQL[name], rows)
        return self._connection.total_changes() - before

    def each(self, name: str, rows: Collection[Any], /) -> None:
        """Run a statement for each row. Raises Recount where one of them changed nothing."""
        if self.many(name, rows) != len(rows):
            raise Recount

    def changed(self, name: str, /, *args: Any) -> int:
        """Run a statement and return how many rows it changed."""
        before = self._connection.total_changes()
        self._execute(SQL[name], args).fetchall()
        return self._connection.total_changes() - before

    def add_up(self) -> None:
        """Do nothing: `each` has raised already."""

    def mark(self) -> None:
        """Begin a part that may be taken back."""
        self._execute("SAVEPOINT part").fetchall()

    def undo(self) -> None:
        """Take back what was written since the mark."""
        self._execute("ROLLBACK TO part").fetchall()
        self._execute("RELEASE part").fetchall()

    def keep(self) -> None:
        """Keep what was written since the mark."""
        self._execute("RELEASE part").fetchall()

    @contextmanager
    def instant(self) -> Iterator[None]:
        """Let everything that is read inside be as of one instant."""
        with self._connection:
            yield


class NamedStatements(SqliteStatements):
    """Statements that are read outside a batch: what SQLite raises is raised as our errors."""

    __slots__ = ("_place",)

    def __init__(self, connection: apsw.Connection, place: str) -> None:
        super().__init__(connection)
        self._place = place

    def run(self, name: str, /, *args: Any) -> list[Any]:
        """Run a statement and return its rows."""
        with named_errors(self._place):
            return super().run(name, *args)
