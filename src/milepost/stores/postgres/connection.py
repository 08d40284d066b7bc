"""Connections to a PostgreSQL database, its schema, and the names of what may go wrong with them.

A pooler may stand between us and the server. Behind one that hands out a server connection for each transaction,
nothing may outlive a transaction: no prepared statement, no setting of the session, no LISTEN, no lock of the session.
So each transaction sets what it needs for itself. A pooler gives itself away: the process number that a connection was
greeted with is not that of the process which answers. Only where it is the same, statements are prepared.
"""

from __future__ import annotations

import secrets
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.string import StrDumper

from milepost.errors import NotAStore, StoreBusy, StoreError, StoreFailed, StoreMissing, StoreUnreachable
from milepost.stores import named_sql
from milepost.stores.migrate import known, pending
from milepost.stores.places import place_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    Connection = psycopg.Connection[tuple[Any, ...]]

SQL = {
    name: text.encode()
    for name, text in named_sql.load(
        "milepost.stores.postgres",
        "writing.sql",
        "stopping.sql",
        "reading.sql",
        "keeping.sql",
        "pools.sql",
        "fleet.sql",
        "asking.sql",
    ).items()
}
MIGRATIONS = known("milepost.stores.postgres.migrations")
OLDEST = 15
GATE = 7_812_722_301  # the advisory lock of this store's batches: shared by most, held alone by what concerns them all
MIGRATING = GATE + 1
CONNECT_S = 10
# A peer that is gone without a word is noticed within about fifteen seconds, on either side of a silent network.
STEADY: dict[str, Any] = {
    "connect_timeout": CONNECT_S,
    "keepalives_idle": 5,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
    "application_name": "milepost",
}
# What each transaction sets for itself. A process that is frozen inside one must not hold its locks for ever.
LIMITS = (
    "SET LOCAL lock_timeout = '20s'; SET LOCAL statement_timeout = '60s'; "
    "SET LOCAL idle_in_transaction_session_timeout = '20s'"
)
PREPARE_AFTER = 1


class PlainText(StrDumper):
    """Texts as PostgreSQL takes them: it has no NUL, which is shown by its symbol instead."""

    def dump(self, obj: str) -> Any:
        """Return the bytes of a text."""
        return super().dump(obj.replace("\0", "\u2400") if "\0" in obj else obj)


@dataclass(frozen=True, slots=True)
class Address:
    """Where a store is: `conninfo` to connect with, and `place`, which holds no password and may be shown."""

    conninfo: str
    place: str


def address(url: str) -> Address:
    """Return what a URL names. Raises StoreError where it is none that libpq understands."""
    try:
        said = conninfo_to_dict(url)
    except psycopg.Error:  # what libpq says of it may hold the password
        why = f"{place_of(url)} is no address of a database. Write it like postgresql://user@host/database"
        raise StoreError(why) from None
    return Address(make_conninfo("", **{**STEADY, **said}), place_of(url))


def connect(where: Address) -> Connection:
    """Open a connection. Raises StoreUnreachable and its kin."""
    try:
        connection: Connection = psycopg.connect(where.conninfo, autocommit=True, prepare_threshold=None)
    except psycopg.Error as error:
        raise unreachable(where.place, str(error)) from error
    connection.adapters.register_dumper(str, PlainText)
    return connection


def settle(connection: Connection, where: Address) -> None:
    """Find out how statements may be sent, and whether the server is one that we know. Raises StoreError."""
    with named_errors(where.place):
        version = connection.info.server_version // 10_000
        if version < OLDEST:
            why = f"{where.place} is served by PostgreSQL {version}; {OLDEST} is the oldest that Milepost runs on."
            raise StoreError(why)
        (pid,) = connection.execute(SQL["backend"]).fetchone() or (0,)
        direct = pid == connection.info.backend_pid
        connection.prepare_threshold = PREPARE_AFTER if direct else None


def unreachable(place: str, said: str) -> StoreUnreachable:
    """Return our error for a connection that did not come about."""
    found = " ".join(said.split())
    lowered = found.lower()
    if "password" in lowered or "authentication failed" in lowered or "no pg_hba.conf entry" in lowered:
        return StoreUnreachable(place, "login", found)
    if "too many" in lowered or "remaining connection slots" in lowered or "no more connections allowed" in lowered:
        return StoreUnreachable(place, "exhausted", found)
    if "does not exist" in lowered and "database" in lowered:
        return StoreUnreachable(place, "database", found)
    return StoreUnreachable(place, "away", found)


def named(place: str, error: psycopg.Error) -> StoreError:
    """Return our error for what PostgreSQL refused. Where it is StoreBusy nothing was written."""
    state = error.sqlstate or ""
    if state in {"40001", "40P01", "55P03", "57014", "25P03"}:
        return StoreBusy(place)
    if state == "42501":
        why = f"{place}: {_first(error)}. Give this role the grants of `milepost db roles`, or use one that has them."
        return StoreError(why)
    if state == "42P01":
        return NotAStore(place, f"a table is missing ({_first(error)})")
    if isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)) and state[:2] in {"", "08", "57", "53"}:
        return StoreUnreachable(place, "away", _first(error))
    return StoreFailed(_first(error))


def _first(error: psycopg.Error) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


@contextmanager
def named_errors(place: str) -> Iterator[None]:
    """Turn what psycopg raises into our errors."""
    try:
        yield
    except psycopg.Error as error:
        raise named(place, error) from error


# ---------------------------------------------------------------- the schema


def prepare(connection: Connection, place: str, *, create: bool) -> str:
    """Bring the schema up to date and return the store's id. Changes nothing where it raises.

    Raises StoreMissing where there is none and none is to be made, NewerSchema, NotAStore.
    """
    with named_errors(place):
        if _one(connection, "is_store"):
            if not pending(place, MIGRATIONS, applied(connection)):
                return str(_one(connection, "get_meta", "store_id"))
        elif not create:
            raise StoreMissing(place)
        with connection.transaction():
            connection.execute(LIMITS)
            connection.execute(SQL["lock_gate"].replace(b"{}", b"%d" % MIGRATING))
            _migrate(connection, place)
        return str(_one(connection, "get_meta", "store_id"))


def applied(connection: Connection) -> list[tuple[int, str, str]]:
    """Return what was applied to a store, by number."""
    return [(row[0], row[1], row[2]) for row in _rows(connection, "migrations")]


def _migrate(connection: Connection, place: str) -> None:
    if not _one(connection, "is_store"):
        _rows(connection, "create_migrations")
    now = time.time_ns() // 1_000_000
    for migration in pending(place, MIGRATIONS, applied(connection)):
        connection.execute(migration.sql.encode(), prepare=False)
        _rows(connection, "insert_migration", migration.number, migration.name, migration.checksum, now)
    if _one(connection, "get_meta", "store_id") is None:
        _rows(connection, "put_meta", "store_id", secrets.token_hex(16))


def _rows(connection: Connection, name: str, *args: Any) -> list[tuple[Any, ...]]:
    cursor = psycopg.RawCursor(connection)
    cursor.execute(SQL[name], args, prepare=False)
    return cursor.fetchall() if cursor.description else []


def _one(connection: Connection, name: str, *args: Any) -> Any:
    rows = _rows(connection, name, *args)
    return rows[0][0] if rows else None
