"""What a database changes: roles, and connections that break."""

from contextlib import closing

import psycopg
import pytest

from milepost.adapters.langgraph import Checkpointer
from milepost.errors import NotPermitted
from milepost.stores.postgres.connection import address
from milepost.stores.postgres.schema import Schema
from tests.adapters.langgraph.graphs import checkpoint, place
from tests.database.conftest import PEOPLE
from tests.servers.fixtures import PostgresDatabase, database, postgres

__all__ = ["database", "postgres"]
pytestmark = pytest.mark.parametrize("postgres_version", [18])


def test_the_owner_makes_the_tables_and_a_worker_keeps_threads_in_them(database: PostgresDatabase) -> None:
    with closing(Schema(address(database.url))) as schema:
        schema.create()
        schema.grant_roles()
        database.server.execute(PEOPLE)
        with pytest.raises(NotPermitted):
            Checkpointer(database.url_as("working"))

        Checkpointer(database.url).close()
        with Checkpointer(database.url_as("working")) as saver:
            saver.put(place("t"), checkpoint(a=1), {}, {})
            saver.prune(["t"])
            found = saver.get_tuple(place("t"))

        assert found is not None
        assert found.checkpoint["channel_values"] == {"a": 1}
        assert [check for check in schema.checks() if "grants" in check.name and not check.ok] == []


def test_a_connection_that_breaks_between_two_saves_is_made_again(database: PostgresDatabase) -> None:
    with Checkpointer(database.url) as saver:
        saver.put(place("t"), checkpoint(a=1), {}, {})
        with psycopg.connect(database.url, autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")

        saver.put(place("t"), checkpoint(a=2), {}, {})
        found = saver.get_tuple(place("t"))

    assert found is not None
    assert found.checkpoint["channel_values"] == {"a": 2}
