"""Connections to a PostgreSQL database, its schema, and the names of what may go wrong with them.

A pooler may stand between us and the server. Behind one that hands out a server connection for each transaction,
nothing may outlive a transaction: no prepared statement, no setting of the session, no LISTEN, no lock of the session.
So each transaction sets what it needs for itself. A pooler gives itself away: the process number that a connection was
greeted with is not that of the process which answers. Only where it is the same, statements are prepared.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.string import StrDumper

from milepost.errors import NotAStore, NotPermitted, StoreBusy, StoreError, StoreFailed, StoreUnreachable
from milepost.stores import named_sql
from milepost.stores.migrate import known
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
    "SET LOCAL idle_in_transaction_session_timeout = '20s'; "
    f"SET LOCAL milepost.knows = '{len(MIGRATIONS)}'"
)
# What is written names its rows by their keys. Plans are made once, whatever the tables held at that time, and have to
# be right for a store of any size.
PLANS = (
    "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_hashjoin = off; "
    "SET enable_mergejoin = off; SET jit = off"
)
# What is read is not always named by keys. But a plan that was made while a table was small is kept until the server
# has counted it anew, and reads it from end to end meanwhile, however it grows.
BY_INDEX = "SET enable_seqscan = off"
# Where no pooler stands between, once for the session.
SESSION = LIMITS.replace("LOCAL ", "") + "; SET synchronous_commit = on; " + PLANS
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
        return NotPermitted(f"{place}: {_first(error)}")
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
