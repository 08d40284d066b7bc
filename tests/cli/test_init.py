"""`milepost init` makes a store and never touches what is something else."""

import stat
from pathlib import Path

import apsw
import pytest

from tests.cli.shop_floor import Shop


def test_it_creates_a_private_store_and_says_what_comes_next(bare: Shop) -> None:
    said = bare.ok("init", "--store", "new.db")

    assert "Created new.db" in said
    assert "milepost worker --app module:app --store new.db" in said
    assert stat.S_IMODE((bare.folder / "new.db").stat().st_mode) == 0o600
    assert bare.read("runs", "--store", "new.db") == []


def test_a_store_that_exists_is_left_as_it_is(bare: Shop) -> None:
    first = bare.read("init")

    again = bare.read("init")

    assert first["created"]
    assert not again["created"]
    assert again["id"] == first["id"]
    assert "already" in bare.ok("init")


def foreign_database(file: Path) -> None:
    connection = apsw.Connection(str(file))
    connection.execute("CREATE TABLE people (name TEXT)")
    connection.execute("INSERT INTO people VALUES ('ann')")
    connection.close()


def text_file(file: Path) -> None:
    file.write_text("all my notes\n" * 1_000)


def folder(file: Path) -> None:
    file.mkdir()


@pytest.mark.parametrize("make", [foreign_database, text_file], ids=["a database", "a text"])
@pytest.mark.parametrize("command", ["init", "runs", "doctor", "verify"])
def test_a_file_that_is_no_store_is_refused_and_not_changed_by_a_byte(bare: Shop, make: object, command: str) -> None:
    file = bare.folder / "theirs"
    make(file)  # type: ignore[operator]
    before = file.read_bytes()

    result = bare.milepost(command, "--store", "theirs")

    assert result.exit_code == 4
    assert "is not a Milepost store" in result.output
    assert file.read_bytes() == before
    assert sorted(path.name for path in bare.folder.iterdir()) == ["shop.py", "theirs"]


def test_a_folder_is_no_store(bare: Shop) -> None:
    folder(bare.folder / "theirs")

    assert bare.refused("init", "--store", "theirs") == (4, "not_a_store")


def test_an_empty_file_that_a_killed_init_left_becomes_a_store(bare: Shop) -> None:
    (bare.folder / "half.db").touch(0o600)

    assert bare.read("init", "--store", "half.db")["created"]
    assert bare.read("runs", "--store", "half.db") == []


def test_a_store_in_a_folder_that_is_not_there_is_refused(bare: Shop) -> None:
    assert bare.refused("init", "--store", "nowhere/new.db") == (4, "store_error")
