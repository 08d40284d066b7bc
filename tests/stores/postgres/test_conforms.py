"""The PostgreSQL store does what every store must do, and runs tools inside its transaction, on every version."""

import pytest

from milepost.testing import store_conformance as conformance
from tests.servers.fixtures import PostgresDatabase, PostgresServers
from tests.stores.postgres.conftest import PostgresPlace


@pytest.fixture
def stores(empty_store: PostgresDatabase) -> PostgresPlace:
    """An empty store. `TestOpening` and the other modules here have theirs made by the first who opens it."""
    return PostgresPlace(empty_store.url)


class TestBreakers(conformance.Breakers): ...


class TestChildren(conformance.Children): ...


class TestChunks(conformance.Chunks): ...


class TestClaims(conformance.Claims): ...


class TestIdentities(conformance.Identities): ...


class TestInbox(conformance.Inbox): ...


class TestJournal(conformance.Journal): ...


class TestKeeping(conformance.Keeping): ...


class TestKilling(conformance.Killing): ...


class TestOpening(conformance.Opening):
    @pytest.fixture
    def stores(self, postgres_servers: PostgresServers, postgres_version: int) -> PostgresPlace:
        """A database of a server that keeps what it was given; the others skip the disk, to be quick."""
        server = postgres_servers.keeping(postgres_version)
        return PostgresPlace(server.url(server.create_database()))


class TestPools(conformance.Pools): ...


class TestProjections(conformance.Projections): ...


class TestRefusals(conformance.Refusals): ...


class TestSchedules(conformance.Schedules): ...


class TestSwitches(conformance.Switches): ...


class TestTransactions(conformance.Transactions): ...


class TestTurns(conformance.Turns): ...


class TestWaits(conformance.Waits): ...


def test_no_part_of_the_suite_is_left_out() -> None:
    run = {base for name, kind in globals().items() if name.startswith("Test") for base in kind.__bases__}

    assert run == {*conformance.ALL, conformance.Transactions}


def test_every_part_of_the_suite_proves_something() -> None:
    for part in (*conformance.ALL, conformance.Transactions):
        proofs = [name for name in vars(part) if name.startswith("test_")]
        assert len(proofs) >= 5, part
        assert len(set(proofs)) == len(proofs)
