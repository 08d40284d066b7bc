"""Whether a database stands as a store needs it: what `milepost doctor` and `milepost verify` ask of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg

from milepost.stores.api import Check
from milepost.stores.health import clock, latest
from milepost.stores.postgres.connection import OLDEST, SQL
from milepost.stores.postgres.schema import migrated
from milepost.stores.postgres.statements import PostgresStatements

if TYPE_CHECKING:
    from milepost.stores.postgres.connection import Connection

# What durability rests on, where a setting other than this loses what was promised.
DURABLE = {
    "fsync": ({"on"}, "set fsync = on: without it a power cut loses commits, or all of it"),
    "full_page_writes": ({"on"}, "set full_page_writes = on, unless the disk writes pages whole"),
    "synchronous_commit": (
        {"on", "remote_apply", "remote_write", "local"},
        "each commit that counts sets it on for itself; set it for others, too",
    ),
}
CROWDED = 0.9


def checks(connection: Connection, now: int) -> list[Check]:
    """Return what durability and order rest on, as it is. `now` is in milliseconds since 1970."""
    version = connection.info.server_version
    named = f"PostgreSQL {version // 10_000}.{version % 10_000}"
    settings = {name: str(_row(connection, f"SHOW {name}".encode())[0]) for name in DURABLE}
    (off,) = _row(connection, SQL["triggers_off"])
    open_, most = _row(connection, SQL["connections"])
    return [
        Check("server", version >= OLDEST * 10_000, named, f"use PostgreSQL {OLDEST} or later"),
        *(Check(name, settings[name] in good, settings[name], todo) for name, (good, todo) in DURABLE.items()),
        migrated(connection),
        Check("triggers", not off, f"{off} that keep the record are off", "let them fire again: each ALWAYS"),
        Check("connections", open_ < most * CROWDED, f"{open_} of {most}", "run fewer workers, or put a pooler there"),
        clock(latest(PostgresStatements(connection)), now),
    ]


def pages(connection: Connection) -> Check:
    """Read every row of every table and say whether that can be done."""
    found = "ok"
    try:
        for (name,) in connection.execute(SQL["our_tables"], prepare=False).fetchall():
            connection.execute(
                psycopg.sql.SQL(SQL["read_all"].decode()).format(psycopg.sql.Identifier(name)),
                prepare=False,
            )
    except psycopg.Error as error:
        found = str(error).splitlines()[0]
    return Check("pages", found == "ok", found, "keep the database as it is, and restore a backup")


def _row(connection: Connection, sql: bytes) -> Any:
    return connection.execute(sql, prepare=False).fetchone() or (None,)
