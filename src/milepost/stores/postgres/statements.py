"""Runs the named statements of the PostgreSQL store.

Inside a batch they are sent down a pipeline: what nobody waits for an answer to travels with the next question, and at
last with the COMMIT. An error in any of them shows at the next answer; then the whole batch is rolled back, for no rule
rests on an error of the database.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.pq import Format

from milepost.stores.postgres.connection import SQL, named_errors
from milepost.stores.statements import Recount

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from psycopg import Pipeline

    from milepost.stores.postgres.connection import Connection

    Cursor = psycopg.RawCursor[tuple[Any, ...]]

# Statements over many rows that name a row of the table by these of their columns: for the same row they must follow
# each other, and one statement changes a row only once.
KEYS = {
    "settle_once": slice(2, 5),
    "renew_worker": slice(1, 2),
    "answer_approval": slice(2, 3),
    "release_run": slice(2, 3),
    "due_by_then": slice(1, 2),
    "due_only_then": slice(1, 2),
}


# Statements that take arrays although a rule writes one row with each of them: many may become one.
BULK = {"insert_run", "insert_head", "raise_epoch", "claim_run", "waits_no_more"}


class PostgresStatements:
    """Statements through one connection. `Statements` says what each of them does."""

    __slots__ = ("_connection", "_counted", "_pipeline", "known")

    def __init__(
        self, connection: Connection, pipeline: Pipeline | None = None, known: dict[str, list[Any]] | None = None
    ) -> None:
        self._connection = connection
        self._pipeline = pipeline
        self._counted: list[tuple[Cursor, int]] = []
        self.known = known or {}  # answers that came with the locks and still stand

    def _send(self, name: str, args: Sequence[Any]) -> Cursor:
        cursor: Cursor = psycopg.RawCursor(self._connection)
        cursor.format = Format.BINARY
        cursor.execute(SQL[name], args)
        return cursor

    def run(self, name: str, /, *args: Any) -> list[Any]:
        """Run a statement and return its rows."""
        if not args and (found := self.known.get(name)) is not None:
            return found
        self._changes(name)
        return self._send(name, args).fetchall()

    def do(self, name: str, /, *args: Any) -> None:
        """Send a statement whose answer nobody needs."""
        if name in BULK:
            self.many(name, [args])
            return
        self._changes(name)
        self._send(name, args)

    def many(self, name: str, rows: Collection[Any], /) -> int:
        """Send a statement for all rows; return how many there are, as none of their answers has come yet."""
        if not rows:
            return 0
        self._changes(name)
        for some in apart(rows, KEYS[name]) if name in KEYS and len(rows) > 1 else [rows]:
            self._send(name, [list(column) for column in zip(*some, strict=True)])
        return len(rows)

    def each(self, name: str, rows: Collection[Any], /) -> None:
        """Send a statement that must change one row of the table for each of these: `add_up` says whether it has."""
        cursor = self._send(name, [list(column) for column in zip(*rows, strict=True)])
        if name != "advance_head":  # the epochs of heads that are locked were compared already
            self._counted.append((cursor, len(rows)))

    def changed(self, name: str, /, *args: Any) -> int:
        """Run a statement and return how many rows it changed."""
        self._changes(name)
        return self._count(self._send(name, args))

    def _count(self, cursor: Cursor) -> int:
        if self._pipeline is not None:
            self._pipeline.sync()
        return cursor.rowcount

    def add_up(self) -> None:
        """Raise Recount where an `each` has not changed what it must."""
        counted, self._counted = self._counted, []
        for cursor, expected in counted:
            if self._count(cursor) != expected:
                raise Recount

    def mark(self) -> None:
        """Begin a part that may be taken back."""
        self._connection.execute("SAVEPOINT part")

    def undo(self) -> None:
        """Take back what was written since the mark."""
        self._counted.clear()
        self.known.clear()
        self._connection.execute("ROLLBACK TO SAVEPOINT part")
        self._connection.execute("RELEASE SAVEPOINT part")

    def keep(self) -> None:
        """Keep what was written since the mark."""
        self._connection.execute("RELEASE SAVEPOINT part")

    def _changes(self, name: str) -> None:
        if self.known and (known := CHANGES.get(name)) is not None:
            self.known.pop(known, None)

    @contextmanager
    def instant(self) -> Iterator[None]:
        """Let everything that is read inside be as of one instant."""
        self._connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            yield
        except BaseException:
            try:
                self._connection.execute("ROLLBACK")
            except psycopg.Error:  # it broke, and what was raised says so
                self._connection.close()
            raise
        self._connection.execute("COMMIT")


# Which of the answers that came with the locks does a statement make stale?
CHANGES = {
    **dict.fromkeys(("set_switch", "lift_switch", "put_breaker", "drop_breaker"), "stops"),
    **dict.fromkeys(("wait_for",), "anybody_waits"),
    **dict.fromkeys(("set_ceiling", "lift_ceiling"), "ceilings"),
}


class NamedStatements(PostgresStatements):
    """Statements that are read outside a batch: what psycopg raises is raised as our errors."""

    __slots__ = ("_place",)

    def __init__(self, connection: Connection, place: str) -> None:
        super().__init__(connection)
        self._place = place

    def run(self, name: str, /, *args: Any) -> list[Any]:
        """Run a statement and return its rows."""
        with named_errors(self._place):
            return super().run(name, *args)

    @contextmanager
    def instant(self) -> Iterator[None]:
        """Let everything that is read inside be as of one instant."""
        with named_errors(self._place), super().instant():
            yield


def apart(rows: Collection[Any], key: slice) -> list[list[Any]]:
    """Return the rows in order, in as few groups as it takes that no row of a table is named twice in one."""
    groups: list[list[Any]] = []
    seen: set[Any] = set()
    for row in rows:
        named = row[key]
        if not groups or named in seen:
            groups.append([])
            seen = set()
        seen.add(named)
        groups[-1].append(row)
    return groups
