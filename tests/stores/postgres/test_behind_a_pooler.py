"""The same behind PgBouncer in transaction mode, where each transaction may meet another connection of the server."""

from collections.abc import Callable

import pytest

from milepost.stores.postgres.connection import address, connect, settle
from milepost.testing import store_conformance as conformance
from tests.servers.fixtures import PostgresDatabase, bouncer
from tests.servers.pgbouncer import PgBouncer
from tests.stores.postgres.conftest import PostgresPlace

__all__ = ["bouncer"]
pytestmark = pytest.mark.parametrize("postgres_version", [18], ids=["postgres-18"])


@pytest.fixture
def stores(database: PostgresDatabase, bouncer: Callable[..., PgBouncer]) -> PostgresPlace:
    """The database, by way of a pooler with fewer connections than the tests have open."""
    return PostgresPlace(bouncer(connections=3).url(database.name))


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
    stores: PostgresPlace, database: PostgresDatabase
) -> None:
    """Requirement 33."""
    for url, prepared in ((stores.url, False), (database.url, True)):
        connection = connect(address(url))
        settle(connection, address(url))
        assert (connection.prepare_threshold is not None) is prepared
        connection.close()
