"""Tables that a surface keeps beside those of a store."""

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from milepost.errors import NewerSchema, NotAStore, StoreError
from milepost.opening import open_tables
from milepost.stores.postgres.guarded import allowed
from milepost.stores.tables import Rows, Tables

FIRST = {
    "sqlite": "CREATE TABLE milepost_probe (id INTEGER PRIMARY KEY, word TEXT NOT NULL) STRICT;",
    "postgres": "CREATE TABLE milepost_probe (id integer PRIMARY KEY, word text NOT NULL);",
}
SECOND = "CREATE TABLE milepost_probe_more (id integer PRIMARY KEY);"
QUERIES = """
-- name: put
INSERT INTO milepost_probe (id, word) VALUES ({0}1, {0}2);
-- name: words
SELECT word FROM milepost_probe ORDER BY id;
"""


class Surface:
    """A package that brings tables, in the middle of being developed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.package = f"surface_{abs(hash(str(folder)))}"
        for kind, mark in (("sqlite", "?"), ("postgres", "$")):
            inside = folder / self.package / kind / "migrations"
            inside.mkdir(parents=True)
            for made in (inside.parents[1], inside.parent, inside):
                (made / "__init__.py").touch()
            (inside.parent / "queries.sql").write_text(QUERIES.format(mark))
            self.migration("0001_first.sql", FIRST[kind], kind)

    def migration(self, name: str, sql: str, *kinds: str) -> None:
        """Write a migration, or write it anew."""
        for kind in kinds or ("sqlite", "postgres"):
            (self.folder / self.package / kind / "migrations" / name).write_text(sql)


@pytest.fixture
def surface(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Surface:
    """A package with one table."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return Surface(tmp_path)


@pytest.fixture
def tables(store: str, surface: Surface) -> Iterator[Tables]:
    """Its tables in a fresh store."""
    opened = open_tables(store, surface.package)
    yield opened
    opened.close()


def words(tables: Tables) -> list[str]:
    return [word for (word,) in tables.look(lambda rows: rows.run("words"))]


def test_what_was_written_is_there_for_whoever_opens_it_next(store: str, surface: Surface, tables: Tables) -> None:
    tables.do(lambda rows: rows.each("put", [(1, "one"), (2, "two")]))

    again = open_tables(store, surface.package)

    assert words(again) == ["one", "two"]
    again.close()


def test_what_is_raised_inside_takes_everything_back(tables: Tables) -> None:
    def work(rows: Rows) -> None:
        rows.run("put", 1, "one")
        raise LookupError

    with pytest.raises(LookupError):
        tables.do(work)

    assert words(tables) == []


def test_a_statement_that_fails_is_an_error_of_the_store_and_the_next_one_works(tables: Tables) -> None:
    tables.do(lambda rows: rows.run("put", 1, "one"))
    with pytest.raises(StoreError):
        tables.do(lambda rows: rows.run("put", 1, "again"))

    tables.do(lambda rows: rows.run("put", 2, "two"))

    assert words(tables) == ["one", "two"]


def test_threads_take_turns(tables: Tables) -> None:
    def put(number: int, rows: Rows) -> None:
        rows.run("put", number, "x")

    def write(begin: int) -> None:
        for number in range(begin, begin + 20):
            tables.do(partial(put, number))

    threads = [threading.Thread(target=write, args=(20 * position,)) for position in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()

    assert len(words(tables)) == 80


def test_a_newer_version_adds_to_the_tables_and_an_older_one_refuses_them(
    store: str, surface: Surface, tables: Tables
) -> None:
    tables.do(lambda rows: rows.run("put", 1, "one"))
    surface.migration("0002_more.sql", SECOND)
    newer = open_tables(store, surface.package)
    assert words(newer) == ["one"]
    newer.close()
    for kind in ("sqlite", "postgres"):
        (surface.folder / surface.package / kind / "migrations" / "0002_more.sql").unlink()

    with pytest.raises(NewerSchema):
        open_tables(store, surface.package)


def test_a_migration_that_is_no_longer_what_was_applied_is_refused(
    store: str, surface: Surface, tables: Tables
) -> None:
    surface.migration("0001_first.sql", SECOND)

    with pytest.raises(NotAStore, match="another checksum"):
        open_tables(store, surface.package)


def test_a_transactional_tool_may_not_reach_for_them_on_postgresql() -> None:
    assert allowed("SELECT * FROM orders")
    assert not allowed("SELECT * FROM milepost_langgraph_threads")
