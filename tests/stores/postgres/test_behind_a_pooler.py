"""The same behind PgBouncer in transaction mode, where each transaction may meet another connection of the server."""

from collections.abc import Iterator

import pytest

from milepost.stores.postgres.connection import address, connect, settle
from milepost.testing import store_conformance as conformance
from tests.servers.fixtures import PostgresDatabase, PostgresServers
from tests.servers.pgbouncer import PgBouncer
from tests.stores.postgres.conftest import PostgresPlace

VERSION = 18
pytestmark = pytest.mark.parametrize("postgres_version", [VERSION], ids=[f"postgres-{VERSION}"])


@pytest.fixture(scope="module")
def pooler(postgres_servers: PostgresServers) -> Iterator[PgBouncer]:
    """A pooler with fewer connections to each database than the tests have open."""
    made = PgBouncer(postgres_servers.get(VERSION), connections=3)
    yield made
    made.close()


@pytest.fixture
def stores(empty_store: PostgresDatabase, pooler: PgBouncer) -> Iterator[PostgresPlace]:
    """An empty store, by way of the pooler, which has no connection to it yet."""
    yield PostgresPlace(pooler.url(empty_store.name))
    pooler.cut(empty_store.name)


class TestClaims(conformance.Claims): ...


class TestIdentities(conformance.Identities): ...


class TestJournal(conformance.Journal): ...


class TestKeeping(conformance.Keeping): ...


class TestKilling(conformance.Killing): ...


class TestPools(conformance.Pools): ...


class TestRefusals(conformance.Refusals): ...


class TestSwitches(conformance.Switches): ...


class TestTransactions(conformance.Transactions): ...


def test_a_pooler_is_recognised_and_nothing_is_prepared_behind_it(
    stores: PostgresPlace, empty_store: PostgresDatabase
) -> None:
    """Requirement 33."""
    for url, prepared in ((stores.url, False), (empty_store.url, True)):
        connection = connect(address(url))
        settle(connection, address(url))
        assert (connection.prepare_threshold is not None) is prepared
        connection.close()
