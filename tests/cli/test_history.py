"""Going back, forking and comparing, as they are typed."""

import json

import pytest

from tests.cli.shop_floor import Shop

WHY = ("--why", "the wrong order", "--by", "ann")
APP = ("--app", "shop:app")


def only_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name the store, and no App: a command knows of the code only where it is told."""
    monkeypatch.delenv("MILEPOST_APP")
    monkeypatch.setenv("MILEPOST_STORE", "shop.db")


def approve(shop: Shop, run: str) -> None:
    approvals = shop.read("show", run)["approvals"]
    [asked] = [one["approval"] for one in approvals if one["verdict"] == "asked"]
    shop.ok("approve", asked, "--by", "bob")
    shop.drive()


def staged(shop: Shop) -> str:
    """Start a run that charges, and then waits for an approval to mail."""
    run = shop.start("staged", "one")
    shop.drive()
    return run


def test_a_run_is_taken_back_and_what_it_did_is_undone(shop: Shop) -> None:
    """Requirement 21."""
    run = staged(shop)

    told = shop.read("rewind", run, "--to", "first", *WHY, *APP)
    shop.drive()

    assert (told["verb"], told["boundary"], told["undelivered"]) == ("rewind", "first", 1)
    assert shop.ledger() == ["one 500", "refund receipt for one", "one 500"]
    back = {line["entry"]: line["fields"] for line in shop.read("journal", run)}
    assert {back[name]["by"] for name in ("rewind_asked", "rewound")} == {"ann"}
    assert back["rewound"]["why"] == "the wrong order"
    approve(shop, run)
    assert shop.status(run) == "done"
    assert [one["evidence"] for one in shop.read("effects", run, "--all") if one["path"] == "first/charge#1"] == [
        ["undone by undo/first/charge#1/refund#1"]
    ]
    assert shop.read("verify", run)["sound"] is True


def test_its_boundaries_are_listed_with_their_names_and_what_became_of_them(shop: Shop) -> None:
    run = staged(shop)
    assert [(one["boundary"], one["number"], one["undone"]) for one in shop.read("rewind", run)] == [
        ("first", 0, False),
        ("second", 1, False),
    ]
    shop.ok("rewind", run[:8], "--to", "1", *WHY)
    shop.drive()

    assert [(one["boundary"], one["undone"]) for one in shop.read("rewind", run)] == [
        ("first", False),
        ("second", True),
        ("second@2", False),
    ]
    said = shop.ok("rewind", run)
    assert "second@2" in said
    assert "undone" in said
    assert "stands" in said


def test_a_dry_run_says_what_would_be_undone_and_changes_nothing(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requirement 21."""
    run = staged(shop)
    only_the_store(monkeypatch)
    before = shop.read("journal", run)

    sure = shop.read("rewind", run, "--to", "first", "--dry-run", *APP)
    told = shop.read("rewind", run, "--to", "first", "--dry-run")

    assert sure["undo"] == [{"path": "first/charge#1", "with": "refund"}]
    assert (sure["refused"], sure["sure"]) == ([], True)
    assert (told["undo"], told["sure"]) == ([{"path": "first/charge#1", "with": None}], False)
    assert "would undo   first/charge#1  with refund" in shop.ok("rewind", run, "--to", "first", "--dry-run", *APP)
    assert "would undo   nothing" in shop.ok("rewind", run, "--to", "second", "--dry-run", *APP)
    assert shop.read("journal", run) == before
    assert shop.ledger() == ["one 500"]


def test_it_is_refused_at_once_where_the_app_is_named_and_by_the_worker_where_it_is_not(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requirement 21."""
    run = staged(shop)
    approve(shop, run)
    only_the_store(monkeypatch)

    assert shop.refused("rewind", run, "--to", "first", *WHY, *APP) == (5, "not_reversible")
    said = shop.ok("rewind", run, "--to", "first", "--dry-run", *APP)
    assert "refused      second/mail#1 (irreversible) cannot be undone" in said
    shop.ok("rewind", run, "--to", "first", *WHY)
    shop.drive()
    [refused] = [line["fields"] for line in shop.read("journal", run) if line["entry"] == "message_refused"]
    assert (refused["kind"], refused["by"]) == ("rewind", "ann")
    assert shop.ledger() == ["one 500", "mail one"]
    assert shop.status(run) == "done"


def test_whoever_waits_for_it_hears_that_the_worker_refused(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    run = staged(shop)
    approve(shop, run)
    only_the_store(monkeypatch)
    shop.worker(*APP)

    assert shop.refused("rewind", run, "--to", "first", "--wait", "--timeout", "20s", *WHY) == (5, "not_reversible")


def test_what_cannot_be_asked_for_is_refused_before_anything_is_written(shop: Shop) -> None:
    run = staged(shop)

    assert shop.refused("rewind", run, "--to", "nowhere", *WHY) == (3, "unknown_boundary")
    assert shop.refused("rewind", run, "--to", "first") == (2, "usage")
    assert shop.refused("rewind", "ffff", "--to", "first", *WHY) == (3, "unknown_run")
    assert shop.refused("fork", run) == (2, "usage")
    assert shop.refused("fork", run, "--at", "nowhere", *WHY) == (3, "unknown_boundary")
    assert shop.refused("fork", run, "--budget", "usd=x", *WHY) == (2, "usage")
    assert shop.refused("diff", run, "ffff") == (3, "unknown_run")
    shop.ok("kill", run, "--why", "no")
    assert shop.refused("rewind", run, "--to", "first", *WHY) == (5, "not_reversible")


def test_a_run_that_waits_while_it_goes_back_says_so_in_its_plan(shop: Shop) -> None:
    """Requirement 21. A compensation that needs an approval parks the rewind."""
    run = shop.start("paying", "o", "--scope", "payments:charge", "--budget", "usd=5")
    shop.drive()
    shop.ok("rewind", run, "--to", "paying", *WHY)
    shop.drive()

    planned = shop.read("plan", run)
    assert (planned["act"], planned["sure"]) == ("go back", True)
    assert planned["said"] == "undo what was done since boundary 0, newest first, and enter that boundary anew"
    shown = shop.read("show", run)
    [effect] = shown["effects"]
    assert shown["goes_back_to"] == 0
    assert "undoing what it did since" in shop.ok("show", run)
    assert (effect["path"], effect["outcome"]) == ("undo/paying/pay#1/mail#1", "not_started")
    assert shop.ledger() == []
    approve(shop, run)
    assert shop.ledger() == ["mail paid o"]
    assert shop.read("show", run)["waits_for"] == "budget"  # the money was spent


def test_a_fork_has_what_happened_and_what_it_is_given(shop: Shop) -> None:
    """Requirement 24."""
    run = staged(shop)
    approve(shop, run)

    told = shop.read(
        "fork", run, "--at", "second", "--scope", "post", "--budget", "usd=2", "--key", "f", "--deadline", "1h", *WHY
    )
    shop.drive()
    fork = told["run"]

    assert (told["origin"], told["boundary"], told["fresh"]) == (run, "second", True)
    assert told["since"] == ["second/mail#1 (confirmed)"]
    shown = shop.read("show", fork)
    assert (shown["forked_from"], shown["status"], shown["stage"]) == (run, "parked", "second")
    assert (shown["authority"]["principal"], shown["authority"]["scopes"]) == ("ann", ["post"])
    assert shown["budget"]["granted"] == {"usd": "2"}
    assert shown["deadline"] is not None
    assert "fork of" in shop.ok("show", fork)
    approve(shop, fork)
    assert shop.ledger() == ["one 500", "mail one", "mail one"]
    assert shop.read("fork", run, "--at", "second", "--key", "f", *WHY)["run"] == fork


def test_a_fork_is_told_of_what_it_may_do_again(shop: Shop) -> None:
    run = staged(shop)

    said = shop.milepost("fork", run, "--at", "first", *WHY)

    assert said.exit_code == 0
    assert "forked from" in said.stdout
    assert "first/charge#1 (confirmed)" in said.stderr
    again = shop.milepost("fork", run, "--at", "second", "--key", "f", *WHY)
    assert again.stderr == ""
    assert "It was forked before" in shop.ok("fork", run, "--at", "second", "--key", "f", *WHY)


def test_two_runs_are_compared_and_the_first_divergence_is_named(shop: Shop) -> None:
    """Requirement 24."""
    one, other, same = shop.start("staged", "one"), shop.start("staged", "two"), shop.start("staged", "one")
    shop.drive()

    found = shop.read("diff", one, other)
    assert (found["same"], found["a"], found["b"]) == (False, one, other)
    assert found["first"] == 'They part at boundary first: state: "one" in A, "two" in B.'
    assert [(row["a"], row["b"]) for row in found["boundaries"]] == [("first", "first"), ("second", "second")]
    said = shop.ok("diff", one[:12], other[:12])
    assert 'first/charge#1: A made a call of charge with {"order":"one","cents":500}' in said
    assert shop.read("diff", one, same)["same"] is True
    assert "They are the same, boundary by boundary." in shop.ok("diff", one, same)


def test_what_a_run_holds_cannot_act_on_the_terminal_of_whoever_compares(shop: Shop) -> None:
    one, other = shop.start("staged", "\x1b[31mred"), shop.start("staged", "two")
    shop.drive()

    said = shop.ok("diff", one, other)

    assert "\x1b" not in said
    assert json.loads(json.dumps(said)) == said
