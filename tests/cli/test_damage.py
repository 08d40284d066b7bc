"""What is wrong with a store is named, with its own exit code, and never taken for anything else."""

import json
from pathlib import Path
from typing import cast

import apsw
import pytest

from milepost.core.chain import genesis, link
from tests.cli.shop_floor import Shop

READING = ["runs", "effects", "verify", "doctor"]


def change(shop: Shop, *statements: str, values: tuple[object, ...] = ()) -> None:
    """Change the store behind Milepost's back, as somebody with the file and without scruples would."""
    connection = apsw.Connection(str(shop.folder / "shop.db"))
    triggers = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
    with connection:
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            connection.execute(statement, values)
        assert connection.total_changes() > 0
        for _, sql in triggers:
            connection.execute(str(sql))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()


def flip_a_byte(file: Path, near: bytes) -> None:
    """Flip one bit of the file, inside the bytes that are given."""
    data = bytearray(file.read_bytes())
    assert data.count(near) == 1
    data[data.index(near) + len(near) // 2] ^= 1
    file.write_bytes(data)


@pytest.fixture
def bought(shop: Shop) -> str:
    """A run that is done, with its record in the main file and not in the write-ahead log."""
    run = shop.start("buy", "one")
    shop.drive()
    connection = apsw.Connection(str(shop.folder / "shop.db"))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()
    return run


def test_a_sound_store_verifies_with_every_entry_counted(shop: Shop, bought: str) -> None:
    told = shop.read("verify")

    assert told["sound"]
    assert [(run["run"], run["entries"], run["damage"]) for run in told["runs"]] == [(bought, 5, None)]
    assert told["runs"][0]["chunks"] > 0
    assert "1 of 1 run sound: 5 entries" in shop.ok("verify", bought[:6])
    assert shop.milepost("verify", bought, "--all").exit_code == 2


def test_a_flipped_bit_in_the_file_is_found_and_named_by_run_and_entry(shop: Shop, bought: str) -> None:
    """Requirement 48."""
    whole = shop.start("buy", "two")
    shop.drive()
    flip_a_byte(shop.folder / "shop.db", b'"attempt":1,"result":"receipt for one"')

    result = shop.milepost("verify")

    assert result.exit_code == 1
    assert f"DAMAGED  run {bought}, entry 4:" in result.stdout
    assert "1 of 2 runs sound" in result.stdout
    answered = shop.milepost("verify", "--json")
    assert answered.exit_code == 1
    found = {run["run"]: (run["entry"], run["damage"] is None) for run in json.loads(answered.stdout)["runs"]}
    assert found == {bought: (4, False), whole: (None, True)}
    assert shop.milepost("verify", whole).exit_code == 0


def test_a_damaged_record_is_shown_to_nobody_as_if_it_were_sound(shop: Shop, bought: str) -> None:
    flip_a_byte(shop.folder / "shop.db", b'"attempt":1,"result":"receipt for one"')

    for command in (["journal", bought], ["effects", bought, "--all"]):
        assert shop.refused(*command) == (1, "damaged")
        text = shop.milepost(*command).stderr
        assert "at entry 4" in text
        assert "milepost verify" in text
        assert "Traceback" not in text


@pytest.mark.parametrize(
    ("statement", "entry"),
    [
        ("UPDATE mp_journal SET hash = zeroblob(32) WHERE seq = 3", 3),
        ("DELETE FROM mp_journal WHERE seq = 2", 1),
        ("UPDATE mp_journal SET seq = 9 WHERE seq = 3", 3),
        ("DELETE FROM mp_chunks", None),
        ("UPDATE mp_heads SET hash = zeroblob(32)", 5),
        ("UPDATE mp_runs SET status = 'failed'", None),
    ],
    ids=["hash", "missing entry", "number", "chunks", "head", "status"],
)
def test_whatever_is_changed_behind_the_record_is_found(
    shop: Shop, bought: str, statement: str, entry: int | None
) -> None:
    """Requirement 48."""
    change(shop, statement)

    answered = shop.milepost("verify", "--json")

    assert answered.exit_code == 1
    told = json.loads(answered.stdout)
    assert not told["sound"]
    assert [(run["run"], run["entry"]) for run in told["runs"]] == [(bought, entry)]


def test_a_record_moved_to_another_run_does_not_verify(shop: Shop, bought: str) -> None:
    """Requirement 48."""
    other = shop.start("buy", "two")
    shop.drive()
    change(shop, "UPDATE mp_runs SET id = 'x' || id")
    change(shop, "UPDATE mp_runs SET id = CASE id WHEN 'x' || ?1 THEN ?2 ELSE ?1 END", values=(bought, other))

    answered = shop.milepost("verify", "--json")

    assert answered.exit_code == 1
    assert {run["entry"] for run in json.loads(answered.stdout)["runs"]} == {1}


def test_a_cut_page_is_found_and_is_no_crash(shop: Shop, bought: str) -> None:
    file = shop.folder / "shop.db"
    data = bytearray(file.read_bytes())
    size = int.from_bytes(data[16:18], "big")
    for page in range(3, len(data) // size):
        data[page * size : page * size + 8] = b"\xff" * 8
    file.write_bytes(data)

    for command in READING:
        result = shop.milepost(command)
        assert result.exit_code in {1, 4}, (command, result.output)
        assert "Traceback" not in result.output


def test_a_store_of_a_newer_version_is_refused_and_left_alone(shop: Shop, bought: str) -> None:
    change(shop, "INSERT INTO mp_migrations VALUES (99, '0099_future', 'x', 0)")
    before = (shop.folder / "shop.db").read_bytes()

    for command in (*READING, "init"):
        result = shop.milepost(command, "--store", "shop.db")
        assert result.exit_code == 4
        assert "Upgrade Milepost" in result.output
    assert shop.refused("show", bought) == (4, "newer_schema")
    assert shop.refused("start", "buy", '"two"') == (4, "newer_schema")
    assert shop.refused("worker") == (4, "newer_schema")
    assert (shop.folder / "shop.db").read_bytes() == before


def test_an_entry_of_a_newer_version_is_refused_by_name(shop: Shop, bought: str) -> None:
    connection = apsw.Connection(str(shop.folder / "shop.db"))
    [(body,)] = cast("list[tuple[bytes]]", connection.execute("SELECT body FROM mp_journal WHERE seq = 3").fetchall())
    connection.close()
    newer = body.replace(b"effect_started.1", b"effect_started.9")
    change(shop, "UPDATE mp_journal SET body = ? WHERE seq = 3", values=(newer,))
    rehash(shop, bought)

    assert shop.refused("journal", bought) == (4, "newer_schema")
    assert "effect_started" in shop.milepost("journal", bought).stderr


def rehash(shop: Shop, run: str) -> None:
    """Make the chain of a run fit its bytes again, as a newer version would have written it."""
    connection = apsw.Connection(str(shop.folder / "shop.db"))
    [(store,)] = connection.execute("SELECT value FROM mp_meta WHERE name = 'store_id'").fetchall()
    rows = cast(
        "list[tuple[int, bytes]]", connection.execute("SELECT row, body FROM mp_journal ORDER BY seq").fetchall()
    )
    connection.close()
    digest = genesis(str(store), run)
    for row, body in rows:
        digest = link(digest, body)
        change(shop, "UPDATE mp_journal SET hash = ? WHERE row = ?", values=(digest, row))
    change(shop, "UPDATE mp_heads SET hash = ?", values=(digest,))


def test_a_migration_that_is_not_ours_is_refused(shop: Shop) -> None:
    change(shop, "UPDATE mp_migrations SET checksum = 'another' WHERE number = 1")

    assert shop.refused("runs") == (4, "not_a_store")


@pytest.mark.parametrize("command", [*READING, "show x", "journal x", "plan x", "kill x", "approve x"])
def test_a_missing_store_ends_every_command_with_code_4_and_says_how_to_make_one(bare: Shop, command: str) -> None:
    result = bare.milepost(*command.split(), "--store", "gone.db")

    assert result.exit_code == 4
    assert "milepost init --store gone.db" in result.output
    assert not (bare.folder / "gone.db").exists()
