"""The transaction that a `transactional` tool sees: the store's own, denied the store's own tables.

The tool's statements and its outcome commit together, so its effect can never be unknown. What it may not do: touch a
table whose name begins with `mp_`, begin or end a transaction, attach files, or change pragmas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import apsw

from milepost.errors import Rejected

if TYPE_CHECKING:
    from collections.abc import Sequence

_TABLE_FIRST = {
    apsw.SQLITE_INSERT,
    apsw.SQLITE_UPDATE,
    apsw.SQLITE_DELETE,
    apsw.SQLITE_READ,
    apsw.SQLITE_CREATE_TABLE,
    apsw.SQLITE_DROP_TABLE,
}
_TABLE_SECOND = {
    apsw.SQLITE_ALTER_TABLE,
    apsw.SQLITE_CREATE_INDEX,
    apsw.SQLITE_CREATE_TRIGGER,
    apsw.SQLITE_DROP_INDEX,
    apsw.SQLITE_DROP_TRIGGER,
}
_NEVER = {
    apsw.SQLITE_TRANSACTION,
    apsw.SQLITE_SAVEPOINT,
    apsw.SQLITE_ATTACH,
    apsw.SQLITE_DETACH,
    apsw.SQLITE_PRAGMA,
}


def _authorize(
    operation: int, first: str | None, second: str | None, _database: str | None, _trigger: str | None
) -> int:
    table = first if operation in _TABLE_FIRST else second if operation in _TABLE_SECOND else None
    if operation in _NEVER or (table is not None and table.lower().startswith("mp_")):
        return apsw.SQLITE_DENY
    return apsw.SQLITE_OK


class GuardedTx:
    """What a transactional tool gets as its first parameter. It is dead once the tool has returned."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection: apsw.Connection | None = connection

    def execute(self, sql: str, args: Sequence[Any] = (), /) -> list[tuple[Any, ...]]:
        """Run one statement inside the run's own transaction and return its rows.

        Raises Rejected for a statement that reaches for the store's own tables or for the transaction itself, and
        apsw's own errors for anything that SQLite refuses; either way nothing of the tool is kept.
        """
        if self._connection is None:
            msg = "the transaction ended when the tool returned"
            raise Rejected(msg)
        self._connection.authorizer = _authorize
        try:
            return [tuple(row) for row in self._connection.execute(sql, tuple(args)).fetchall()]
        except apsw.AuthError as error:
            msg = f"not allowed inside a transactional tool: {sql.strip().splitlines()[0][:120]}"
            raise Rejected(msg) from error
        finally:
            self._connection.authorizer = None

    def end(self) -> None:
        """Make every later use fail."""
        self._connection = None
