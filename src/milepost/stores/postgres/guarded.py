"""The transaction that a `transactional` tool sees: the store's own, denied the store's own tables.

The tool's statements and its outcome commit together, so its effect can never be unknown. What it may not do: name
anything that begins with `mp_` or `milepost_`, begin or end a transaction, change a setting or a role, or run code that
builds SQL by itself (DO, CALL, EXECUTE, and functions that take SQL as text).

PostgreSQL has no hook that says what a statement reaches for, so this is a look at its words. It stops mistakes, not a
tool that means harm: code in this process could open a connection of its own. The wall against that is a role: give
workers the grants of `milepost db roles`, and they can change nothing that is written, by whatever statement.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import psycopg

from milepost.errors import Rejected

if TYPE_CHECKING:
    from collections.abc import Sequence

    from psycopg import Pipeline

    from milepost.stores.postgres.connection import Connection

_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_BEGINS = re.compile(r"\s*\(*\s*(\w+)")
_MAY_BEGIN = frozenset(
    {"alter", "create", "delete", "drop", "insert", "merge", "select", "table", "truncate", "update", "values", "with"}
)
_NEVER = re.compile(
    r"""(?<![a-z0-9_])(
        mp_\w* | milepost_\w* |
        u&\s*["'] | set_config | current_setting | pg_notify | pg_advisory\w* | pg_terminate_backend |
        pg_cancel_backend | \w+_to_xml\w* | ts_stat | crosstab\w* | dblink\w* | lo_\w+ | execute
    )(?![a-z0-9_])""",
    re.VERBOSE,
)
# What would outlive the transaction unseen, or run later as somebody else.
_OUTLIVES = re.compile(
    r"""\s*create\s+(or\s+replace\s+)?((global|local)\s+)?(
        temp | temporary | function | procedure | rule | extension | role | user | trigger | event
    )\b""",
    re.VERBOSE,
)


class GuardedTx:
    """What a transactional tool gets as its first parameter. It is dead once the tool has returned."""

    def __init__(self, connection: Connection, pipeline: Pipeline) -> None:
        self._connection: Connection | None = connection
        self._pipeline = pipeline

    def execute(self, sql: str, args: Sequence[Any] = (), /) -> list[tuple[Any, ...]]:
        """Run one statement inside the run's own transaction and return its rows; parameters are written $1, $2.

        Raises Rejected for a statement that reaches for the store's own tables or for the transaction itself, and
        psycopg's own errors for anything that PostgreSQL refuses; either way nothing of the tool is kept.
        """
        if self._connection is None:
            msg = "the transaction ended when the tool returned"
            raise Rejected(msg)
        if not allowed(sql):
            msg = (
                f"not allowed inside a transactional tool: {sql.strip().splitlines()[0][:120] if sql.strip() else sql}"
            )
            raise Rejected(msg)
        self._connection.execute("SAVEPOINT statement")
        cursor: psycopg.RawCursor[tuple[Any, ...]] = psycopg.RawCursor(self._connection)
        try:
            # As binary it is sent by the extended protocol, which takes one statement and no more.
            cursor.execute(sql.encode(), tuple(args), prepare=False, binary=True)
            self._pipeline.sync()
            rows = cursor.fetchall() if cursor.description else []
        except psycopg.Error:
            self._connection.execute("ROLLBACK TO SAVEPOINT statement")
            raise
        self._connection.execute("RELEASE SAVEPOINT statement")
        return rows

    def end(self) -> None:
        """Make every later use fail."""
        self._connection = None


def allowed(sql: str) -> bool:
    """Say whether a statement may run inside a transactional tool."""
    plain = _COMMENT.sub(" ", sql).lower()
    begins = _BEGINS.match(plain)
    if begins is None or begins[1] not in _MAY_BEGIN or _OUTLIVES.match(plain):
        return False
    return _NEVER.search(plain) is None
