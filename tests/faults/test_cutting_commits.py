"""The proxy cuts just where it says: by what it let pass, the server has the commit or has it not."""

from __future__ import annotations

from contextlib import closing

import psycopg
import pytest

from faults.commits import BEHIND, PLACES, CommitProxy
from tests.servers.fixtures import PostgresDatabase


@pytest.mark.parametrize("pipelined", [True, False])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("postgres_version", [15, 18])
def test_a_commit_is_cut_at_a_chosen_message(database: PostgresDatabase, place: str, *, pipelined: bool) -> None:
    database.server.execute("CREATE TABLE kept (n int)", database.name)
    server = database.server
    with closing(CommitProxy("127.0.0.1", server.port, commit=2, place=place)) as proxy:
        url = f"postgresql://owner@127.0.0.1:{proxy.port}/{database.name}"
        connection = psycopg.connect(url, autocommit=True)

        for number in (1, 2):
            connection.execute("BEGIN")
            connection.execute("INSERT INTO kept VALUES (%s)", [number])
            if number == 1:
                connection.execute("COMMIT")
            elif pipelined:
                with pytest.raises(psycopg.OperationalError), connection.pipeline():
                    connection.execute("COMMIT")
            else:
                with pytest.raises(psycopg.OperationalError):
                    connection.execute("COMMIT")
        connection.close()

        assert proxy.cut.is_set()
    kept = {row[0] for row in server.execute("SELECT n FROM kept", database.name)}
    executed = place in BEHIND or (pipelined and place == "all but the last")  # which is no more than the Sync
    assert kept == ({1, 2} if executed else {1})
