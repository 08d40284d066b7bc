"""A file that somebody changed behind our back: what is read from it verifies, or it is refused by name."""

import asyncio
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from milepost.core.chain import verify
from milepost.core.chunks import digest_of
from milepost.errors import Damaged
from milepost.stores.api import Head, Stored
from milepost.stores.sqlite.store import SqliteStore
from milepost.testing.store_conformance import Subject
from milepost.testing.store_conformance.subject import append
from tests.stores.conftest import SqlitePlace

CHUNK = b'["v",1]'
GUARDS = (
    "mp_journal_no_update",
    "mp_journal_no_delete",
    "mp_journal_no_replace",
    "mp_chunks_no_update",
    "mp_chunks_no_delete",
)
Change = Callable[[apsw.Connection], object]


async def fill(stores: SqlitePlace) -> None:
    """Write two runs of six entries, with a boundary in the middle."""
    subject = Subject(stores, await stores.open())
    for run_id in ("a1", "b1"):
        head = await subject.held(run_id, chunks={digest_of(CHUNK): CHUNK})
        await subject.done(append(head, b"%s one" % run_id.encode(), b"%s boundary" % run_id.encode(), boundary=1))
        await subject.done(append(head, b"%s two" % run_id.encode(), b"%s three" % run_id.encode()))
    subject.close()


@pytest.fixture
def place(stores: SqlitePlace) -> Path:
    asyncio.run(fill(stores))
    return stores.path


@pytest.fixture
def file(place: Path) -> Iterator[apsw.Connection]:
    """A connection without our guards, as an attacker with the file has one."""
    connection = apsw.Connection(str(place))
    for guard in GUARDS:
        connection.execute(f"DROP TRIGGER {guard}").fetchall()
    yield connection
    connection.close()


def read_tail(place: Path, run_id: str = "a1") -> int:
    """Read and verify a run from its latest boundary, as recovery does."""
    store = SqliteStore(str(place))
    try:
        tail = asyncio.run(store.tail(run_id))
    finally:
        store.close()
    return verified(run_id, tail.before, tail.entries[0].seq, tail.entries, tail.head)


def read_chain(place: Path, run_id: str = "a1") -> int:
    """Read and verify the whole of a run."""
    store = SqliteStore(str(place))
    try:
        before, entries, head = asyncio.run(store.chain(run_id))
    finally:
        store.close()
    return verified(run_id, before, 1, entries, head)


def verified(run_id: str, before: bytes, first: int, entries: list[Stored], head: Head) -> int:
    return verify(run_id, before, first, ((one.seq, one.body, one.hash) for one in entries), head.hash)


def execute(sql: str, *args: object) -> Change:
    return lambda file: file.execute(sql, args).fetchall()


def swap(file: apsw.Connection) -> None:
    """Let two runs change their last entries, bodies and hashes and all."""
    one, other = (
        file.execute("SELECT row, body, hash FROM mp_journal WHERE run = ? AND seq = 6", (run,)).fetchall()[0]
        for run in (1, 2)
    )
    for (row, _, _), (_, body, digest) in ((one, other), (other, one)):
        file.execute("UPDATE mp_journal SET body = ?, hash = ? WHERE row = ?", (body, digest, row)).fetchall()


TAIL_CHANGES: dict[str, Change] = {
    "a changed body": execute("UPDATE mp_journal SET body = x'00' WHERE run = 1 AND seq = 5"),
    "a changed hash": execute("UPDATE mp_journal SET hash = x'00' WHERE run = 1 AND seq = 5"),
    "a changed number": execute("UPDATE mp_journal SET seq = 9 WHERE run = 1 AND seq = 5"),
    "a missing entry": execute("DELETE FROM mp_journal WHERE run = 1 AND seq = 5"),
    "a missing last entry": execute("DELETE FROM mp_journal WHERE run = 1 AND seq = 6"),
    "a missing boundary": execute("DELETE FROM mp_journal WHERE run = 1 AND seq = 4"),
    "a missing entry before the boundary": execute("DELETE FROM mp_journal WHERE run = 1 AND seq = 3"),
    "a changed boundary": execute("UPDATE mp_journal SET body = x'00' WHERE run = 1 AND seq = 4"),
    "a head that names an earlier entry": execute(
        "UPDATE mp_heads SET row = (SELECT row FROM mp_journal WHERE run = 1 AND seq = 5) WHERE run = 1"
    ),
    "a head that names another run's entry": execute(
        "UPDATE mp_heads SET row = (SELECT row FROM mp_journal WHERE run = 2 AND seq = 6) WHERE run = 1"
    ),
    "a head with another hash": execute("UPDATE mp_heads SET hash = x'00' WHERE run = 1"),
    "no head at all": execute("DELETE FROM mp_heads WHERE run = 1"),
    "a boundary that is no entry of the run": execute("UPDATE mp_heads SET boundary = 1 WHERE run = 2"),
    "entries swapped between runs": swap,
}


@pytest.mark.parametrize("change", TAIL_CHANGES.values(), ids=TAIL_CHANGES.keys())
def test_a_changed_record_is_found_before_anything_is_done_on_its_word(
    place: Path, file: apsw.Connection, change: Change
) -> None:
    """Requirement 48. Requirement 15. Requirement 4."""
    assert (read_tail(place, "a1"), read_tail(place, "b1")) == (3, 3)

    change(file)

    found = []
    for run_id in ("a1", "b1"):
        try:
            read_tail(place, run_id)
        except Damaged as damage:
            found.append(damage.run_id)
    assert found


@pytest.mark.parametrize("seq", [1, 2, 3])
def test_a_change_before_the_latest_boundary_is_found_when_the_whole_chain_is_read(
    place: Path, file: apsw.Connection, seq: int
) -> None:
    """Requirement 48."""
    assert read_chain(place) == 6

    file.execute("UPDATE mp_journal SET body = x'00' WHERE run = 1 AND seq = ?", (seq,)).fetchall()

    with pytest.raises(Damaged) as found:
        read_chain(place)
    assert found.value.seq == seq


def test_a_missing_chunk_is_damage(place: Path, file: apsw.Connection) -> None:
    file.execute("DELETE FROM mp_chunks").fetchall()

    store = SqliteStore(str(place))
    with pytest.raises(Damaged, match="missing"):
        asyncio.run(store.chunk("a1", digest_of(CHUNK)))
    store.close()


def test_a_changed_chunk_does_not_match_its_name(place: Path, file: apsw.Connection) -> None:
    file.execute("UPDATE mp_chunks SET body = x'00'").fetchall()

    store = SqliteStore(str(place))
    assert digest_of(asyncio.run(store.chunk("a1", digest_of(CHUNK)))) != digest_of(CHUNK)
    store.close()


def test_a_run_that_was_copied_into_another_store_does_not_verify_there(place: Path, tmp_path: Path) -> None:
    """Requirement 48. The chain's beginning names its store."""
    other = SqliteStore(str(tmp_path / "other.db"), create=True)
    other_id = other.id
    other.close()
    stolen = tmp_path / "stolen.db"
    shutil.copy(place, stolen)
    file = apsw.Connection(str(stolen))
    file.execute("UPDATE mp_meta SET value = ? WHERE name = 'store_id'", (other_id,)).fetchall()
    file.close()

    with pytest.raises(Damaged) as found:
        read_chain(stolen)
    assert found.value.seq == 1


def test_a_run_that_is_there_without_entries_is_damage(place: Path, file: apsw.Connection) -> None:
    file.execute("DELETE FROM mp_journal").fetchall()

    with pytest.raises(Damaged):
        read_tail(place)
    with pytest.raises(Damaged):
        read_chain(place)
