"""Cancelling a parent of many on PostgreSQL: what is read for each of its children, counted by the server."""

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.runtime.stage import DatabaseStage, until
from tests.runtime.test_fan_out import hold_all, listen
from tests.servers.fixtures import PostgresServers

FEW, MANY = 50, 200
READ = """
SELECT (SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) FROM pg_stat_user_tables)
    + (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes)
"""
OTHERS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


class Counted(DatabaseStage):
    """A stage whose own looks the server does not count."""

    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(folder, url)
        self._watch = psycopg.connect(url, autocommit=True, options="-c track_counts=off")

    def number(self, sql: str) -> int:
        ((found,),) = self._watch.execute(sql.encode()).fetchall()
        return int(found)

    async def is_(self, sql: str, wanted: int) -> None:
        async def ask() -> bool:
            return self.number(sql) == wanted

        await until(ask, sql)

    async def read_per_child(self, count: int) -> float:
        """Return how many rows and entries of indexes are read, for each child, to start so many and to cancel them.

        By one process, whose statements are planned while the store is empty.
        """
        live = "SELECT count(*) FROM mp_runs WHERE run > 0 AND status {}"
        async with self.app(hold_all, listen) as app:
            handle = await app.start(hold_all, count)
            await self.is_(live.format("= 'parked'"), count + 1)
            await app.cancel(handle.id, why="not needed")
            await self.is_(live.format("= 'cancelled'"), count + 1)
        await self.is_(OTHERS, 0)  # they have told what they read
        return self.number(READ) / count

    def close(self) -> None:
        self._watch.close()


@pytest.fixture
def stages(
    tmp_path: Path, postgres_servers: PostgresServers, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[Counted]]:
    """Two fresh stores: nothing was planned, or counted, for what the other one holds."""
    monkeypatch.setenv("MILEPOST_LOCAL", str(tmp_path / "local"))
    server = postgres_servers.get(18)
    names = [server.create_database() for _ in range(2)]
    made = [Counted(tmp_path, server.url(name)) for name in names]
    yield made
    for stage, name in zip(made, names, strict=True):
        stage.close()
        server.drop_database(name)


async def test_what_is_read_to_cancel_a_child_does_not_grow_with_the_number_of_its_siblings(
    stages: list[Counted],
) -> None:
    few = await stages[0].read_per_child(FEW)

    many = await stages[1].read_per_child(MANY)

    assert many < 1.5 * few, (few, many)
