"""An empty store that another test has used is as one that nobody has."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from milepost.stores.postgres.store import PostgresStore
from tests.servers.emptied import EmptyStores
from tests.servers.fixtures import PostgresServers
from tests.servers.postgres import Postgres

ID = "SELECT value FROM mp_meta WHERE name = 'store_id'"
LEFT = (
    "INSERT INTO mp_journal VALUES (7, 1, 1, NULL, 'body', '')",
    "INSERT INTO mp_inbox (run, message_id, body) VALUES (1, 'm', 'body')",
    "INSERT INTO mp_meta VALUES ('left', 'behind')",
    "DELETE FROM mp_migrations",
    "SELECT nextval('mp_run_numbers')",
    "CREATE TABLE book (text TEXT)",
)
CHANGED = (
    "ALTER TABLE mp_journal DISABLE TRIGGER mp_journal_no_delete",
    "ALTER TABLE mp_journal DROP COLUMN hash",
    "ALTER TABLE mp_journal ENABLE TRIGGER mp_journal_no_truncate",
    "DROP TRIGGER mp_chunks_no_update ON mp_chunks",
    "DROP TABLE mp_breakers",
    "CREATE INDEX another ON mp_journal (seq)",
    "CREATE OR REPLACE FUNCTION mp_refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN OLD; END'",
    "CREATE FUNCTION another() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "GRANT SELECT ON mp_journal TO PUBLIC",
    "CREATE SCHEMA another",
    "COMMENT ON TABLE mp_journal IS 'diagnostic'",
)


@pytest.fixture
def server(postgres_servers: PostgresServers) -> Postgres:
    """The newest server."""
    return postgres_servers.get(18)


@pytest.fixture
def stores(server: Postgres) -> EmptyStores:
    """Stores that no other test uses."""
    return EmptyStores(server)


Ask = Callable[[str, str], list[tuple[object, ...]]]


def everything(ask: Ask, name: str) -> dict[str, list[tuple[object, ...]]]:
    tables = ask("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1", name)
    sequences = "SELECT sequencename, last_value FROM pg_sequences ORDER BY 1"
    rows = {str(table): ask(f"TABLE {table}", name) for (table,) in tables if table != "mp_meta"}
    return {**rows, "sequences": ask(sequences, name), "meta": ask("SELECT name FROM mp_meta", name)}


def test_what_a_test_has_left_is_gone_for_the_next_whose_store_has_another_id(
    server: Postgres, stores: EmptyStores
) -> None:
    first = stores.take()
    was, known_as = everything(server.execute, first), server.execute(ID, first)
    for statement in LEFT:
        server.execute(statement, first)
    assert everything(server.execute, first).keys() == {*was, "book"}

    stores.give_back(first)

    assert stores.take() == first
    assert everything(server.execute, first) == was
    assert server.execute(ID, first) != known_as
    PostgresStore(server.url(first)).close()


@pytest.mark.parametrize("statement", CHANGED)
def test_a_store_whose_tables_rules_or_rights_were_changed_is_not_used_again(
    statement: str, server: Postgres, stores: EmptyStores
) -> None:
    first = stores.take()
    server.execute(statement, first)

    stores.give_back(first)

    assert (first,) not in server.execute("SELECT datname FROM pg_database")


def test_who_is_still_connected_is_cut_off_and_what_was_not_committed_never_comes(
    server: Postgres, stores: EmptyStores
) -> None:
    first = stores.take()
    with psycopg.connect(server.url(first)) as late:
        late.execute("INSERT INTO mp_meta VALUES ('late', 'row')")

        stores.give_back(first)

        with pytest.raises(psycopg.OperationalError):
            late.execute("SELECT 1")
        late.close()
    assert stores.take() == first
    assert server.execute("SELECT 1 FROM mp_meta WHERE name = 'late'", first) == []


def test_two_that_are_taken_are_two(server: Postgres, stores: EmptyStores) -> None:
    assert stores.take() != stores.take()
