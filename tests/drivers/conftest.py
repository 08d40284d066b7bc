"""One Temporal server for the tests of a process, and one of its own for each test that kills it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.drivers.floor import Floor, floor_in
from tests.servers.temporal import TemporalServer


@pytest.fixture(scope="session")
def temporal() -> Iterator[TemporalServer]:
    """A server that a test leaves running."""
    server = TemporalServer()
    server.start()
    yield server
    server.close()


@pytest.fixture
def own_temporal() -> Iterator[TemporalServer]:
    """A server that a test may kill."""
    server = TemporalServer()
    server.start()
    yield server
    server.close()


@pytest.fixture
def store(tmp_path: Path) -> str:
    """The URL of a store that is to be made. Other kinds of stores are parameters of this."""
    return f"sqlite:///{tmp_path}/store.db"


@pytest.fixture
def floor(tmp_path: Path, store: str, temporal: TemporalServer, request: pytest.FixtureRequest) -> Iterator[Floor]:
    """A store, and the server that all tests share: each has a queue of its own there."""
    with floor_in(tmp_path, temporal, store, queue=request.node.name) as made:
        yield made


@pytest.fixture
def own(tmp_path: Path, store: str, own_temporal: TemporalServer) -> Iterator[Floor]:
    """A store, and a server that the test may kill."""
    with floor_in(tmp_path, own_temporal, store) as made:
        yield made
