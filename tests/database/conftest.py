"""A store's tables in a database of a real server, with both roles and somebody in each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from milepost.stores.postgres.connection import address
from milepost.stores.postgres.schema import Schema
from tests.servers.fixtures import (
    PostgresDatabase,
    PostgresServers,
    bouncer,
    database,
    own_postgres,
    postgres,
    postgres_servers,
    postgres_version,
)

__all__ = ["bouncer", "database", "own_postgres", "postgres", "postgres_servers", "postgres_version"]

PEOPLE = """
DO $$ BEGIN
    IF to_regrole('working') IS NULL THEN CREATE ROLE working LOGIN IN ROLE milepost_worker; END IF;
    IF to_regrole('ann') IS NULL THEN CREATE ROLE ann LOGIN IN ROLE milepost_operator; END IF;
    IF to_regrole('stranger') IS NULL THEN CREATE ROLE stranger LOGIN; END IF;
END $$
"""


@pytest.fixture
def schema(database: PostgresDatabase) -> Iterator[Schema]:
    """The tables of a new store, for their owner."""
    with closing(Schema(address(database.url))) as made:
        made.create()
        yield made


@pytest.fixture
def roles(
    request: pytest.FixtureRequest, postgres_servers: PostgresServers, postgres_version: int
) -> Iterator[PostgresDatabase]:
    """An empty store with both roles: `working` is a worker, `ann` a person, `stranger` neither.

    It is in the new database of a test that asks for that, too, to do to it what only its owner may.
    """
    server = postgres_servers.get(postgres_version)
    if "database" in request.fixturenames:
        request.getfixturevalue("schema").grant_roles()
        server.execute(PEOPLE)
        yield request.getfixturevalue("database")
        return
    stores = postgres_servers.stores(postgres_version, Schema.grant_roles)
    name = stores.take()
    server.execute(PEOPLE)
    yield PostgresDatabase(server, name)
    stores.give_back(name)


class Session:
    """One connection in a role; each statement by itself."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)

    def close(self) -> None:
        """Let it go."""
        self._connection.close()

    def do(self, statement: str, *args: object) -> list[tuple[object, ...]]:
        """Execute a statement and return its rows."""
        done = self._connection.execute(statement.encode(), args or None)
        return done.fetchall() if done.description is not None else []

    def refused(self, statement: str, *args: object) -> str:
        """Execute a statement that the roles must refuse, and return what was said."""
        with pytest.raises(psycopg.errors.InsufficientPrivilege) as refused:
            self.do(statement, *args)
        return str(refused.value)

    def say(self, message_id: str, body: bytes, *, run: int = 1) -> None:
        """Put a message into an inbox."""
        self.do("INSERT INTO mp_inbox (run, message_id, body) VALUES (%s, %s, %s)", run, message_id, body)

    def enter(self, row: int, body: bytes, *, run: int = 1) -> None:
        """Write an entry."""
        self.do("INSERT INTO mp_journal VALUES (%s, %s, %s, NULL, %s, '')", row, run, row, body)


@pytest.fixture
def worker(roles: PostgresDatabase) -> Iterator[Session]:
    """A worker, connected."""
    with closing(Session(roles.url_as("working"))) as session:
        yield session


@pytest.fixture
def person(roles: PostgresDatabase) -> Iterator[Session]:
    """A person, connected."""
    with closing(Session(roles.url_as("ann"))) as session:
        yield session


@pytest.fixture
def stranger(roles: PostgresDatabase) -> Iterator[Session]:
    """Somebody in neither role, connected."""
    with closing(Session(roles.url_as("stranger"))) as session:
        yield session
