"""Empty stores on a server, used by one test after another: to make one anew takes twenty times as long.

What a test leaves is taken out: its connections, its rows, its own tables, what the sequences have counted. What the
tables are, with their triggers, functions, constraints and rights, is read before the first test and compared after
each: a database in which a test has changed any of that is dropped, and the next test gets a new one. So what a test
finds is what it would find in a store that was made for it, under an id that no other store has had.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import LiteralString

import psycopg

from milepost.stores.postgres.connection import address
from milepost.stores.postgres.schema import Schema
from tests.servers.postgres import Postgres

# A digest of everything of the database that is no row of a table: one line each.
SHAPE: LiteralString = """
SELECT md5(string_agg(line, chr(10) ORDER BY line)) FROM (
SELECT concat_ws(' ', 'relation', relname, relkind, relowner, relacl, relrowsecurity, reloptions) AS line
FROM pg_class WHERE relnamespace = 'public'::regnamespace
UNION ALL SELECT concat_ws(' ', 'column', attrelid::regclass, attname, atttypid, attnotnull, attidentity, attacl,
    pg_get_expr(adbin, adrelid))
FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
WHERE relnamespace = 'public'::regnamespace AND attnum > 0 AND NOT attisdropped
UNION ALL SELECT concat_ws(' ', 'trigger', tgenabled, pg_get_triggerdef(pg_trigger.oid))
FROM pg_trigger WHERE NOT tgisinternal
UNION ALL SELECT concat_ws(' ', 'index', indexdef) FROM pg_indexes WHERE schemaname = 'public'
UNION ALL SELECT concat_ws(' ', 'constraint', conrelid::regclass, conname, pg_get_constraintdef(oid))
FROM pg_constraint WHERE connamespace = 'public'::regnamespace
UNION ALL SELECT concat_ws(' ', 'function', oid::regprocedure, prosecdef, proowner, proacl, proconfig, prosrc)
FROM pg_proc WHERE pronamespace = 'public'::regnamespace
UNION ALL SELECT concat_ws(' ', 'comment', objoid::regclass, objsubid, description)
FROM pg_description WHERE objoid IN (SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace)
UNION ALL SELECT concat_ws(' ', 'schema', nspname, nspowner, nspacl)
FROM pg_namespace WHERE nspname !~ '^pg_(toast_)?temp_'
UNION ALL SELECT concat_ws(' ', 'setting', setrole, setconfig)
FROM pg_db_role_setting WHERE setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database())
UNION ALL SELECT concat_ws(' ', 'database', datdba, datacl, datconnlimit, datallowconn)
FROM pg_database WHERE datname = current_database()
UNION ALL SELECT concat_ws(' ', 'prepared', gid) FROM pg_prepared_xacts WHERE database = current_database()
) AS lines
"""
TABLES: LiteralString = "SELECT format('%I', tablename) FROM pg_tables WHERE schemaname = 'public' ORDER BY 1"
SEQUENCES: LiteralString = """
SELECT setval(seqrelid, seqstart, false) FROM pg_sequence JOIN pg_class ON pg_class.oid = seqrelid
WHERE relnamespace = 'public'::regnamespace
"""
# Waits until they are gone: none of them holds a lock or writes once this has been answered.
OTHERS: LiteralString = """
SELECT pg_terminate_backend(pid, 20000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""
# Triggers of the kind ALWAYS refuse to forget a record even in this role; they are put to sleep and woken by name.
ALWAYS: LiteralString = """
SELECT format('ALTER TABLE %s DISABLE TRIGGER %I', tgrelid::regclass, tgname),
    format('ALTER TABLE %s ENABLE ALWAYS TRIGGER %I', tgrelid::regclass, tgname)
FROM pg_trigger WHERE tgenabled = 'A' AND NOT tgisinternal AND tgtype & 8 = 8 AND tgtype & 32 = 0
"""


@dataclass(frozen=True)
class Fresh:
    """What an empty store is: its shape, its tables, the statements that empty it, and the rows that it begins with."""

    shape: list[tuple[object, ...]]
    tables: set[str]
    emptying: bytes
    rows: dict[str, list[tuple[object, ...]]]


class EmptyStores:
    """The empty stores of one server. `prepare` is called with each that is made, to make more of it than tables."""

    def __init__(self, server: Postgres, prepare: Callable[[Schema], None] | None = None) -> None:
        self._server = server
        self._prepare = prepare
        self._free: list[str] = []
        self._fresh: dict[str, Fresh] = {}

    def take(self) -> str:
        """Return the name of a database with an empty store, which nobody else has until it is given back."""
        if self._free:
            return self._free.pop()
        name = self._server.create_database()
        with closing(Schema(address(self._server.url(name)))) as schema:
            schema.create()
            if self._prepare is not None:
                self._prepare(schema)
        with psycopg.connect(self._server.url(name), autocommit=True) as connection:
            self._fresh[name] = fresh(connection)
        return name

    def give_back(self, name: str) -> None:
        """Empty a store for the next who takes one; drop it where it is no longer what it was."""
        try:
            with psycopg.connect(self._server.url(name), autocommit=True) as connection:
                usable = emptied(connection, self._fresh[name])
        except psycopg.Error:
            usable = False
        if usable:
            self._free.append(name)
        else:
            del self._fresh[name]
            self._server.drop_database(name)


def fresh(connection: psycopg.Connection) -> Fresh:
    """Read what an empty store is."""
    tables = [str(name) for (name,) in connection.execute(TABLES).fetchall()]
    rows = {name: connection.execute(f"TABLE {name}".encode()).fetchall() for name in tables}
    sleep, wake = zip(*connection.execute(ALWAYS).fetchall(), strict=True)
    deletes = [f"DELETE FROM {name}" for name in tables]  # noqa: S608  names that the database has quoted
    statements = ["BEGIN", "SET LOCAL session_replication_role = replica", *sleep, *deletes, *wake, "COMMIT"]
    return Fresh(
        connection.execute(SHAPE).fetchall(),
        set(tables),
        "; ".join(map(str, statements)).encode(),
        {name: found for name, found in rows.items() if found},
    )


def emptied(connection: psycopg.Connection, was: Fresh) -> bool:
    """Take out of a store what a test has left; return whether it is again what it was."""
    connection.execute(OTHERS)
    for (name,) in connection.execute(TABLES).fetchall():
        if name not in was.tables:
            connection.execute(f"DROP TABLE {name} CASCADE".encode())
    if connection.execute(SHAPE).fetchall() != was.shape:
        return False  # before the triggers are touched: waking them would put right what a test has put to sleep
    connection.execute(was.emptying)
    for name, rows in was.rows.items():
        places = ", ".join(["%s"] * len(rows[0]))
        with connection.cursor() as cursor:
            cursor.executemany(f"INSERT INTO {name} VALUES ({places})".encode(), rows)  # noqa: S608  quoted, too
    connection.execute("UPDATE mp_meta SET value = %s WHERE name = 'store_id'", [secrets.token_hex(16)])
    connection.execute(SEQUENCES)
    return connection.execute(SHAPE).fetchall() == was.shape
