"""How a batch begins: its locks, and with them all that most batches have to know, in one round trip.

The statements go to the server in one text. Each of them sees what was committed when it begins, so whatever is read
behind the locks is what stands while they are held.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg

from milepost.stores.postgres.connection import GATE, LIMITS, SQL

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from milepost.stores.postgres.connection import Connection

ALWAYS_KNOWN = ("stops", "ceilings", "anybody_waits")


@dataclass(slots=True)
class Begun:
    """A transaction that holds its locks: its number, the first row it may write, and what stands."""

    xid: str
    first_row: int
    now: int
    epochs: dict[int, int]
    known: dict[str, list[Any]]


def begin(
    connection: Connection, numbers: Collection[int], ids: Collection[str], *, shared: bool, durable: bool
) -> Begun:
    """Begin a transaction, lock the gate and the heads of these runs, and read what stands."""
    cursor = psycopg.Cursor(connection)
    cursor.execute(_text(connection, numbers, ids, shared=shared, durable=durable), prepare=False)
    answers: list[list[Any]] = []
    while True:
        if cursor.description is not None:
            answers.append(cursor.fetchall())
        if not cursor.nextset():
            break
    _, epochs, ((xid, row, now),), *known = answers
    return Begun(xid, row, now, dict(epochs), dict(zip(ALWAYS_KNOWN, known, strict=True)))


def _text(
    connection: Connection, numbers: Collection[int], ids: Collection[str], *, shared: bool, durable: bool
) -> bytes:
    gate = SQL["share_gate" if shared else "lock_gate"].replace(b"{}", b"%d" % GATE)
    parts = [
        f"BEGIN; {LIMITS}; SET LOCAL synchronous_commit = {'on' if durable else 'off'}".encode(),
        gate,
        _heads(connection, sorted(numbers), sorted(ids)),
        SQL["batch"],
        *(SQL[name] for name in ALWAYS_KNOWN),
    ]
    return b"; ".join(parts)


def _heads(connection: Connection, numbers: Sequence[int], ids: Sequence[str]) -> bytes:
    named = b"ARRAY[" + b",".join(b"%d" % number for number in numbers) + b"]::bigint[]"
    if ids:
        # Quoted by libpq: a text that holds several statements can have no parameters.
        quoted = ",".join(psycopg.sql.quote(id_.replace("\0", "\u2400"), connection) for id_ in ids)
        named = b"(" + named + b" || " + SQL["runs_named"].replace(b"{}", quoted.encode()) + b")"
    return SQL["lock_heads"].replace(b"{}", named)
