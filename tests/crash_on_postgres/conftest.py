"""The folder of the crash tests, with a store in a database of the newest server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.desk import ELSEWHERE
from tests.crash.killing import LOCAL
from tests.servers.fixtures import PostgresServers, postgres_servers

__all__ = ["postgres_servers"]
NEWEST = 18


@pytest.fixture
def folder(tmp_path: Path, postgres_servers: PostgresServers, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder that a worker works in."""
    made = tmp_path / "desk"
    made.mkdir()
    monkeypatch.setenv("MILEPOST_LOCAL", str(made / LOCAL))
    server = postgres_servers.get(NEWEST)
    name = server.create_database()
    (made / ELSEWHERE).write_text(server.url(name))
    yield made
    server.drop_database(name)
