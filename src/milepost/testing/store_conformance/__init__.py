"""What every store must do, as pytest classes by concept: subclass them beside a fixture that opens your store.

    # conftest.py
    import pytest
    pytest.register_assert_rewrite("milepost.testing.store_conformance")

    @pytest.fixture
    def stores(tmp_path):
        return MyStores(tmp_path)          # a StoreFactory: `async def open(self) -> Store`, each time the same place

    # test_my_store.py
    from milepost.testing import store_conformance as conformance

    class TestClaims(conformance.Claims): ...
    class TestJournal(conformance.Journal): ...

`ALL` lists what every store must pass. `Transactions` is for a store whose capabilities say `transactional`; it runs
PostgreSQL's and SQLite's common SQL. A test opens the same place several times and lets the openings compete, as
processes do. Everything goes through the Store protocol; what is stored in is nobody's business here.
"""

from milepost.testing.store_conformance.breakers import Breakers, Waits
from milepost.testing.store_conformance.children import Children
from milepost.testing.store_conformance.chunks import Chunks
from milepost.testing.store_conformance.claims import Claims
from milepost.testing.store_conformance.identities import Identities
from milepost.testing.store_conformance.inbox import Inbox
from milepost.testing.store_conformance.journal import Journal
from milepost.testing.store_conformance.keeping import Keeping
from milepost.testing.store_conformance.killing import Killing
from milepost.testing.store_conformance.opening import Opening
from milepost.testing.store_conformance.pools import Pools
from milepost.testing.store_conformance.projections import Projections
from milepost.testing.store_conformance.refusals import Refusals
from milepost.testing.store_conformance.schedules import Schedules
from milepost.testing.store_conformance.subject import StoreFactory, Subject, proves
from milepost.testing.store_conformance.switches import Switches
from milepost.testing.store_conformance.transactions import Transactions
from milepost.testing.store_conformance.turns import Turns

ALL = (
    Breakers, Children, Chunks,
    Claims, Identities, Inbox, Journal, Keeping, Killing, Opening, Pools, Projections, Refusals,
    Schedules, Switches, Turns, Waits,
)  # fmt: skip

__all__ = [
    "ALL",
    "Breakers",
    "Children",
    "Chunks",
    "Claims",
    "Identities",
    "Inbox",
    "Journal",
    "Keeping",
    "Killing",
    "Opening",
    "Pools",
    "Projections",
    "Refusals",
    "Schedules",
    "StoreFactory",
    "Subject",
    "Switches",
    "Transactions",
    "Turns",
    "Waits",
    "proves",
]
