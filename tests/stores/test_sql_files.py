"""SQL and migrations are read from files: by name, in order, and never guessed."""

from pathlib import Path

import pytest

from milepost.errors import NewerSchema, NotAStore
from milepost.stores import named_sql
from milepost.stores.migrate import Migration, known, pending
from milepost.stores.sqlite.connection import MIGRATIONS, SQL


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> tuple[str, Path]:
    """An empty package: its name and its folder."""
    name = f"sql_of_{abs(hash(request.node.nodeid))}"
    folder = tmp_path / name
    folder.mkdir()
    (folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    return name, folder


def migration(number: int, name: str = "") -> Migration:
    return Migration(number, name or f"{number:04}_step", "SELECT 1", f"sum {number}")


def applied(*migrations: Migration) -> list[tuple[int, str, str]]:
    return [(one.number, one.name, one.checksum) for one in migrations]


def test_statements_are_read_by_name_without_their_comments(package: tuple[str, Path]) -> None:
    name, folder = package
    (folder / "q.sql").write_text("-- A page.\n-- name: one\nSELECT 1;\n\n-- Why.\n-- name: two\nSELECT 2,\n  3;\n")

    assert named_sql.load(name, "q.sql") == {"one": "SELECT 1", "two": "SELECT 2,\n  3"}


def test_a_name_that_stands_twice_is_refused(package: tuple[str, Path]) -> None:
    name, folder = package
    (folder / "q.sql").write_text("-- name: one\nSELECT 1;\n-- name: one\nSELECT 2;\n")

    with pytest.raises(ValueError, match="'one' twice"):
        named_sql.load(name, "q.sql")


def test_every_statement_of_the_store_has_a_text() -> None:
    assert len(SQL) > 50
    assert [name for name, sql in SQL.items() if not sql] == []


def test_migrations_are_read_in_order_with_their_checksums(package: tuple[str, Path]) -> None:
    name, folder = package
    (folder / "0002_more.sql").write_text("SELECT 2;")
    (folder / "0001_first.sql").write_text("SELECT 1;")
    (folder / "notes.txt").write_text("no migration")

    found = known(name)

    assert [(one.number, one.name, one.sql) for one in found] == [
        (1, "0001_first", "SELECT 1;"), (2, "0002_more", "SELECT 2;")
    ]  # fmt: skip
    assert len({one.checksum for one in found}) == 2


@pytest.mark.parametrize("names", [["0002_x.sql"], ["0001_a.sql", "0001_b.sql"], ["0001_a.sql", "0003_b.sql"]])
def test_a_migration_that_is_missing_or_stands_twice_is_refused(package: tuple[str, Path], names: list[str]) -> None:
    name, folder = package
    for file in names:
        (folder / file).write_text("SELECT 1;")

    with pytest.raises(ValueError, match="should have number"):
        known(name)


def test_what_is_not_applied_yet_is_pending_in_order() -> None:
    every = [migration(1), migration(2), migration(3)]

    assert pending("x", every, []) == every
    assert pending("x", every, applied(*every[:1])) == every[1:]
    assert pending("x", every, applied(*every)) == []


def test_a_store_that_is_ahead_of_us_is_refused() -> None:
    with pytest.raises(NewerSchema) as refused:
        pending("x", [migration(1)], applied(migration(1), migration(2)))

    assert (refused.value.found, refused.value.known) == (2, 1)


@pytest.mark.parametrize("other", [migration(1, "0001_other"), Migration(1, "0001_step", "SELECT 2", "another sum")])
def test_a_migration_that_was_applied_from_another_file_is_refused(other: Migration) -> None:
    with pytest.raises(NotAStore, match="migration 1"):
        pending("x", [migration(1)], applied(other))


def test_the_store_s_own_migrations_are_numbered_without_a_gap() -> None:
    assert [one.number for one in MIGRATIONS] == list(range(1, len(MIGRATIONS) + 1))
