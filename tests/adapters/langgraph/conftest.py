"""A fresh store for each test: a file, and a database of a real server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime.conftest import pytest_pyfunc_call
from tests.servers.fixtures import PostgresServers, postgres_servers

__all__ = ["postgres_servers", "pytest_pyfunc_call", "store"]
NEWEST = 18


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a store that is not there yet. `@pytest.mark.parametrize("store", ["sqlite"], indirect=True)`."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'store.db'}"
        return
    monkeypatch.setenv("MILEPOST_LOCAL", str(tmp_path / "local"))
    servers: PostgresServers = request.getfixturevalue("postgres_servers")
    server = servers.get(NEWEST)
    name = server.create_database()
    yield server.url(name)
    server.drop_database(name)
