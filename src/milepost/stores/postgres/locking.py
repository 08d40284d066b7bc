"""How a batch begins: its locks, and with them all that most batches have to know, in one round trip.

The statements go to the server in one text. Each of them sees what was committed when it begins, so whatever is read
behind the locks is what stands while they are held.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg

from milepost.stores.api import Append
from milepost.stores.postgres.batching import WireStatements
from milepost.stores.postgres.connection import GATE, LIMITS, SQL
from milepost.stores.postgres.foreseeing import Foreseen

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from milepost.stores.api import Operation
    from milepost.stores.postgres.connection import Connection
    from milepost.stores.postgres.wire import Wire

ALWAYS_KNOWN = ("stops", "ceilings", "anybody_waits")


@dataclass(slots=True)
class Begun:
    """A transaction that holds its locks: its number, the first row it may write, and what stands.

    `ahead` is a row for the next batch, which may then be sent without asking for one.
    """

    xid: str
    first_row: int
    now: int
    ahead: int
    epochs: dict[int, int]
    known: dict[str, list[Any]]


def charged(operations: Sequence[Operation]) -> list[str]:
    """Return the pools whose budgets a batch reads and changes: it holds a lock for each, behind those of its heads."""
    pools: set[str] = set()
    for one in operations:
        if type(one) is Append:
            if one.reserve is not None:
                pools.update(one.reserve.pools)
            for settled in one.spent:
                pools.update(settled.pools)
    return sorted(pools)


def _needed(operations: Sequence[Operation]) -> list[str]:
    """Return what a batch will look at; what it looks at after all is asked then."""
    appends = [one for one in operations if type(one) is Append]
    needed = ["stops"]
    if any(one.reserve is not None or one.spent for one in appends):
        needed.append("ceilings")
    if any(one.once_settled for one in appends):
        needed.append("anybody_waits")
    return needed


def begin(
    connection: Connection,
    numbers: Collection[int],
    ids: Collection[str],
    pools: Sequence[str] = (),
    *,
    shared: bool,
    durable: bool,
) -> Begun:
    """Begin a transaction, lock the gate and the heads of these runs, and read what stands."""
    cursor = psycopg.Cursor(connection)
    cursor.execute(_text(connection, numbers, ids, pools, shared=shared, durable=durable), prepare=False)
    answers: list[list[Any]] = []
    while True:
        if cursor.description is not None:
            answers.append(cursor.fetchall())
        if not cursor.nextset():
            break
    _, epochs, _, ((xid, row, now, ahead),), *known = answers
    return Begun(xid, row, now, ahead, dict(epochs), dict(zip(ALWAYS_KNOWN, known, strict=True)))


def begin_on(
    wire: Wire, numbers: Collection[int], ids: Collection[str], operations: Sequence[Operation], *, shared: bool
) -> tuple[Begun, WireStatements]:
    """Do the same on the wire, whose connection has the settings for its session, and foresee what will be asked."""
    wire.send("begin")
    wire.send("gate_together" if shared else "gate_alone", (GATE,))
    heads = wire.send("lock_all_heads", (sorted(numbers), sorted(ids)))
    if pools := charged(operations):
        wire.send("lock_pools", (pools,))
    batch = wire.send("batch")
    always = {name: wire.send(name) for name in _needed(operations)}
    foreseen = Foreseen()
    foreseen.ask(wire, operations)
    epochs = wire.rows("lock_all_heads", heads)
    ((xid, row, now, ahead),) = wire.rows("batch", batch)
    known = {name: wire.rows(name, number) for name, number in always.items()}
    sql = WireStatements(wire, known)
    foreseen.tell(wire, sql)
    return Begun(xid, row, now, ahead, dict(epochs), known), sql


def _text(
    connection: Connection,
    numbers: Collection[int],
    ids: Collection[str],
    pools: Sequence[str],
    *,
    shared: bool,
    durable: bool,
) -> bytes:
    gate = SQL["share_gate" if shared else "lock_gate"].replace(b"{}", b"%d" % GATE)
    parts = [
        f"BEGIN; {LIMITS}; SET LOCAL synchronous_commit = {'on' if durable else 'off'}".encode(),
        gate,
        _heads(connection, sorted(numbers), sorted(ids)),
        SQL["lock_pools"].replace(b"$1", b"ARRAY[" + _quoted(connection, pools) + b"]"),
        SQL["batch"],
        *(SQL[name] for name in ALWAYS_KNOWN),
    ]
    return b"; ".join(parts)


def _heads(connection: Connection, numbers: Sequence[int], ids: Sequence[str]) -> bytes:
    named = b"ARRAY[" + b",".join(b"%d" % number for number in numbers) + b"]::bigint[]"
    if ids:
        named = b"(" + named + b" || " + SQL["runs_named"].replace(b"{}", _quoted(connection, ids)) + b")"
    return SQL["lock_heads"].replace(b"{}", named)


def _quoted(connection: Connection, texts: Sequence[str]) -> bytes:
    """Return texts as literals, quoted by libpq: what holds several statements can have no parameters."""
    return ",".join(psycopg.sql.quote(text.replace("\0", "\u2400"), connection) for text in texts).encode()
