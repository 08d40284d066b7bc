"""What is written stays written, whoever asks the database to change it; and every table says what it is."""

import asyncio

import psycopg
import pytest

from milepost.stores.keeping import Prune
from milepost.testing.store_conformance.subject import Subject, append, status
from tests.servers.fixtures import PostgresDatabase
from tests.stores.postgres.conftest import PostgresPlace

PREPARE = "SET session_replication_role = replica"  # it turns ordinary triggers off


async def write(stores: PostgresPlace) -> None:
    """Leave a run that goes on, and the tombstone of another."""
    subject = Subject(stores, await stores.open())
    await subject.held("a1", chunks={"c" * 64: b"chunk"})
    ended = await subject.held("b1")
    await subject.done(append(ended, b"the end", status=status("done"), release=(None, None)))
    await subject.done(Prune(["b1"], 70, "ann", "old", lambda stone: b"pruned " + stone.run_id.encode()))
    subject.close()


@pytest.mark.parametrize("before", ["SELECT 1", PREPARE])
@pytest.mark.parametrize("table", ["mp_journal", "mp_chunks", "mp_tombstones"])
@pytest.mark.parametrize("how", ["UPDATE {} SET run = 5", "DELETE FROM {}", "TRUNCATE {}", "TRUNCATE {} CASCADE"])
@pytest.mark.parametrize("postgres_version", [15, 18], ids=lambda version: f"postgres-{version}")
def test_nothing_that_is_written_can_be_changed_deleted_or_truncated(
    stores: PostgresPlace, database: PostgresDatabase, table: str, how: str, before: str
) -> None:
    """Requirement 36."""
    asyncio.run(write(stores))
    with psycopg.connect(database.url, autocommit=True) as connection:
        connection.execute(before.encode())

        with pytest.raises(psycopg.DatabaseError, match="append-only"):
            connection.execute(how.format(table).encode())


@pytest.mark.parametrize("postgres_version", [18], ids=["postgres-18"])
def test_a_run_that_goes_on_gets_no_tombstone(stores: PostgresPlace, database: PostgresDatabase) -> None:
    asyncio.run(write(stores))
    forged = """INSERT INTO mp_tombstones (run, id, at, by, why, seq, hash, digest, workflow, status, attached)
        SELECT r.run, r.id, 1, 'me', 'so', h.seq, h.hash, '', '', 'done', 0 FROM mp_runs r JOIN mp_heads h USING (run)
        WHERE r.id = 'a1'"""

    with (
        psycopg.connect(database.url, autocommit=True) as connection,
        pytest.raises(psycopg.DatabaseError, match="only a run that ended"),
    ):
        connection.execute(forged.encode())


def test_every_table_is_labelled_and_pruning_leaves_no_row_of_its_run(
    stores: PostgresPlace, database: PostgresDatabase
) -> None:
    """Requirement 42."""
    asyncio.run(write(stores))
    tables = """SELECT relname, obj_description(oid) FROM pg_class
        WHERE relkind = 'r' AND relname LIKE 'mp\\_%' AND relname <> 'mp_migrations'"""
    with psycopg.connect(database.url, autocommit=True) as connection:
        found: dict[str, str] = dict(connection.execute(tables.encode()).fetchall())
        ((gone,),) = connection.execute("SELECT run FROM mp_tombstones").fetchall()
        left = [
            table
            for table in ("mp_journal", "mp_heads", "mp_runs", "mp_chunks", "mp_inbox", "mp_effects", "mp_events")
            if connection.execute(f"SELECT 1 FROM {table} WHERE run = %s".encode(), [gone]).fetchall()  # noqa: S608
        ]

    assert {
        name: label for name, label in found.items() if label not in {"authoritative", "projection", "diagnostic"}
    } == {}
    assert {name for name, label in found.items() if label == "diagnostic"} == {"mp_events"}
    assert left == []
