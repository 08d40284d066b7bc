"""Opening a file: what durability and privacy rest on is set and read back; what is no store is refused unchanged."""

import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from milepost.errors import NewerSchema, NotAStore, StoreBusy, StoreError, StoreMissing, UnsafeLibrary
from milepost.stores.migrate import Migration
from milepost.stores.sqlite import connection as opening
from milepost.stores.sqlite.connection import LOG_BYTES, SQL, check_library, extend_log
from milepost.stores.sqlite.store import SqliteStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def write(path: Path, sql: str) -> None:
    file = apsw.Connection(str(path))
    file.execute(sql).fetchall()
    file.close()


def tables(path: Path) -> set[str]:
    file = apsw.Connection(str(path))
    names = {str(row[0]) for row in file.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()}
    file.close()
    return names


# ---------------------------------------------------------------- what durability and privacy rest on


def test_a_store_is_written_ahead_and_synced_in_full(path: Path) -> None:
    """Requirement 85."""
    store = SqliteStore(str(path), create=True)

    assert store._writer.pragma("journal_mode") == "wal"
    assert store._writer.pragma("synchronous") == 2
    assert store._writer.pragma("foreign_keys") == 1
    store.close()


def test_the_connection_that_renews_leases_is_as_durable(path: Path) -> None:
    store = SqliteStore(str(path), create=True)

    store.renew("worker-1", 5)

    assert store._renewer is not None
    assert store._renewer.pragma("synchronous") == 2
    store.close()


def test_the_reading_connection_cannot_write(path: Path) -> None:
    store = SqliteStore(str(path), create=True)

    with pytest.raises(apsw.ReadOnlyError):
        store._reader.execute("DELETE FROM mp_runs").fetchall()
    store.close()


def test_nobody_but_its_owner_can_read_a_store(path: Path) -> None:
    earlier = os.umask(0)
    try:
        store = SqliteStore(str(path), create=True)
    finally:
        os.umask(earlier)

    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert modes == {"store.db": 0o600, "store.db-wal": 0o600, "store.db-shm": 0o600}
    store.close()


def test_a_library_that_can_corrupt_the_log_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    check_library()

    for version in ("3.7.0", "3.50.4", "3.51.2"):
        monkeypatch.setattr(apsw, "sqlite_lib_version", lambda version=version: version)
        with pytest.raises(UnsafeLibrary, match=version):
            check_library()


# ---------------------------------------------------------------- what is no store

Maker = Callable[[Path], object]

FOREIGN: dict[str, Maker] = {
    "a text": lambda path: path.write_text("not a database at all, but long enough to look at " * 20),
    "an empty file": lambda path: path.touch(),
    "somebody else's database": lambda path: write(path, "CREATE TABLE customers (name TEXT)"),
    "an empty database": lambda path: write(path, "PRAGMA user_version = 7"),
}


@pytest.mark.parametrize("make", FOREIGN.values(), ids=FOREIGN.keys())
def test_a_file_that_is_no_store_is_refused_and_left_as_it_was(path: Path, make: Maker) -> None:
    make(path)
    before = path.read_bytes()

    with pytest.raises(NotAStore, match="Nothing was changed"):
        SqliteStore(str(path))

    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["store.db"]


def test_a_text_is_not_turned_into_a_store_even_where_one_is_to_be_created(path: Path) -> None:
    path.write_text("not a database at all, but long enough to look at " * 20)
    before = path.read_bytes()

    with pytest.raises(NotAStore, match="no SQLite file"):
        SqliteStore(str(path), create=True)

    assert path.read_bytes() == before


def test_a_folder_is_no_store(path: Path) -> None:
    path.mkdir()

    for create in (False, True):
        with pytest.raises(NotAStore, match="folder"):
            SqliteStore(str(path), create=create)


def test_a_store_that_is_missing_is_not_created_by_looking_for_it(path: Path) -> None:
    with pytest.raises(StoreMissing, match="milepost init"):
        SqliteStore(str(path))

    assert list(path.parent.iterdir()) == []


def test_a_store_in_a_folder_that_does_not_exist_says_so(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"folder of .* does not exist"):
        SqliteStore(str(tmp_path / "nowhere" / "store.db"), create=True)


def test_a_damaged_file_is_refused(path: Path) -> None:
    """Requirement 48."""
    SqliteStore(str(path), create=True).close()
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2 // 4096 * 4096 + 100])

    with pytest.raises(NotAStore):
        SqliteStore(str(path))


# ---------------------------------------------------------------- schemas


def test_a_new_store_is_made_by_the_migrations_from_nothing(path: Path) -> None:
    store = SqliteStore(str(path), create=True)
    applied = store._writer.execute("SELECT number, name, checksum FROM mp_migrations ORDER BY number").fetchall()
    store.close()

    assert applied == [(known.number, known.name, known.checksum) for known in opening.MIGRATIONS]


def test_opening_again_applies_nothing_twice(path: Path) -> None:
    first = SqliteStore(str(path), create=True)
    first_id = first.id
    first.close()
    before = tables(path)

    again = SqliteStore(str(path), create=True)

    assert (again.id, tables(path)) == (first_id, before)
    again.close()


def test_a_store_of_a_newer_version_is_refused_and_left_as_it_was(path: Path) -> None:
    SqliteStore(str(path), create=True).close()
    newer = len(opening.MIGRATIONS) + 1
    write(path, "INSERT INTO mp_migrations SELECT max(number) + 1, '9999_future', 'x', 1 FROM mp_migrations")
    before = path.read_bytes()

    with pytest.raises(NewerSchema, match="nothing was changed") as refused:
        SqliteStore(str(path))

    assert (refused.value.found, refused.value.known) == (newer, len(opening.MIGRATIONS))
    assert path.read_bytes() == before


def test_reservations_of_an_older_store_are_held_by_their_steps_afterwards(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as then:
        then.setattr(opening, "MIGRATIONS", opening.MIGRATIONS[:3])
        SqliteStore(str(path), create=True).close()
    write(
        path,
        "INSERT INTO mp_reserved (pool, day, unit, run, step, amount) VALUES ('total', -1, 'usd', 7, ':0', '2.50')",
    )

    store = SqliteStore(str(path), create=True)
    rows = store._writer.execute(SQL["take_reserved"], (7, ":0")).fetchall()
    plan = store._writer.execute(f"EXPLAIN QUERY PLAN {SQL['drop_reserved']}", (7, ":0")).fetchall()
    store.close()

    assert rows == [("total", -1, "usd", "2.50")]
    assert "PRIMARY KEY (run=? AND step=?)" in str(plan)


def test_a_migration_that_was_applied_with_another_text_is_refused(path: Path) -> None:
    SqliteStore(str(path), create=True).close()
    write(path, "UPDATE mp_migrations SET checksum = 'other' WHERE number = 1")

    with pytest.raises(NotAStore, match=r"migration 1 .* another checksum"):
        SqliteStore(str(path))


def test_an_older_store_is_brought_up_to_date_and_keeps_what_it_holds(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = SqliteStore(str(path), create=True)
    store_id = older.id
    older.close()
    added = Migration(len(opening.MIGRATIONS) + 1, "9999_more", "CREATE TABLE mp_more (x INTEGER) STRICT", "checksum 2")
    monkeypatch.setattr(opening, "MIGRATIONS", [*opening.MIGRATIONS, added])

    store = SqliteStore(str(path))

    assert store.id == store_id
    store.close()
    assert "mp_more" in tables(path)


def test_a_migration_that_fails_leaves_the_store_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    SqliteStore(str(path), create=True).close()
    before = tables(path)
    sql = "CREATE TABLE mp_more (x INTEGER) STRICT; CREATE nonsense"
    broken = Migration(len(opening.MIGRATIONS) + 1, "9999_broken", sql, "checksum")
    with monkeypatch.context() as during:
        during.setattr(opening, "MIGRATIONS", [*opening.MIGRATIONS, broken])
        with pytest.raises(StoreError):
            SqliteStore(str(path))

    SqliteStore(str(path)).close()
    assert tables(path) == before


# ---------------------------------------------------------------- the log


def test_the_log_is_extended_behind_its_last_frame_and_stays_readable(path: Path) -> None:
    store = SqliteStore(str(path), create=True)
    store.renew("worker-1", 5)

    extend_log(store._writer, str(path))

    assert path.with_name("store.db-wal").stat().st_size >= LOG_BYTES
    other = SqliteStore(str(path))
    assert other.id == store.id
    other.close()
    store.close()


def test_extending_the_log_is_given_up_while_somebody_else_writes(path: Path) -> None:
    store, other = SqliteStore(str(path), create=True), SqliteStore(str(path), create=True)
    store._writer.set_busy_timeout(0)
    other._writer.execute("BEGIN IMMEDIATE").fetchall()

    extend_log(store._writer, str(path))

    assert path.with_name("store.db-wal").stat().st_size < LOG_BYTES
    other._writer.execute("ROLLBACK").fetchall()
    store.close()
    other.close()


def test_opening_a_file_that_somebody_locks_says_that_it_is_busy(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "BUSY_MS", 20)
    file = apsw.Connection(str(path))
    file.execute("CREATE TABLE mp_migrations (number INTEGER)").fetchall()
    file.execute("BEGIN EXCLUSIVE").fetchall()

    with pytest.raises(StoreBusy):
        SqliteStore(str(path))
    file.close()


def test_several_that_make_one_store_at_the_same_instant_all_open_it(tmp_path: Path) -> None:
    """SQLite refuses one of two that turn the write-ahead log on at once, and does not ask it to wait."""
    for number in range(40):
        place, together = str(tmp_path / f"{number}.db"), threading.Barrier(4)
        opened: list[str] = []
        makers = [threading.Thread(target=make_a_store, args=(place, together, opened)) for _ in range(4)]
        for maker in makers:
            maker.start()
        for maker in makers:
            maker.join()

        assert len(opened) == len(makers)
        assert len(set(opened)) == 1


def make_a_store(place: str, together: threading.Barrier, opened: list[str]) -> None:
    together.wait()
    store = SqliteStore(place, create=True)
    opened.append(store.id)
    store.close()
