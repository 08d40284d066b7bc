"""Old and new code on one store while it is brought up to date: who may work, what waits, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256

import psycopg
import pytest

from milepost.errors import NewerSchema, NotAStore, StoreBusy, StoreMissing, Unmigrated
from milepost.stores import migrate
from milepost.stores.migrate import Applied, Migration
from milepost.stores.postgres.connection import MIGRATIONS, address
from milepost.stores.postgres.schema import Schema
from milepost.stores.postgres.store import PostgresStore
from tests.database.conftest import Session
from tests.servers.fixtures import PostgresDatabase


def made(number: int, name: str, sql: str) -> Migration:
    return Migration(number, f"{number:04}_{name}", sql, sha256(sql.encode()).hexdigest())


KNOWN = len(MIGRATIONS)
ADDS = made(KNOWN + 1, "notes", "CREATE TABLE mp_notes (n int); ALTER TABLE mp_runs ADD COLUMN note TEXT;")
TAKES = made(KNOWN + 2, "post_no_tags", "ALTER TABLE mp_runs ALTER COLUMN tags SET DEFAULT '{}';")
MORE = made(KNOWN + 3, "more", "CREATE TABLE mp_more (n int);")
NEW = [*MIGRATIONS, ADDS, TAKES]
NEWER = [*NEW, MORE]


def of(migrations: list[Migration]) -> list[Applied]:
    return [Applied(one.number, one.name, one.kind, one.checksum) for one in migrations]


@pytest.fixture
def new(schema: Schema, database: PostgresDatabase) -> Iterator[Schema]:
    """The same store, for the next release."""
    with closing(Schema(address(database.url), NEW)) as opened:
        yield opened


def enlist(database: PostgresDatabase, worker: str, knows: int, *, lease_ms: int = 60_000) -> None:
    """Let a worker be at work, by the server's clock, whose code knows so many migrations."""
    with psycopg.connect(database.url) as connection:
        connection.execute(f"SET LOCAL milepost.knows = '{knows}'".encode())
        connection.execute(
            "INSERT INTO mp_workers (id, host, pid, started_at, lease_until)"
            " VALUES (%s, 'h', 1, 1, (extract(epoch FROM clock_timestamp()) * 1000)::bigint + %s)",
            (worker, lease_ms),
        )


# ---------------------------------------------------------------- the rules alone


def test_the_name_of_a_file_says_when_it_is_applied() -> None:
    assert [one.kind for one in NEWER[-3:]] == ["pre", "post", "pre"]


def test_code_works_beside_what_was_only_added_and_not_behind_what_was_taken() -> None:
    old = list(MIGRATIONS)

    migrate.may_open("p", old, of([*old, ADDS]))
    with pytest.raises(NewerSchema):
        migrate.may_open("p", old, of(NEW))
    with pytest.raises(Unmigrated, match="notes"):
        migrate.may_open("p", NEW, of(old))
    migrate.may_open("p", NEW, of([*old, ADDS]))


def test_a_file_that_changed_after_it_was_applied_is_refused() -> None:
    changed = made(ADDS.number, "notes", "CREATE TABLE mp_other (n int);")

    with pytest.raises(NotAStore, match="another checksum"):
        migrate.missing("p", [*MIGRATIONS, changed], of([*MIGRATIONS, ADDS]))


def test_what_an_earlier_release_left_behind_comes_first() -> None:
    left = of([*MIGRATIONS, ADDS])

    before = migrate.plan("p", NEWER, left, kind="pre", oldest=None)
    after = migrate.plan("p", NEWER, left, kind=None, oldest=None)

    assert (before.apply, before.waits) == ((), (TAKES, MORE))
    assert "--post" in before.why
    assert after.apply == (TAKES, MORE)


def test_what_takes_away_waits_for_the_last_worker_that_needs_it() -> None:
    left = of([*MIGRATIONS, ADDS])

    waits = migrate.plan("p", NEW, left, kind="post", oldest=KNOWN)
    comes = migrate.plan("p", NEW, left, kind="post", oldest=TAKES.number)

    assert (waits.apply, waits.waits) == ((), (TAKES,))
    assert f"knows only {KNOWN:04}" in waits.why
    assert comes.apply == (TAKES,)


# ---------------------------------------------------------------- on a server


def test_old_code_goes_on_while_the_next_release_is_deployed(
    schema: Schema, new: Schema, database: PostgresDatabase
) -> None:
    with closing(PostgresStore(database.url)) as old:
        enlist(database, "old", KNOWN)

        before = new.apply("pre")
        enlist(database, "new", TAKES.number)
        waits = new.plan("post")
        again = PostgresStore(database.url)
        again.close()
        database.server.execute("UPDATE mp_workers SET ended_at = 1 WHERE id = 'old'", database.name)
        after = new.apply("post")

        assert old.id == new.standing().id
    assert (before, after) == ([ADDS], [TAKES])
    assert waits.waits == (TAKES,)
    assert new.plan().apply == new.standing().missing == ()
    with pytest.raises(NewerSchema):
        PostgresStore(database.url)


def test_a_worker_whose_code_is_too_old_can_neither_begin_nor_renew(new: Schema, database: PostgresDatabase) -> None:
    enlist(database, "gone", KNOWN, lease_ms=-1)
    new.apply()

    with pytest.raises(psycopg.Error, match="took away what it needs"):
        enlist(database, "old", KNOWN)
    with pytest.raises(psycopg.Error, match="took away what it needs"):
        database.server.execute("UPDATE mp_workers SET lease_until = lease_until + 1", database.name)
    enlist(database, "new", TAKES.number)


@pytest.mark.parametrize("postgres_version", [15, 18])
def test_a_store_says_what_its_own_workers_know(database: PostgresDatabase, schema: Schema) -> None:
    database.server.execute("SELECT 1")
    with closing(PostgresStore(database.url)) as store:
        store._line.alone(lambda sql: sql.do("put_worker", "w", "h", 1, 1, 2**60))

    assert schema.standing().at_work == ((KNOWN, 1),)


@pytest.mark.parametrize("postgres_version", [15, 18])
def test_new_code_is_refused_until_what_it_needs_is_there(
    schema: Schema, database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milepost.stores.postgres.schema.MIGRATIONS", NEW)

    with pytest.raises(Unmigrated, match="milepost db migrate"):
        PostgresStore(database.url)
    with closing(Schema(address(database.url), NEW)) as new:
        new.apply("pre")
    PostgresStore(database.url).close()


@pytest.mark.parametrize("postgres_version", [15, 18])
def test_opening_a_store_never_makes_tables_in_a_database_that_has_none(database: PostgresDatabase) -> None:
    with pytest.raises(StoreMissing):
        PostgresStore(database.url)

    assert database.server.execute("SELECT count(*) FROM pg_tables WHERE tablename ~ '^mp_'", database.name) == [(0,)]


def test_a_migration_that_fails_leaves_what_was_before_it(schema: Schema, database: PostgresDatabase) -> None:
    broken = made(KNOWN + 2, "broken", "CREATE TABLE mp_half (n int); SELECT 1 / 0;")
    with closing(Schema(address(database.url), [*MIGRATIONS, ADDS, broken])) as new:
        with pytest.raises(Exception, match="division by zero"):
            new.apply()

        assert [one.name for one in new.standing().missing] == [broken.name]
    assert database.server.execute("SELECT to_regclass('mp_half')", database.name) == [(None,)]


@pytest.mark.parametrize("postgres_version", [18])
def test_a_migration_does_not_queue_behind_a_long_transaction(
    new: Schema, database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milepost.stores.postgres.schema.BRIEFLY", "SET LOCAL lock_timeout = '50ms'")
    with psycopg.connect(database.url) as long:
        long.execute("SELECT * FROM mp_runs")

        with pytest.raises(StoreBusy):
            new.apply()

    assert new.apply() == [ADDS, TAKES]


def test_new_tables_come_with_the_grants_of_the_roles(
    roles: PostgresDatabase, worker: Session, schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_notes = schema.roles_sql.replace(
        "('mp_migrations',", "('mp_notes', 'SELECT, INSERT', 'SELECT'), ('mp_migrations',"
    )
    monkeypatch.setattr("milepost.stores.postgres.schema.ROLES", with_notes)
    with closing(Schema(address(roles.url), NEW)) as new:
        new.apply()

    worker.do("INSERT INTO mp_notes VALUES (1)")
    assert "permission denied" in worker.refused("DELETE FROM mp_notes")
