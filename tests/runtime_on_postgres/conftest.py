"""The stage of the runtime's tests, on a database of the newest server. Each module here runs one of `tests/runtime`.

All of `tests/runtime` runs on a database with MILEPOST_TEST_STORE=postgres-18; what is of SQLite alone fails there.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime.conftest import pytest_pyfunc_call
from tests.runtime.stage import DatabaseStage, Stage
from tests.servers.fixtures import PostgresServers, postgres_servers

__all__ = ["postgres_servers", "pytest_pyfunc_call", "stage"]
NEWEST = 18


@pytest.fixture
def stage(tmp_path: Path, postgres_servers: PostgresServers, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """A fresh store and a clock that stands still until a test moves it."""
    monkeypatch.setenv("MILEPOST_LOCAL", str(tmp_path / "local"))
    stores = postgres_servers.stores(NEWEST)
    name = stores.take()
    yield DatabaseStage(tmp_path, postgres_servers.get(NEWEST).url(name))
    stores.give_back(name)
