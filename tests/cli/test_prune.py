"""Retention: what ended long ago goes, beside a tombstone; what it claimed stays, and what is open is never touched."""

from tests.cli.shop_floor import Shop
from tests.cli.test_damage import change

CANARY = b"a-canary-that-must-go"


def test_a_dry_run_says_what_would_go_and_changes_nothing(shop: Shop) -> None:
    done, waits = shop.start("buy", "one"), shop.start("sleeping")
    shop.drive()

    told = shop.read("prune", "--before", "0s", "--dry-run")

    assert [run["run"] for run in told["pruned"]] == [done]
    assert told["kept"] == []
    assert {run["run"] for run in shop.read("runs")} == {done, waits}
    assert "Would delete 1 runs." in shop.ok("prune", "--before", "0s", "--dry-run")
    assert shop.read("prune", "--before", "1h")["pruned"] == []


def test_a_pruned_run_is_gone_from_the_file_byte_by_byte_and_the_rest_verifies(shop: Shop) -> None:
    run, other = shop.start("buy", CANARY.decode()), shop.start("buy", "two")
    shop.drive()
    change(shop, "UPDATE mp_runs SET changed_at = 1 WHERE id = ?", values=(run,))
    assert any(CANARY in path.read_bytes() for path in shop.folder.glob("shop.db*") if path.is_file())

    told = shop.read("prune", "--before", "1h", "--by", "ann", "--why", "the year is over")

    assert [gone["run"] for gone in told["pruned"]] == [run]
    assert [row["run"] for row in shop.read("runs")] == [other]
    assert shop.refused("show", run) == (3, "unknown_run")
    change(shop, "UPDATE mp_runs SET changed_at = changed_at")  # and the log is copied into the file
    for path in shop.folder.glob("shop.db*"):
        assert not path.is_file() or CANARY not in path.read_bytes()
    assert shop.ok("verify").startswith("2 of 2 runs sound")


def test_a_run_with_an_open_effect_is_kept_and_named(shop: Shop) -> None:
    run = shop.start("faxing", "ann")
    shop.drive()
    shop.ok("kill", run)

    told = shop.read("prune", "--before", "0s")

    assert told["pruned"] == []
    assert [(kept["run"], kept["why"]) for kept in told["kept"]] == [(run, "it has effects whose outcome is open")]
    assert shop.status(run) == "killed"


def test_a_child_stays_as_long_as_its_parent_may_ask_for_it(shop: Shop) -> None:
    parent = shop.start("family")
    shop.drive()
    [child] = [run["run"] for run in shop.read("runs") if run["run"] != parent]
    shop.ok("kill", child)
    change(shop, "UPDATE mp_inbox SET taken = 1")

    told = shop.read("prune", "--before", "0s")

    assert (shop.status(parent), shop.status(child)) == ("parked", "killed")
    assert [(one["run"], one["why"]) for one in told["kept"]] == [(child, "the run that started it has not ended")]
    shop.ok("kill", parent)
    assert {gone["run"] for gone in shop.read("prune", "--before", "0s")["pruned"]} == {parent, child}


def test_a_key_that_a_pruned_run_was_started_with_starts_nothing(shop: Shop) -> None:
    how = ("start", "buy", '"one"', "--key", "order-1")
    shop.ok(*how)
    shop.drive()
    shop.ok("prune", "--before", "0s", "--by", "ann")

    assert shop.refused(*how) == (5, "refused")
    shop.drive()
    assert shop.ledger() == ["one 500"]


def test_only_the_named_workflow_is_pruned(shop: Shop) -> None:
    run, failed = shop.start("buy", "one"), shop.start("listening")
    shop.drive()
    shop.ok("cancel", failed)
    shop.drive()

    assert [gone["run"] for gone in shop.read("prune", "--before", "0s", "--workflow", "listening")["pruned"]] == [
        failed
    ]
    assert [row["run"] for row in shop.read("runs")] == [run]
