"""`milepost doctor` finds what is wrong on a real file, says what to type, and changes nothing."""

import json
import os
import time
from pathlib import Path
from typing import Any

import apsw
import pytest

from milepost.app import open_store
from milepost.runtime.clock import SystemClock
from milepost.stores.health import clock
from milepost.stores.sqlite import health
from milepost.stores.sqlite.connection import MIGRATIONS
from tests.cli.shop_floor import Shop
from tests.polling import eventually

DAY_MS = 86_400_000


def findings(shop: Shop, code: int) -> dict[str, Any]:
    """Ask the doctor; return its findings by name."""
    result = shop.milepost("doctor", "--json")
    assert result.exit_code == code, result.output
    told = json.loads(result.stdout)
    assert told["ok"] == (code == 0)
    return {one["what"]: one for one in told["findings"]}


def wrong(shop: Shop) -> dict[str, Any]:
    return {name: one for name, one in findings(shop, 1).items() if one["state"] == "wrong"}


def test_nothing_is_wrong_with_a_new_store(shop: Shop) -> None:
    found = findings(shop, 0)

    assert {one["state"] for one in found.values()} == {"ok"}
    assert {"library", "journal mode", "synchronous", "migrations", "modes", "disk", "clock"} <= set(found)
    every = f"{len(MIGRATIONS)} of {len(MIGRATIONS)} applied"
    assert (found["journal mode"]["found"], found["migrations"]["found"]) == ("wal", every)
    assert "nothing is wrong" in shop.ok("doctor")


def test_it_leaves_the_file_as_it_was(shop: Shop) -> None:
    shop.start("faxing", "ann")
    shop.drive()
    shop.ok("runs")
    before = (shop.folder / "shop.db").read_bytes()

    shop.milepost("doctor")
    shop.milepost("doctor")

    assert (shop.folder / "shop.db").read_bytes() == before


def test_a_living_worker_keeps_its_locks_and_its_runs_while_the_doctor_looks(shop: Shop) -> None:
    worker = shop.worker()
    shop.start("buy", "hangs")
    eventually(shop.ledger, saying="the effect is in flight")

    for _ in range(3):
        found = findings(shop, 0)

    assert (found["workers"]["found"], found["takeover"]["state"], found["lock files"]["state"]) == (
        "1 running",
        "ok",
        "ok",
    )
    assert worker.poll() is None
    assert [row["status"] for row in shop.read("runs")] == ["running"]
    assert len(shop.ledger()) == 1


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o602])
def test_a_file_that_others_can_reach_is_wrong(shop: Shop, mode: int) -> None:
    (shop.folder / "shop.db").chmod(mode)

    found = wrong(shop)

    assert list(found) == ["modes"]
    assert found["modes"]["todo"].startswith("chmod go= shop.db")
    (shop.folder / "shop.db").chmod(0o600)
    findings(shop, 0)


def test_lock_files_that_others_can_reach_are_wrong(shop: Shop) -> None:
    shop.start("buy", "one")
    shop.drive()
    (shop.folder / "shop.db.workers").chmod(0o777)

    assert list(wrong(shop)) == ["lock files"]


class Tomorrow(SystemClock):
    """A clock that stands a day ahead."""

    def now(self) -> int:
        return super().now() + DAY_MS


def test_a_record_from_the_future_shows_a_clock_that_is_wrong(shop: Shop) -> None:
    app = shop.app()
    app._clock = Tomorrow()
    shop.start("sleeping")

    found = wrong(shop)

    assert list(found) == ["clock"]
    assert "s from now" in found["clock"]["found"]


def test_what_a_killed_worker_held_is_wrong_until_one_runs_again(shop: Shop) -> None:
    worker = shop.worker("--no-supervisor")
    run = shop.start("buy", "hangs")
    eventually(shop.ledger, saying="the effect is in flight")
    worker.kill()
    worker.wait()

    found = findings(shop, 1)

    assert found["takeover"]["state"] == "wrong"
    assert run[:8] in found["takeover"]["found"]
    assert found["takeover"]["todo"].startswith("milepost worker")
    assert (found["lock files"]["state"], found["workers"]["found"]) == ("note", "none running")
    shop.drive()
    assert shop.status(run) == "done"
    assert len(shop.ledger()) == 1
    assert findings(shop, 0)["takeover"]["state"] == "ok"


def test_messages_that_nobody_takes_are_wrong_where_no_worker_runs(shop: Shop) -> None:
    run = shop.start("sleeping")
    shop.ok("send", run, "go", "1")
    shop.ok("send", run, "go", "2")

    found = wrong(shop)

    assert found["inbox"]["found"] == f"2 waiting for {run[:8]}"
    shop.drive()
    assert findings(shop, 0)["inbox"]["state"] == "ok"


def test_runs_that_need_a_person_are_a_note_and_no_fault(shop: Shop) -> None:
    """Requirement 39."""
    run = shop.start("faxing", "ann")
    shop.drive()

    found = findings(shop, 0)["needs you"]

    assert (found["state"], found["todo"]) == ("note", "milepost runs --needs-you")
    assert run[:8] in found["found"]
    assert "milepost runs --needs-you" in shop.ok("doctor")


def test_a_disk_without_room_is_wrong(tmp_path: Path) -> None:
    free = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize

    assert health.room(str(tmp_path / "shop.db"), least=1).ok
    assert not health.room(str(tmp_path / "shop.db"), least=free * 2).ok


def test_another_journal_mode_and_another_synchronous_are_seen(tmp_path: Path) -> None:
    file = str(tmp_path / "shop.db")
    shop_store(file)
    connection = apsw.Connection(file)
    connection.execute("PRAGMA journal_mode = DELETE").fetchall()
    connection.execute("PRAGMA synchronous = OFF").fetchall()

    found = {check.name: check for check in health.checks(connection, file, time.time_ns() // 1_000_000)}

    assert (found["journal mode"].ok, found["journal mode"].found) == (False, "delete")
    assert (found["synchronous"].ok, found["synchronous"].found) == (False, "0 (2 is FULL)")
    connection.close()


def shop_store(file: str) -> None:
    open_store(f"sqlite:///{file}", create=True).close()


def test_a_clock_a_moment_behind_is_no_fault() -> None:
    now = time.time_ns() // 1_000_000

    assert clock(now + 1_000, now).ok
    assert not clock(now + 10_000, now).ok
    assert clock(0, now).found == "nothing is written yet"


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (None, 4, "store_missing"),
        ("notes\n" * 500, 4, "not_a_store"),
    ],
    ids=["missing", "a text"],
)
def test_a_store_that_cannot_be_opened_is_a_finding(bare: Shop, text: str | None, code: int, said: str) -> None:
    if text is not None:
        (bare.folder / "it.db").write_text(text)

    result = bare.milepost("doctor", "--store", "it.db", "--json")

    assert result.exit_code == code
    assert [(one["what"], one["state"], one["found"]) for one in json.loads(result.stdout)["findings"]] == [
        ("store", "wrong", said)
    ]
