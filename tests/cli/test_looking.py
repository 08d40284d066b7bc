"""Looking at runs: all is found by id, status and need, and nothing that is shown can do harm."""

import json

import pytest

from tests.cli.shop_floor import Shop


def test_runs_are_listed_newest_first_with_stage_status_and_what_they_wait_for(shop: Shop) -> None:
    """Requirement 22."""
    bought, mailed = shop.start("buy", "one"), shop.start("mailing", "bob", "--key", "bob")
    shop.drive()

    rows = shop.read("runs")

    assert [row["run"] for row in rows] == [mailed, bought]
    assert [(row["status"], row["stage"], row["waits_for"]) for row in rows] == [
        ("parked", "mailing", "approval"),
        ("done", None, None),
    ]
    table = shop.ok("runs")
    assert f"{mailed[:8]}   mailing    mailing   parked" in table
    assert "milepost approve ap-" in table


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (["--status", "done"], ["buy"]),
        (["--workflow", "sleeping"], ["sleeping"]),
        (["--key", "k"], ["mailing"]),
        (["--tag", "team=blue"], ["sleeping"]),
        (["--tag", "team=red"], []),
        (["--needs-you"], ["mailing"]),
        (["--limit", "1"], ["sleeping"]),
    ],
)
def test_runs_are_found_by_status_workflow_key_tag_and_need(shop: Shop, options: list[str], found: list[str]) -> None:
    shop.start("buy", "one")
    shop.start("mailing", "bob", "--key", "k")
    shop.start("sleeping", None, "--tag", "team=blue", "--tag", "size=9")
    shop.drive()

    assert [row["workflow"] for row in shop.read("runs", *options)] == found


def test_a_listing_that_was_cut_says_so(shop: Shop) -> None:
    for _ in range(3):
        shop.start("sleeping")

    result = shop.milepost("runs", "--limit", "2")

    assert len([line for line in result.stdout.splitlines() if "sleeping" in line]) == 2
    assert "more than 2" in result.stderr


def test_any_beginning_that_fits_one_run_names_it(shop: Shop) -> None:
    run = shop.start("buy", "one")

    for prefix in (run[:3], run[:8], run):
        assert shop.read("show", prefix)["run"] == run


def test_a_beginning_that_fits_several_runs_names_them_all(shop: Shop) -> None:
    runs = [shop.start("sleeping") for _ in range(17)]  # of 17 ids two begin with the same of 16 digits
    first = [run[0] for run in runs]
    shared = next(digit for digit in first if first.count(digit) > 1)

    result = shop.milepost("show", shared, "--json")

    assert result.exit_code == 3
    error = json.loads(result.stderr)["error"]
    assert error["code"] == "unknown_run"
    assert set(error["matches"]) <= set(runs)
    assert len(error["matches"]) > 1


@pytest.mark.parametrize(
    "command",
    [
        ["show", "ffff"],
        ["show", ""],
        ["journal", "ffff"],
        ["effects", "ffff"],
        ["plan", "ffff"],
        ["verify", "ffff"],
        ["cancel", "ffff"],
        ["kill", "ffff"],
        ["retry", "ffff"],
        ["grant", "ffff", "scope"],
        ["send", "ffff", "name", "1"],
        ["resolve", "ffff", "a/b#1", "--rejected", "--why", "x"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_an_unknown_run_ends_every_command_with_code_3(shop: Shop, command: list[str]) -> None:
    shop.start("sleeping")

    assert shop.refused(*command) == (3, "unknown_run")
    result = shop.milepost(*command)
    assert result.exit_code == 3
    assert result.stderr.startswith("milepost: ")
    assert "[unknown_run]" in result.stderr
    assert "Traceback" not in result.stderr


def test_an_unknown_outcome_stays_in_sight_with_its_evidence_and_what_to_type(shop: Shop) -> None:
    """Requirement 39."""
    run = shop.start("faxing", "ann")
    shop.drive()

    for _ in range(2):  # it is no alarm that goes away once it was seen
        assert [row["run"] for row in shop.read("runs", "--needs-you")] == [run]
        [effect] = shop.read("effects")
        assert (effect["run"], effect["path"], effect["outcome"]) == (run, "faxing/fax#1", "unknown")
    shown = shop.read("show", run)
    assert shown["unresolved"] == ["faxing/fax#1"]
    assert shown["effects"][0]["args"] == {"to": "ann"}
    assert "the line dropped" in shown["effects"][0]["evidence"][0]
    text = shop.ok("show", run[:6])
    assert "faxing/fax#1  unknown, irreversible, attempt 1" in text
    assert f"milepost resolve {run[:8]} faxing/fax#1 --why" in text
    assert f"milepost resolve {run[:8]} faxing/fax#1 --why" in shop.ok("effects")


def test_showing_a_run_says_what_finished_what_remains_and_what_it_may_do(shop: Shop) -> None:
    """Requirement 22. Requirement 52."""
    run = shop.start("staged", "nine", "--scope", "post", "--principal", "bot", "--tenant", "acme", "--budget", "usd=5")
    shop.drive()

    shown = shop.read("show", run)

    assert shown["finished_visits"] == {"first": 1}
    assert shown["finished_steps"] == [{"path": "first/charge#1", "outcome": "confirmed"}]
    assert (shown["stage"], shown["state"]) == ("second", "nine")
    assert [one["what"] for one in shown["pending"]] == ["effect second/mail#1, not started"]
    assert [approval["path"] for approval in shown["approvals"]] == ["second/mail#1"]
    assert shown["authority"] == {"principal": "bot", "tenant": "acme", "scopes": ["post"], "expires_at": None}
    assert shown["budget"] == {"granted": {"usd": "5"}, "spent": {}, "reserved": {}}
    assert shown["manifest"]["version"] == "1"
    assert set(shown["manifest"]["tools"]) == {"charge", "mail"}
    text = shop.ok("show", run)
    for said in (
        "segments   first",
        "stage      second",
        "scopes     post",
        "usd        5 granted",
        "milepost approve ap-",
    ):
        assert said in text


def test_the_result_and_the_children_of_a_run_are_shown(shop: Shop) -> None:
    bought, parent = shop.start("buy", "one"), shop.start("family")
    shop.drive()

    assert shop.read("show", bought)["result"] == "receipt for one"
    assert 'result     "receipt for one"' in shop.ok("show", bought)
    [child] = shop.read("show", parent)["children"]
    assert shop.read("show", child)["parent"] == parent
    assert f"child      {child[:8]} parked" in shop.ok("show", parent)


def test_the_journal_shows_every_entry_in_order_and_in_full_on_request(shop: Shop) -> None:
    """Requirement 62."""
    run = shop.start("buy", "one")
    shop.drive()

    lines = shop.read("journal", run)

    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    names = [line["entry"] for line in lines]
    assert names == ["run_created", "claimed", "effect_started", "effect_confirmed", "run_done"]
    assert lines[2]["fields"]["plan"]["args"] == {"order": "one", "cents": 500}
    table = shop.ok("journal", run).splitlines()
    assert "effect started     buy/charge#1  attempt=1" in table[4]
    assert "effect confirmed   buy/charge#1" in table[5]
    assert '"cents": 500' in shop.ok("journal", run, "--full")
    assert [line["seq"] for line in shop.read("journal", run, "--last", "2")] == [4, 5]


def test_effects_are_shown_while_open_and_all_of_them_on_request(shop: Shop) -> None:
    run = shop.start("staged", "nine")
    shop.drive()

    assert [effect["path"] for effect in shop.read("effects", run)] == ["second/mail#1"]
    every = shop.read("effects", run, "--all")
    assert [(effect["path"], effect["outcome"]) for effect in every] == [
        ("first/charge#1", "confirmed"),
        ("second/mail#1", "not_started"),
    ]
    assert every[0]["result"] == "receipt for nine"
    assert "first/charge#1" in shop.ok("effects", run, "--all")
    assert shop.milepost("effects", "--all").exit_code == 2


def test_the_plan_of_a_run_is_shown_and_nothing_of_it_is_done(shop: Shop) -> None:
    """Requirement 38."""
    run = shop.start("buy", "one")

    plans = [shop.read("plan", run) for _ in range(2)]

    assert plans[0] == plans[1]
    assert (plans[0]["act"], plans[0]["sure"]) == ("enter", True)
    assert "enter segment 'buy' from its first line" in shop.ok("plan", run)
    assert shop.ledger() == []
    assert len(shop.read("journal", run)) == 1


def test_without_the_app_a_plan_says_what_the_record_alone_says(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting, unknown, done = shop.start("sleeping"), shop.start("faxing", "ann"), shop.start("buy", "one")
    shop.drive()
    monkeypatch.delenv("MILEPOST_APP")

    plans = [shop.read("plan", run, "--store", "shop.db") for run in (waiting, unknown, done)]

    assert [plan["act"] for plan in plans] == ["rest", "settle", "nothing"]
    assert plans[1]["effects"] == ["faxing/fax#1"]
    assert not any(plan["sure"] for plan in plans)
    assert "give --app" in shop.milepost("plan", done, "--store", "shop.db").stderr


def test_with_the_app_the_plan_for_each_kind_of_rest_names_its_reason(shop: Shop) -> None:
    sleeping, mailing, done = shop.start("sleeping"), shop.start("mailing", "bob"), shop.start("buy", "one")
    shop.drive()

    assert shop.read("plan", done)["act"] == "nothing"
    assert {shop.read("plan", run)["act"] for run in (sleeping, mailing)} <= {"enter", "rest"}


def test_text_from_a_record_cannot_act_on_the_terminal(shop: Shop) -> None:
    run = shop.start("faxing", "a\x1b]0;owned\x07\x9b31m\u202etxt")
    shop.drive()

    for command in (["show", run], ["effects"], ["effects", run, "--all"], ["journal", run], ["runs", "--needs-you"]):
        for said in (shop.ok(*command), shop.ok(*command, "--json")):
            assert not set("\x1b\x07\x9b\u202e") & set(said), command


def test_an_empty_store_says_how_to_begin(shop: Shop) -> None:
    assert "milepost start" in shop.ok("runs")
    assert shop.read("runs") == []
    assert shop.ok("effects") == "Every effect is settled.\n"
