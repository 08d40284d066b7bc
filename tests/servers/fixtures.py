"""Fixtures over real servers. A folder's conftest imports those that its tests ask for, and names them in `__all__`.

Each pytest process has one PostgreSQL server a version, started when a test first asks for it and ended with the
process; a cluster is initialised once a test session, and copied. Each test has a database of its own: a new one, or,
with `empty_store`, one with a store that was emptied and found to be as new. A test that stops, kills or configures a
server makes its own with `own_postgres`.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from milepost.stores.postgres.schema import Schema
from tests.servers.emptied import EmptyStores
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import VERSIONS, Postgres

__all__ = [
    "OwnPostgres",
    "PostgresDatabase",
    "bouncer",
    "database",
    "empty_store",
    "own_postgres",
    "postgres",
    "postgres_servers",
    "postgres_version",
]

Prepare = Callable[[Schema], None]


class PostgresServers:
    """The servers of this process that tests share."""

    def __init__(self, templates: Path) -> None:
        self._templates = templates
        self._servers: dict[int, Postgres] = {}
        self._keeping: dict[int, Postgres] = {}
        self._stores: dict[tuple[int, Prepare | None], EmptyStores] = {}

    def make(self, version: int, **options: Any) -> Postgres:
        """Make a server that is not shared, from the session's initialised cluster of its version."""
        with (self._templates / f"postgres-{version}.lock").open("w") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)  # of all pytest processes of the session, the first initialises
            return Postgres(version, template=self._templates / f"postgres-{version}", **options)

    def get(self, version: int) -> Postgres:
        """Return the running server of a version."""
        if version not in self._servers:
            self._servers[version] = self.make(version)
        server = self._servers[version]
        if not server.running:
            server.start()
        return server

    def keeping(self, version: int) -> Postgres:
        """Return the running server of a version that waits for the disk; the other one does not, to be quick."""
        if version not in self._keeping:
            self._keeping[version] = self.make(version, settings={"fsync": "on", "full_page_writes": "on"})
            self._keeping[version].start()
        return self._keeping[version]

    def stores(self, version: int, prepare: Prepare | None = None) -> EmptyStores:
        """Return the empty stores of the running server of a version, prepared in one way."""
        server = self.get(version)
        return self._stores.setdefault((version, prepare), EmptyStores(server, prepare))

    def close(self) -> None:
        """End them all."""
        for server in (*self._servers.values(), *self._keeping.values()):
            server.close()


@dataclass(frozen=True)
class PostgresDatabase:
    """An empty database of one test."""

    server: Postgres
    name: str

    @property
    def url(self) -> str:
        """Its URL, by socket, as the superuser."""
        return self.server.url(self.name)

    def url_as(self, user: str) -> str:
        """Its URL, by socket, as another role."""
        return self.server.url(self.name, user)

    @property
    def tcp_url(self) -> str:
        """Its URL by the loopback device, as the superuser."""
        return self.server.url(self.name, host="127.0.0.1")


class OwnPostgres(Protocol):
    """What `own_postgres` is: a started server of a version, with options of `Postgres`, gone after the test."""

    def __call__(self, version: int = ..., **options: Any) -> Postgres: ...


@pytest.fixture(scope="session")
def postgres_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServers]:
    """The shared servers of this process."""
    place = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        place = place.parent  # which all processes of the session have in common
    servers = PostgresServers(place)
    yield servers
    servers.close()


@pytest.fixture(params=VERSIONS, ids=lambda version: f"postgres-{version}")
def postgres_version(request: pytest.FixtureRequest) -> int:
    """Each version in turn. `@pytest.mark.parametrize("postgres_version", [18])` takes one."""
    return int(request.param)


@pytest.fixture
def postgres(postgres_servers: PostgresServers, postgres_version: int) -> Postgres:
    """The shared server of a version: a test leaves it running."""
    return postgres_servers.get(postgres_version)


@pytest.fixture
def database(postgres: Postgres) -> Iterator[PostgresDatabase]:
    """An empty database of this test."""
    name = postgres.create_database()
    yield PostgresDatabase(postgres, name)
    postgres.drop_database(name)


@pytest.fixture
def empty_store(postgres_servers: PostgresServers, postgres_version: int) -> Iterator[PostgresDatabase]:
    """A database with an empty store in it, of this test."""
    stores = postgres_servers.stores(postgres_version)
    name = stores.take()
    yield PostgresDatabase(postgres_servers.get(postgres_version), name)
    stores.give_back(name)


@pytest.fixture
def own_postgres(postgres_servers: PostgresServers) -> Iterator[OwnPostgres]:
    """A way to start servers which a test may stop and kill."""
    made: list[Postgres] = []

    def start(version: int = VERSIONS[-1], **options: Any) -> Postgres:
        server = postgres_servers.make(version, **options)
        made.append(server)
        server.start()
        return server

    yield start
    for server in made:
        server.close()


@pytest.fixture
def bouncer(postgres: Postgres) -> Iterator[Callable[..., PgBouncer]]:
    """A way to start a PgBouncer in front of the shared server."""
    made: list[PgBouncer] = []

    def start(**options: Any) -> PgBouncer:
        made.append(PgBouncer(postgres, **options))
        return made[-1]

    yield start
    for one in made:
        one.close()
