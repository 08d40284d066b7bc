"""One Temporal server for the tests of a process. A test that kills it starts it again."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.drivers.floor import Floor, floor_in
from tests.polling import eventually
from tests.servers.fixtures import PostgresServers, postgres_servers
from tests.servers.temporal import TemporalServer

__all__ = ["postgres_servers"]
NEWEST = 18


@pytest.fixture(scope="session")
def temporal_of_process() -> Iterator[TemporalServer]:
    """The server of this process, not started."""
    server = TemporalServer()
    yield server
    server.close()


@pytest.fixture
def temporal(temporal_of_process: TemporalServer) -> TemporalServer:
    """A server that runs. What it was told by earlier tests it may have forgotten."""
    if not temporal_of_process.running:
        temporal_of_process.start()
    eventually(temporal_of_process.answers, saying="Temporal to answer")  # a start may have been given up before it did
    return temporal_of_process


@pytest.fixture
def kind() -> str:
    """The kind of store: `ON_BOTH` makes a test run on each."""
    return "sqlite"


@pytest.fixture
def store(tmp_path: Path, kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a store that is to be made."""
    monkeypatch.setenv("MILEPOST_LOCAL", str(tmp_path / "local"))
    if kind == "sqlite":
        yield f"sqlite:///{tmp_path}/store.db"
        return
    servers: PostgresServers = request.getfixturevalue("postgres_servers")
    server = servers.get(NEWEST)
    name = server.create_database()
    yield server.url(name)
    server.drop_database(name)


@pytest.fixture
def floor(tmp_path: Path, store: str, temporal: TemporalServer, request: pytest.FixtureRequest) -> Iterator[Floor]:
    """A store, and the server: each test has a queue of its own there."""
    with floor_in(tmp_path, temporal, store, queue=request.node.name) as made:
        yield made
