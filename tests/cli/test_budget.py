"""What runs may spend together, from the command line, and a run's own limits made tighter there."""

import apsw
import pytest

from tests.cli.shop_floor import Shop


def paying(shop: Shop, order: str) -> str:
    run = shop.start("paying", order)
    shop.ok("grant", run, "payments:charge", "--budget", "usd=100")
    return run


def test_without_a_shared_budget_the_listing_says_how_to_set_one(shop: Shop) -> None:
    assert "milepost budget set total usd=100 --why" in shop.ok("budget")
    assert shop.read("budget") == {"pools": [], "overspent": {}}


def test_a_ceiling_is_set_and_listed_with_what_is_spent_of_it(shop: Shop) -> None:
    """Requirement 83."""
    said = shop.ok("budget", "set", "total", "usd=10", "calls=5", "--why", "the trial", "--by", "ann")
    told = shop.read("budget", "set", "total", "usd=4", "--per", "day", "--why", "the trial", "--by", "ann")
    run = paying(shop, "one")
    shop.drive()

    assert said == "total may spend 10 usd, 5 calls in all, from now on.\n"
    assert (told["ceilings"], told["per"], told["woken"]) == ({"usd": "4"}, "day", 0)
    assert shop.status(run) == "done"
    assert shop.read("budget")["pools"] == [
        {"pool": "total", "per": per, "unit": unit, "ceiling": ceiling, "spent": spent, "reserved": "0", "left": left,
         "over": "0"}
        for per, unit, ceiling, spent, left in [
            ("ever", "calls", "5", "0", "5"), ("day", "usd", "4", "3", "1"), ("ever", "usd", "10", "3", "7"),
        ]
    ]  # fmt: skip
    listed = shop.ok("budget").splitlines()
    assert listed[0].split() == ["pool", "per", "unit", "ceiling", "spent", "reserved", "left", "over"]
    entries = [line for line in shop.read("journal", "system") if line["entry"] == "ceiling_set"]
    assert [(line["fields"]["by"], line["fields"]["why"]) for line in entries] == [("ann", "the trial")] * 2


def test_a_run_that_a_shared_budget_refuses_waits_says_so_and_goes_on_once_it_is_raised(shop: Shop) -> None:
    """Requirement 72. Requirement 83. What the listing tells to type is what helps."""
    shop.ok("budget", "set", "total", "usd=3", "--why", "the trial")
    first, second = paying(shop, "one"), paying(shop, "two")
    shop.drive()
    assert sorted([shop.status(first), shop.status(second)]) == ["done", "parked"]
    [waits] = shop.read("runs", "--needs-you")
    assert (waits["waits_for"], waits["ask"]) == ("budget", "milepost budget set total usd=6 --why …")

    told = shop.read(*waits["ask"].removeprefix("milepost ").replace("…", "enough").split())
    shop.drive()

    assert told["woken"] == 1
    assert [shop.status(first), shop.status(second)] == ["done", "done"]


def test_a_ceiling_below_what_is_spent_shows_what_is_over_and_none_lifts_it(shop: Shop) -> None:
    paying(shop, "one")
    shop.ok("budget", "set", "total", "usd=10", "--why", "the trial")
    shop.drive()

    shop.ok("budget", "set", "total", "usd=1.50", "--why", "less")
    [tightened] = shop.read("budget")["pools"]
    lifted = shop.ok("budget", "set", "total", "usd=none", "--why", "no more")

    assert (tightened["left"], tightened["over"]) == ("0", "1.50")
    assert lifted == "total has no ceiling of usd in all any more.\n"
    assert shop.read("budget")["pools"] == []


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["bob", "usd=1", "--why", "x"], "invalid_value"),
        (["tenant:", "usd=1", "--why", "x"], "invalid_value"),
        (["total", "usd=-1", "--why", "x"], "invalid_value"),
        (["total", "usd=much", "--why", "x"], "usage"),
        (["total", "usd", "--why", "x"], "usage"),
        (["total", "usd=1"], "usage"),
        (["total", "--why", "x"], "usage"),
        (["total", "usd=1", "--per", "week", "--why", "x"], "usage"),
    ],
)
def test_what_is_no_ceiling_sets_none(shop: Shop, args: list[str], code: str) -> None:
    assert shop.refused("budget", "set", *args) == (2, code)
    assert shop.read("budget")["pools"] == []


def test_what_was_overspent_is_marked_wherever_the_run_is_shown(shop: Shop) -> None:
    """Requirement 83."""
    run = shop.start("splurging")
    shop.ok("grant", run, "--budget", "usd=5")
    shop.drive()

    assert shop.read("show", run)["overspent"] == {"usd": "4"}
    assert shop.read("budget")["overspent"] == {run: {"usd": "4"}}
    assert [row["overspent"] for row in shop.read("runs")] == [{"usd": "4"}]
    assert "4 usd more than was reserved" in shop.ok("show", run)
    for listing in ("runs", "budget"):
        assert f"{run[:8]}  4 usd over" in shop.ok(listing)


# ---------------------------------------------------------------- revoke


def test_a_revoked_scope_and_a_lowered_ceiling_hold_when_the_run_goes_on(shop: Shop) -> None:
    """Requirement 49. Requirement 83."""
    run = paying(shop, "one")
    told = shop.read("revoke", run[:8], "payments:charge", "--ceiling", "usd=2", "--why", "too much", "--by", "ann")
    shop.drive()

    assert (told["verb"], told["holds"], told["run"]) == ("revoke", True, run)
    assert shop.read("show", run)["ask"] == f"milepost grant {run} payments:charge"
    shop.ok("grant", run, "payments:charge")
    shop.drive()
    shown = shop.read("show", run)
    assert (shown["ask"], shown["budget"]["granted"]) == (f"milepost grant {run} --budget usd=1", {"usd": "2"})
    [entry] = [line["fields"] for line in shop.read("journal", run) if line["entry"] == "narrowed"]
    assert entry == {"by": "ann", "scopes": ["payments:charge"], "ceilings": {"usd": "2"}, "why": "too much"}


def test_revoke_says_what_it_needs_and_refuses_a_run_that_has_ended(shop: Shop) -> None:
    run = shop.start("buy", "one")
    shop.drive()

    assert shop.refused("revoke", run, "--why", "x") == (2, "usage")
    assert shop.refused("revoke", run, "payments:charge") == (2, "usage")
    assert shop.refused("revoke", run, "--ceiling", "usd=-1", "--why", "x") == (5, "wrong_status")
    assert shop.refused("revoke", run, "payments:charge", "--why", "x") == (5, "wrong_status")


# ---------------------------------------------------------------- verify


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE mp_spent SET amount = '1' WHERE pool = 'total'",
        "DELETE FROM mp_spent",
        "DELETE FROM mp_reserved",
        "UPDATE mp_reserved SET amount = '0'",
        "INSERT INTO mp_reserved SELECT run, ':9', pool, day, unit, amount FROM mp_reserved",
        "UPDATE mp_ceilings SET ceiling = '1000000'",
        "DELETE FROM mp_ceilings",
        "INSERT INTO mp_ceilings VALUES ('total', 'day', 'usd', '0')",
    ],
)
def test_books_that_say_something_else_than_the_journals_are_damage(shop: Shop, change: str) -> None:
    """Requirement 83."""
    shop.ok("budget", "set", "total", "usd=100", "--why", "the trial")
    paying(shop, "one")
    shop.ok("grant", shop.start("gambling"), "--budget", "usd=100")
    shop.drive()
    assert shop.read("verify")["budgets"] == []

    file = apsw.Connection("shop.db")
    file.execute(change).fetchall()
    file.close()

    result = shop.milepost("verify")
    assert result.exit_code == 1
    assert "DAMAGED  the shared budgets: " in result.stdout


def test_books_are_not_held_against_journals_that_were_pruned_and_a_new_run_inherits_nothing(shop: Shop) -> None:
    shop.ok("budget", "set", "total", "usd=100", "--why", "the trial")
    run = shop.start("splurging")
    shop.ok("grant", run, "--budget", "usd=5")
    shop.drive()

    shop.ok("prune", "--before", "0s", "--why", "old")
    fresh = shop.start("buy", "one")

    assert shop.read("verify")["budgets"] == []
    assert shop.read("budget")["overspent"] == {}
    assert [row["overspent"] for row in shop.read("runs") if row["run"] == fresh] == [{}]
    assert [pool["spent"] for pool in shop.read("budget")["pools"]] == ["5"]


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ("UPDATE mp_spent SET amount = '2'", True),
        ("DELETE FROM mp_reserved", True),
        ("UPDATE mp_ceilings SET ceiling = '1000000'", True),
        ("UPDATE mp_spent SET amount = '99'", False),  # the pruned run may have spent it: nobody can know any more
    ],
)
def test_after_a_pruning_the_books_still_may_not_say_less_than_the_journals(
    shop: Shop, change: str, *, found: bool
) -> None:
    """Requirement 83."""
    shop.ok("budget", "set", "total", "usd=100", "--why", "the trial")
    shop.ok("grant", shop.start("splurging"), "--budget", "usd=5")
    shop.drive()
    shop.ok("prune", "--before", "0s", "--why", "old")
    paying(shop, "one")
    shop.ok("grant", shop.start("gambling"), "--budget", "usd=100")
    shop.drive()
    assert shop.read("verify")["budgets"] == []

    file = apsw.Connection("shop.db")
    file.execute(change).fetchall()
    file.close()

    assert (shop.milepost("verify").exit_code == 1) is found
