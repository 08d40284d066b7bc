"""Freezing, thawing, stopping and what is listed of it, on the command line."""

import apsw
import pytest

from milepost.core import codec
from milepost.core import store_entries as s
from milepost.stores import marks
from tests.cli.shop_floor import Shop


def audit(shop: Shop) -> list[s.SwitchSet | s.SwitchLifted]:
    """What the store's own journal says, oldest first."""
    connection = apsw.Connection("shop.db")
    bodies = connection.execute("SELECT body FROM mp_journal WHERE run = 0 ORDER BY seq").fetchall()
    connection.close()
    return [codec.decode(row[0]) for row in bodies]  # type: ignore[misc,arg-type]


def test_what_is_frozen_does_not_start_until_it_is_thawed_and_both_are_on_record(shop: Shop) -> None:
    """Requirement 66. Requirement 60."""
    shop.ok("freeze", "tool:charge", "--why", "charged twice", "--by", "ann")
    run = shop.start("buy", "one")
    shop.drive()
    assert shop.ledger() == []
    (listed,) = shop.read("switches")["switches"]
    assert {name: listed[name] for name in ("scope", "kind", "why", "by", "waiting")} == {
        "scope": "tool:charge", "kind": "freeze", "why": "charged twice", "by": "ann", "waiting": 1,
    }  # fmt: skip
    [row] = shop.read("runs")
    assert (row["status"], row["waits_for"]) == ("parked", "switch")

    told = shop.read("thaw", "tool:charge", "--why", "it was another one", "--by", "bob")
    shop.drive()

    assert (told["lifted"], told["due"]) == (1, 1)
    assert shop.status(run) == "done"
    assert shop.ledger() == ["one 500"]
    was, now = audit(shop)
    assert isinstance(was, s.SwitchSet)
    assert (was.scope, was.by, was.why) == ("tool:charge", "ann", "charged twice")
    assert isinstance(now, s.SwitchLifted)
    assert (now.scope, now.by, now.why) == ("tool:charge", "bob", "it was another one")


def test_the_history_says_who_stopped_what_and_why(shop: Shop) -> None:
    assert "Nothing was ever stopped." in shop.ok("switches", "--history")
    shop.ok("freeze", "tool:charge", "--why", "charged twice", "--by", "ann")
    shop.ok("thaw", "tool:charge", "--why", "it was another one", "--by", "bob")

    told = [(line["entry"], line["scope"], line["by"], line["why"]) for line in shop.read("switches", "--history")]

    assert told == [
        ("switch_set", "tool:charge", "ann", "charged twice"),
        ("switch_lifted", "tool:charge", "bob", "it was another one"),
    ]
    assert "it was another one" in shop.ok("switches", "--history")


def test_a_reason_is_required_and_a_scope_must_be_one(shop: Shop) -> None:
    for command in ("freeze", "thaw"):
        assert shop.refused(command, "all") == (2, "usage")
        assert shop.refused(command, "everything", "--why", "x") == (2, "unknown_scope")
    assert shop.refused("stop") == (2, "usage")
    assert shop.refused("stop", "--hard", "--lift", "--why", "x") == (2, "usage")


def test_what_does_not_stand_cannot_be_thawed(shop: Shop) -> None:
    assert shop.refused("thaw", "all", "--why", "x") == (3, "nothing_stopped")
    assert shop.refused("stop", "--lift", "--why", "x") == (3, "nothing_stopped")
    assert "No switch stands." in shop.ok("switches")


def test_stop_freezes_everything_and_lift_thaws_it(shop: Shop) -> None:
    shop.ok("stop", "--why", "a fire", "--by", "ann")
    run = shop.start("buy", "one")
    shop.drive()
    assert shop.ledger() == []
    assert "all" in shop.ok("switches")

    assert "Thawed everything." in shop.ok("stop", "--lift", "--why", "it is out")
    shop.drive()

    assert shop.status(run) == "done"


def test_a_hard_stop_needs_no_database(shop: Shop) -> None:
    """Requirement 66. The file is damaged beyond opening, and the stop is written all the same."""
    run = shop.start("buy", "one")
    whole = (shop.folder / "shop.db").read_bytes()
    (shop.folder / "shop.db").write_bytes(b"x" * 5_000)
    assert shop.refused("stop", "--why", "a fire", "--store", "shop.db")[0] == 4

    shop.ok("stop", "--hard", "--why", "a fire", "--by", "ann", "--store", "shop.db")

    assert marks.stopped("shop.db")
    (shop.folder / "shop.db").write_bytes(whole)
    listed = shop.read("switches", "--store", "shop.db")
    assert (listed["stop_file"]["by"], listed["stop_file"]["why"]) == ("ann", "a fire")
    doctor = shop.milepost("doctor", "--store", "shop.db")
    assert "ann: a fire" in doctor.stdout
    assert "milepost stop --lift" in doctor.stdout

    assert "Removed the stop file." in shop.ok("stop", "--lift", "--why", "it is out", "--by", "bob")
    shop.drive()

    assert not marks.stopped("shop.db")
    assert shop.status(run) == "done"
    was, now = audit(shop)
    assert isinstance(was, s.SwitchSet)
    assert isinstance(now, s.SwitchLifted)
    assert (was.kind, was.by, was.why, now.by, now.why) == ("stop", "ann", "a fire", "bob", "it is out")


@pytest.mark.parametrize("command", ["freeze", "thaw"])
def test_what_is_said_cannot_act_on_a_terminal(shop: Shop, command: str) -> None:
    shop.ok("freeze", "tool:\x1b[31mcharge", "--why", "x")

    assert "\x1b" not in shop.ok("switches")
    assert "\x1b" not in shop.ok(command, "tool:\x1b[31mcharge", "--why", "x")
