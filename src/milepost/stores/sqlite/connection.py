"""Opening a store's file, and the names of what may go wrong with it.

apsw brings its own SQLite: releases 3.7.0 to 3.51.2 can corrupt a write-ahead log when two connections write and
checkpoint at the same instant (sqlite.org/wal.html), so an older library is refused. The file must never be opened by a
second SQLite library, nor by plain `open()`, in a process that has it open: closing any descriptor of it drops its
locks.
"""

from __future__ import annotations

import os
import secrets
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw

from milepost.errors import NotAStore, StoreBusy, StoreError, StoreFailed, StoreMissing, UnsafeLibrary
from milepost.stores import named_sql
from milepost.stores.migrate import known, pending

if TYPE_CHECKING:
    from collections.abc import Iterator

SQL = named_sql.load("milepost.stores.sqlite", "queries.sql", "keeping.sql", "pools.sql", "fleet.sql", "noting.sql")
MIGRATIONS = known("milepost.stores.sqlite.migrations")
OLDEST_SAFE = (3, 51, 3)
BUSY_MS = 10_000
TRY_AGAIN_S = 0.01
LOG_BYTES = 16 * 1024 * 1024
STATEMENTS = 256  # kept prepared: all that there are
CHECKPOINT_PAGES = 4_000  # as many as the extended log holds: a page that changes often is copied back less often
STORE_MODE = 0o600


def named(place: str, error: apsw.Error) -> StoreError:
    """Return our error for what SQLite raised."""
    match error:
        case apsw.NotADBError():
            return NotAStore(place, "it is no SQLite file")
        case apsw.CorruptError() | apsw.FormatError():
            return NotAStore(place, f"the file is damaged ({error})")
        case apsw.BusyError() | apsw.LockedError():
            return StoreBusy(place)
        case apsw.CantOpenError() if not Path(place).exists():
            return StoreMissing(place)
        case apsw.CantOpenError():
            why = f"{place} cannot be opened ({error}). Check the owner and mode of it and of its folder."
            return StoreError(why)
        case apsw.ReadOnlyError():
            return StoreError(f"{place} cannot be written: {error}. Check its owner and mode with: milepost doctor")
        case _:
            return StoreFailed(str(error))


@contextmanager
def named_errors(place: str) -> Iterator[None]:
    """Turn what SQLite raises into our errors."""
    try:
        yield
    except apsw.Error as error:
        raise named(place, error) from error


def check_library() -> None:
    """Raise UnsafeLibrary for a SQLite that can corrupt the log."""
    version = apsw.sqlite_lib_version()
    if tuple(int(part) for part in version.split(".")) < OLDEST_SAFE:
        raise UnsafeLibrary(version)


def connect(place: str, *, create: bool) -> apsw.Connection:
    """Open the file for writing and set what durability rests on. Raises StoreMissing, NotAStore, StoreBusy."""
    check_library()
    path = Path(place)
    if not path.exists() and not create:
        raise StoreMissing(place)
    if path.is_dir():
        raise NotAStore(place, "it is a folder")
    if not path.exists():
        if not path.parent.is_dir():
            why = f"the folder of {place} does not exist. Create it first, or check the path."
            raise StoreError(why)
        # Made private before SQLite opens it; O_EXCL loses a race to another creator harmlessly.
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, STORE_MODE))
    with named_errors(place):
        connection = apsw.Connection(place, flags=apsw.SQLITE_OPEN_READWRITE, statementcachesize=STATEMENTS)
        _steady(connection)
        if not create:
            _expect_store(connection, place)
        _settle(connection, place)
    return connection


def _steady(connection: apsw.Connection) -> None:
    connection.set_busy_timeout(BUSY_MS)
    # A plan does not depend on the values that are bound: else SQLite prepares some statements anew for each of them,
    # which takes longer than what they do.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)


def _expect_store(connection: apsw.Connection, place: str) -> None:
    """Raise NotAStore before anything is set: somebody else's file must not even get a write-ahead log from us."""
    if not _one(connection, SQL["is_store"]):
        empty = not _one(connection, SQL["tables"])
        raise NotAStore(place, "it is empty" if empty else "it is a SQLite file without Milepost's tables")


def _write_ahead(connection: apsw.Connection) -> object:
    """Turn the write-ahead log on. Of two that make a file at once SQLite refuses one without asking it to wait."""
    until = time.monotonic() + BUSY_MS / 1000
    while True:
        try:
            return _one(connection, "PRAGMA journal_mode = WAL")
        except apsw.BusyError:
            if time.monotonic() >= until:
                raise
            time.sleep(TRY_AGAIN_S)


def _settle(connection: apsw.Connection, place: str) -> None:
    mode = _write_ahead(connection)
    if mode != "wal":
        why = f"{place} cannot use a write-ahead log (journal mode is {mode}); is it on a network file system?"
        raise StoreError(why)
    for pragma in ("synchronous = FULL", "foreign_keys = ON", "trusted_schema = OFF", "cell_size_check = ON"):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}").fetchall()
    connection.execute("PRAGMA fullfsync = ON").fetchall()
    connection.execute("PRAGMA checkpoint_fullfsync = ON").fetchall()
    if _one(connection, "PRAGMA synchronous") != 2:  # noqa: PLR2004  2 is FULL
        why = f"{place} does not accept synchronous = FULL"
        raise StoreError(why)


def read_only(place: str) -> apsw.Connection:
    """Open a second connection that only reads."""
    with named_errors(place):
        connection = apsw.Connection(place, flags=apsw.SQLITE_OPEN_READWRITE, statementcachesize=STATEMENTS)
        _steady(connection)
        connection.execute("PRAGMA query_only = ON").fetchall()
    return connection


def prepare(connection: apsw.Connection, place: str) -> str:
    """Bring the schema up to date and return the store's id. Raises NewerSchema, NotAStore; changes nothing then."""
    with named_errors(place):
        if _one(connection, SQL["is_store"]) and not pending(place, MIGRATIONS, _applied(connection)):
            return str(_one(connection, SQL["get_meta"], "store_id"))
        connection.execute("BEGIN IMMEDIATE").fetchall()
        try:
            _migrate(connection, place)
        except BaseException:
            connection.execute("ROLLBACK").fetchall()
            raise
        connection.execute("COMMIT").fetchall()
        return str(_one(connection, SQL["get_meta"], "store_id"))


def _applied(connection: apsw.Connection) -> list[tuple[int, str, str]]:
    return [(row[0], row[1], row[2]) for row in connection.execute(SQL["migrations"]).fetchall()]  # type: ignore[misc]


def _migrate(connection: apsw.Connection, place: str) -> None:
    if not _one(connection, SQL["is_store"]):
        connection.execute(SQL["create_migrations"]).fetchall()
    now = time.time_ns() // 1_000_000
    for migration in pending(place, MIGRATIONS, _applied(connection)):
        connection.execute(migration.sql).fetchall()
        done = (migration.number, migration.name, migration.checksum, now)
        connection.execute(SQL["insert_migration"], done).fetchall()
    if _one(connection, SQL["get_meta"], "store_id") is None:
        connection.execute(SQL["put_meta"], ("store_id", secrets.token_hex(16))).fetchall()


def _one(connection: apsw.Connection, sql: str, *args: Any) -> Any:
    rows = connection.execute(sql, args).fetchall()
    return rows[0][0] if rows else None


def extend_log(connection: apsw.Connection, place: str) -> None:
    """Write the log's file out to its usual size, so that commits overwrite blocks instead of allocating them.

    Holding the write lock keeps every other writer out while the file grows; zeros behind the last frame are what
    SQLite ignores at recovery. Saves a third of a commit's time on file systems that journal allocations.
    """
    try:
        connection.execute("BEGIN IMMEDIATE").fetchall()
    except apsw.Error:
        return  # somebody else writes: only the gain is lost
    try:
        log = os.open(place + "-wal", os.O_WRONLY)
        try:
            size = os.fstat(log).st_size
            if size < LOG_BYTES:
                os.pwrite(log, bytes(LOG_BYTES - size), size)
                os.fsync(log)
        finally:
            os.close(log)
    except OSError:
        pass  # a full disk or a vanished log only costs the gain
    finally:
        connection.execute("ROLLBACK").fetchall()
