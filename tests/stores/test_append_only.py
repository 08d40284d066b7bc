"""The file itself refuses to change history: by update, by delete, by replace, whoever asks."""

import asyncio
from collections.abc import Iterator

import apsw
import pytest

from milepost.core.chunks import digest_of
from milepost.testing.store_conformance import Subject
from milepost.testing.store_conformance.subject import append
from tests.stores.conftest import SqlitePlace

CHUNK = b'["v",1]'
TOMBSTONE = (
    "INSERT INTO mp_tombstones (run, id, seq, hash, at, by, why) "
    "SELECT run, 'a1', seq, hash, 1, 'ann', 'asked to' FROM mp_heads WHERE run = 1"
)
ENDED = "UPDATE mp_runs SET status = 'killed' WHERE run = 1"

FORBIDDEN = [
    "UPDATE mp_journal SET body = x'00' WHERE seq = 1",
    "UPDATE mp_journal SET hash = x'00'",
    "UPDATE OR REPLACE mp_journal SET row = 1 WHERE row = 2",
    "DELETE FROM mp_journal WHERE seq = 3",
    "DELETE FROM mp_journal",
    "INSERT OR REPLACE INTO mp_journal (row, run, seq, previous, body, hash) VALUES (1, 1, 1, NULL, x'00', x'00')",
    "REPLACE INTO mp_journal (row, run, seq, previous, body, hash) VALUES (2, 9, 9, NULL, x'00', x'00')",
    (
        "INSERT INTO mp_journal (row, run, seq, previous, body, hash) VALUES (1, 1, 1, NULL, x'00', x'00') "
        "ON CONFLICT (row) DO UPDATE SET body = excluded.body"
    ),
    "INSERT OR IGNORE INTO mp_journal (row, run, seq, previous, body, hash) VALUES (1, 1, 1, NULL, x'00', x'00')",
    "UPDATE mp_chunks SET body = x'00'",
    "UPDATE OR REPLACE mp_chunks SET run = 2",
    "DELETE FROM mp_chunks",
    "INSERT OR REPLACE INTO mp_chunks (row, run, digest, body) VALUES (1, 1, 'other', x'00')",
]


@pytest.fixture
def file(stores: SqlitePlace) -> Iterator[apsw.Connection]:
    """A connection of nobody of ours to a store that holds one run with three entries and one chunk."""

    async def fill() -> None:
        subject = Subject(stores, await stores.open())
        head = await subject.held("a1", chunks={digest_of(CHUNK): CHUNK})
        await subject.done(append(head, b"one"))
        subject.close()

    asyncio.run(fill())
    connection = apsw.Connection(str(stores.path))
    yield connection
    connection.close()


def stored(file: apsw.Connection) -> list[tuple[object, ...]]:
    journal = file.execute("SELECT row, run, seq, previous, body, hash FROM mp_journal ORDER BY row").fetchall()
    return [*journal, *file.execute("SELECT run, digest, body FROM mp_chunks ORDER BY digest").fetchall()]


@pytest.mark.parametrize("sql", FORBIDDEN)
def test_history_cannot_be_changed(file: apsw.Connection, sql: str) -> None:
    """Requirement 73."""
    before = stored(file)
    assert len(before) == 4

    with pytest.raises(apsw.ConstraintError, match="append-only"):
        file.execute(sql).fetchall()

    assert stored(file) == before


def test_replacing_a_chunk_under_its_own_name_changes_nothing(file: apsw.Connection) -> None:
    before = stored(file)
    name = digest_of(CHUNK)

    file.execute("INSERT OR REPLACE INTO mp_chunks (run, digest, body) VALUES (1, ?, x'00')", (name,)).fetchall()

    assert stored(file) == before


def test_history_cannot_be_changed_inside_a_transaction_either(file: apsw.Connection) -> None:
    before = stored(file)
    file.execute("BEGIN").fetchall()
    with pytest.raises(apsw.ConstraintError):
        file.execute("DELETE FROM mp_journal").fetchall()
    file.execute("COMMIT").fetchall()

    assert stored(file) == before


def test_a_run_is_deleted_only_beside_its_tombstone(file: apsw.Connection) -> None:
    with file:
        file.execute(ENDED).fetchall()
        file.execute(TOMBSTONE).fetchall()
        file.execute("DELETE FROM mp_journal WHERE run = 1").fetchall()
        file.execute("DELETE FROM mp_chunks WHERE run = 1").fetchall()

    assert stored(file) == []


NO_TOMBSTONE = {
    "of a run that goes on": [TOMBSTONE],
    "of nobody": [ENDED, TOMBSTONE.replace("run, 'a1'", "2, 'a2'")],
    "under another id": [ENDED, TOMBSTONE.replace("'a1'", "'a2'")],
    "with another last entry": [ENDED, TOMBSTONE.replace("seq, hash, 1", "seq - 1, hash, 1")],
    "with another hash": [ENDED, TOMBSTONE.replace("seq, hash, 1", "seq, x'00', 1")],
}


@pytest.mark.parametrize("statements", NO_TOMBSTONE.values(), ids=NO_TOMBSTONE.keys())
def test_a_tombstone_stands_for_a_run_that_ended_and_names_its_last_entry(
    file: apsw.Connection, statements: list[str]
) -> None:
    """Requirement 73."""
    *before, last = statements
    for sql in before:
        file.execute(sql).fetchall()

    with pytest.raises(apsw.ConstraintError, match="only a run that ended"):
        file.execute(last).fetchall()
    with pytest.raises(apsw.ConstraintError, match="append-only"):
        file.execute("DELETE FROM mp_journal WHERE run = 1").fetchall()


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE mp_tombstones SET run = 2",
        "DELETE FROM mp_tombstones",
        TOMBSTONE.replace("INSERT", "INSERT OR REPLACE"),
        "UPDATE mp_journal SET body = x'00'",
        "DELETE FROM mp_journal WHERE run = 2",
    ],
)
def test_a_tombstone_stays_and_lets_nothing_else_be_changed(file: apsw.Connection, sql: str) -> None:
    """Requirement 73."""
    file.execute("INSERT INTO mp_journal (row, run, seq, body, hash) VALUES (99, 2, 1, x'00', x'00')").fetchall()
    file.execute(ENDED).fetchall()
    file.execute(TOMBSTONE).fetchall()
    before = [*stored(file), *file.execute("SELECT * FROM mp_tombstones").fetchall()]

    with pytest.raises(apsw.ConstraintError, match="append-only"):
        file.execute(sql).fetchall()

    assert [*stored(file), *file.execute("SELECT * FROM mp_tombstones").fetchall()] == before
