"""The transaction that a `transactional` tool sees: the store's own, denied the store's own tables.

The tool's statements and its outcome commit together, so its effect can never be unknown. What it may not do: touch or
make anything whose name begins with `mp_` or `milepost_`, make temporary things (they outlive the transaction, and hide
what has the same name), begin or end a transaction, attach files, or change pragmas. What no authorizer sees is a
conflict clause that rolls the whole transaction back: the batch is then written again without that tool.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import apsw

from milepost.errors import Rejected

if TYPE_CHECKING:
    from collections.abc import Sequence

OURS = ("mp_", "milepost_")  # the store's own tables, and those of surfaces beside them
_COLUMN_SECOND = {apsw.SQLITE_READ, apsw.SQLITE_UPDATE}
_NEVER = {
    apsw.SQLITE_CREATE_TEMP_INDEX,
    apsw.SQLITE_CREATE_TEMP_TABLE,
    apsw.SQLITE_CREATE_TEMP_TRIGGER,
    apsw.SQLITE_CREATE_TEMP_VIEW,
    apsw.SQLITE_TRANSACTION,
    apsw.SQLITE_SAVEPOINT,
    apsw.SQLITE_ATTACH,
    apsw.SQLITE_DETACH,
    apsw.SQLITE_PRAGMA,
}


def _authorize(
    operation: int, first: str | None, second: str | None, _database: str | None, _trigger: str | None
) -> int:
    names = (first,) if operation in _COLUMN_SECOND else (first, second)
    ours = any(name is not None and name.lower().startswith(OURS) for name in names)
    return apsw.SQLITE_DENY if ours or operation in _NEVER else apsw.SQLITE_OK


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
        if not self._connection.in_transaction:
            msg = "an earlier statement rolled the transaction back"
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
