"""Columns as they are packed for the server: what it unpacks is what was given, whichever way they were packed."""

from typing import Any

import psycopg
import pytest

from milepost.stores.postgres.connection import SQL
from milepost.stores.postgres.wire import Wire
from tests.servers.fixtures import PostgresDatabase

pytestmark = pytest.mark.parametrize("postgres_version", [15, 18], ids=lambda version: f"postgres-{version}")
UNNEST = b"SELECT * FROM unnest($1::bigint[], $2::text[], $3::bytea[]) AS u (number, text, bytes)"
ROWS: dict[str, list[tuple[int | None, str | None, bytes | None]]] = {
    "none": [],
    "one": [(7, "seven", b"\x07")],
    "distinct": [(1, "a", b""), (-(2**63), "", b"\0\xff"), (2**63 - 1, "ä\u2400", b"x" * 300)],
    "equal": [(5, "same", b"same")] * 40,
    "equal and empty": [(0, "", b"")] * 3,
    "null": [(None, None, None)] * 3,
    "some null": [(None, "a", None), (2, None, b"2"), (2, "a", b"2"), (None, None, None)],
}


@pytest.mark.parametrize("name", ROWS)
def test_columns_arrive_as_they_were_given(
    database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(SQL, "unnest", UNNEST)
    rows = ROWS[name]
    columns: list[list[Any]] = [[row[at] for row in rows] for at in range(3)]
    with psycopg.connect(database.url, autocommit=True) as connection:
        wire = Wire(connection)
        wire.open()
        assert wire.rows("unnest", wire.send("unnest", columns)) == rows
        wire.close()


def test_a_text_with_a_nul_shows_its_symbol_alone_and_among_equals(
    database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SQL, "unnest", UNNEST)
    with psycopg.connect(database.url, autocommit=True) as connection:
        wire = Wire(connection)
        wire.open()
        for texts in (["a\0b"] * 3, ["a\0b", "c"]):
            found = wire.rows("unnest", wire.send("unnest", [[1] * len(texts), texts, [b""] * len(texts)]))
            assert [row[1] for row in found] == [text.replace("\0", "\u2400") for text in texts]
        wire.close()
