"""A store for each test, on a real server of each version: made in a new `database`, or found in an `empty_store`."""

import pytest

from milepost.stores.postgres.store import PostgresStore
from tests.servers.fixtures import (
    PostgresDatabase,
    database,
    empty_store,
    own_postgres,
    postgres,
    postgres_servers,
    postgres_version,
)

__all__ = ["database", "empty_store", "own_postgres", "postgres", "postgres_servers", "postgres_version", "stores"]


class PostgresPlace:
    """One database, opened as often as a test likes."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def open(self) -> PostgresStore:
        return PostgresStore(self.url, create=True)


@pytest.fixture
def stores(database: PostgresDatabase) -> PostgresPlace:
    return PostgresPlace(database.url)
