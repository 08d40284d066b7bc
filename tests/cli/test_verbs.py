"""What a person does to runs, with no worker running at that moment and without the App's code."""

import asyncio
import json

import pytest

from milepost.cli.opening import opened, operator
from milepost.errors import UnknownRun
from milepost.stores.api import Deliver, Post
from tests.cli.shop_floor import Shop


def approval_of(shop: Shop, run: str) -> str:
    [approval] = shop.read("show", run)["approvals"]
    return str(approval["approval"])


def test_an_approved_effect_happens_once_on_the_word_of_a_person(shop: Shop) -> None:
    run = shop.start("mailing", "bob")
    shop.drive()
    assert shop.ledger() == []

    told = shop.read("approve", approval_of(shop, run)[:8], "--by", "ann")
    shop.drive()

    assert (told["verb"], told["run"], told["undelivered"]) == ("approve", run, 1)
    assert shop.read("show", run)["result"] == "sent"
    assert shop.ledger() == ["mail bob"]
    answered = next(line for line in shop.read("journal", run) if line["entry"] == "approval_answered")
    assert (answered["fields"]["by"], answered["fields"]["approved"]) == ("ann", True)


def test_a_denied_effect_never_happens_and_the_workflow_hears_why(shop: Shop) -> None:
    run = shop.start("mailing", "bob")
    shop.drive()

    shop.ok("deny", approval_of(shop, run), "--why", "he asked not to be written to", "--by", "ann")
    shop.drive()

    assert shop.read("show", run)["result"] == "not sent: denied by ann: he asked not to be written to"
    assert shop.ledger() == []


def test_an_approval_is_given_once_and_only_where_one_is_asked(shop: Shop) -> None:
    run = shop.start("mailing", "bob")
    shop.drive()
    approval = approval_of(shop, run)
    shop.ok("approve", approval, "--by", "ann")

    assert shop.refused("approve", approval, "--by", "ann") == (3, "unknown_approval")
    shop.drive()
    assert shop.ledger() == ["mail bob"]
    assert shop.refused("approve", approval, "--by", "bob") == (3, "unknown_approval")
    assert shop.refused("deny", approval, "--why", "too late") == (3, "unknown_approval")
    for asked in ("ap-ffffff", "*", "", "ap-?"):
        assert shop.refused("approve", asked) == (3, "unknown_approval")


def test_a_beginning_that_fits_several_approvals_approves_none(shop: Shop) -> None:
    runs = [shop.start("mailing", name) for name in ("ann", "bob")]
    shop.drive()

    assert shop.refused("approve", "ap-") == (3, "unknown_approval")
    shop.drive()
    assert shop.ledger() == []
    assert {shop.status(run) for run in runs} == {"parked"}


@pytest.mark.parametrize(
    ("answer", "status", "calls"),
    [
        (["--happened", '"fax 9"'], "done", 1),
        (["--rejected"], "failed", 1),
        (["--did-not-happen"], "parked", 2),  # sent again, and unknown again
    ],
    ids=["happened", "rejected", "did not happen"],
)
def test_a_person_settles_an_unknown_outcome_and_their_word_is_recorded(
    shop: Shop, answer: list[str], status: str, calls: int
) -> None:
    """Requirement 39. Requirement 46."""
    run = shop.start("faxing", "ann")
    shop.drive()

    shop.ok("resolve", run[:8], "faxing/fax#1", *answer, "--why", "phoned her", "--by", "bob")
    shop.drive()

    assert shop.status(run) == status
    assert shop.ledger() == ["fax ann"] * calls
    settled = [line["fields"] for line in shop.read("journal", run) if line["fields"].get("by") == "person bob"]
    assert [fields["why"] for fields in settled] == ["phoned her"]
    if status == "done":
        assert shop.read("show", run)["result"] == "fax 9"
        assert shop.read("runs", "--needs-you") == []


def test_only_an_unknown_effect_can_be_resolved_and_only_with_a_reason(shop: Shop) -> None:
    run = shop.start("faxing", "ann")
    done = shop.start("buy", "one")
    shop.drive()

    assert shop.refused("resolve", run, "faxing/fax#2", "--rejected", "--why", "x") == (3, "unknown_step")
    assert shop.refused("resolve", done, "buy/charge#1", "--rejected", "--why", "x") == (3, "unknown_step")
    for args in (
        ["--rejected"],
        ["--why", "x"],
        ["--rejected", "--did-not-happen", "--why", "x"],
        ["--happened", "not json", "--why", "x"],
        ["--happened", "NaN", "--why", "x"],
    ):
        assert shop.refused("resolve", run, "faxing/fax#1", *args) == (2, "usage")
    assert shop.status(run) == "parked"


def test_a_null_is_something_that_happened(shop: Shop) -> None:
    run = shop.start("faxing", "ann")
    shop.drive()

    shop.ok("resolve", run, "faxing/fax#1", "--happened", "null", "--why", "seen")

    [message] = [shop.read("show", run)]
    assert message["unresolved"] == ["faxing/fax#1"]  # nobody drove it yet
    shop.drive()
    assert shop.read("effects", run, "--all")[0]["outcome"] == "confirmed"


def test_a_grant_gives_what_was_missing_and_no_more(shop: Shop) -> None:
    run = shop.start("paying", "o-1", "--budget", "usd=1")
    shop.drive()
    assert shop.read("show", run)["waits_for"] == "authority"

    shop.ok("grant", run[:7], "payments:charge", "--by", "ann", "--why", "a good customer")
    shop.drive()
    assert shop.read("show", run)["waits_for"] == "budget"

    shop.ok("grant", run[:7], "--budget", "usd=2")
    shop.drive()

    shown = shop.read("show", run)
    assert shown["result"] == "paid o-1"
    assert shown["budget"] == {"granted": {"usd": "3"}, "spent": {"usd": "3"}, "reserved": {}}
    assert shown["authority"]["scopes"] == ["payments:charge"]
    widened = next(line for line in shop.read("journal", run) if line["entry"] == "widened")
    assert (widened["fields"]["by"], widened["fields"]["why"]) == ("ann", "a good customer")


@pytest.mark.parametrize("given", [[], ["--budget", "usd"], ["--budget", "usd=much"], ["--budget", "=3"]])
def test_a_grant_of_nothing_or_of_no_amount_is_refused(shop: Shop, given: list[str]) -> None:
    run = shop.start("sleeping")

    assert shop.refused("grant", run, *given) == (2, "usage")


@pytest.mark.parametrize("amount", ["-5", "NaN", "Infinity"])
def test_an_amount_that_is_no_money_is_refused(shop: Shop, amount: str) -> None:
    run = shop.start("sleeping")

    assert shop.refused("grant", run, "--budget", f"usd={amount}") == (2, "invalid_value")


def test_a_signal_arrives_once_however_often_it_is_sent_with_one_id(shop: Shop) -> None:
    run = shop.start("listening")
    shop.drive()

    shop.ok("send", run[:8], "go", "7", "--id", "first")
    again = shop.ok("send", run[:8], "go", "7", "--id", "first")
    shop.drive()
    assert shop.status(run) == "parked"
    assert "sent before" in again

    shop.ok("send", run[:8], "go", "8")
    shop.drive()

    assert shop.read("show", run)["result"] == [7, 8]


def test_a_signal_needs_a_json_value_and_a_run_that_has_not_ended(shop: Shop) -> None:
    run = shop.start("buy", "one")
    shop.drive()

    assert shop.refused("send", run, "go", "seven") == (2, "usage")
    assert shop.refused("send", run, "go", "7") == (5, "wrong_status")
    assert "'\"text\"'" in shop.milepost("send", run, "go", "seven").stderr


def test_a_cancelled_run_starts_nothing_more(shop: Shop) -> None:
    """Requirement 60."""
    run = shop.start("mailing", "bob")
    shop.drive()

    shop.ok("cancel", run[:8], "--why", "not needed", "--by", "ann")
    shop.ok("approve", approval_of(shop, run), "--by", "ann")
    shop.drive()

    assert shop.status(run) == "cancelled"
    assert shop.ledger() == []
    assert shop.read("show", run)["why"] == "cancelled: not needed"
    assert shop.refused("cancel", run) == (5, "wrong_status")


def test_a_killed_run_is_stopped_with_its_descendants_although_no_worker_runs(shop: Shop) -> None:
    """Requirement 60. Requirement 66."""
    parent = shop.start("family")
    shop.drive()
    [child] = shop.read("show", parent)["children"]
    approval = approval_of(shop, child)

    told = shop.read("kill", parent[:8], "--why", "wrong customer", "--by", "ann")

    assert told == {"verb": "kill", "run": parent, "unknown": []}
    assert [shop.status(run) for run in (parent, child)] == ["killed", "killed"]
    shop.milepost("approve", approval, "--by", "ann")
    shop.drive()
    assert shop.ledger() == []
    stopped = shop.read("journal", parent)[-1]
    assert (stopped["entry"], stopped["fields"]["by"], stopped["fields"]["why"]) == (
        "run_stopped",
        "ann",
        "wrong customer",
    )


def test_killing_lists_what_is_left_unknown_and_it_stays_resolvable(shop: Shop) -> None:
    """Requirement 39. Requirement 66."""
    run = shop.start("faxing", "ann")
    shop.drive()

    said = shop.ok("kill", run[:8])

    assert "faxing/fax#1" in said
    assert shop.read("effects", run)[0]["outcome"] == "unknown"
    shop.ok("resolve", run, "faxing/fax#1", "--happened", '"fax 9"', "--why", "she has it")
    shop.drive()
    assert shop.read("effects", run) == []
    assert shop.status(run) == "killed"


def test_a_retried_segment_keeps_its_finished_steps(shop: Shop) -> None:
    """Requirement 23."""
    run = shop.start("failing")
    shop.drive()
    assert shop.status(run) == "failed"
    (shop.folder / "mended").touch()

    shop.ok("retry", run[:8], "--by", "ann", "--why", "mended")
    shop.drive()

    assert shop.status(run) == "done"
    assert shop.ledger() == ["before the failure 1"]
    assert shop.refused("retry", run) == (5, "wrong_status")


def test_without_a_worker_every_verb_says_that_one_must_run(shop: Shop) -> None:
    run = shop.start("sleeping")

    for command in (["send", run, "go", "1"], ["grant", run, "scope"], ["cancel", run]):
        told = shop.read(*command)
        assert (told["held_by"], told["workers_alive"], told["undelivered"] > 0) == (None, 0, True)
        assert "milepost worker" in shop.ok(*command)


def test_who_acts_is_the_user_of_the_system_unless_said_otherwise(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "carol")
    run = shop.start("sleeping")

    shop.ok("grant", run, "a")
    shop.ok("grant", run, "b", "--by", "dora")
    shop.drive()

    widened = [line["fields"]["by"] for line in shop.read("journal", run) if line["entry"] == "widened"]
    assert widened == ["carol", "dora"]
    assert shop.read("show", run)["principal"] == "carol"


def test_the_verbs_need_the_store_alone(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    run = shop.start("mailing", "bob")
    shop.drive()
    monkeypatch.delenv("MILEPOST_APP")
    (shop.folder / "shop.py").write_text("raise SystemError('the code is gone')")

    for command in (
        ["approve", approval_id(shop, run), "--by", "ann"],
        ["grant", run, "scope"],
        ["send", run, "go", "1"],
        ["cancel", run],
        ["kill", run],
    ):
        assert json.loads(shop.ok(*command, "--store", "shop.db", "--json"))["run"] == run


def approval_id(shop: Shop, run: str) -> str:
    [approval] = shop.read("show", run, "--store", "shop.db")["approvals"]
    return str(approval["approval"])


def test_waiting_for_a_verb_ends_with_code_7_when_nobody_acts_in_time(shop: Shop) -> None:
    run = shop.start("sleeping")

    assert shop.refused("cancel", run, "--wait", "--timeout", "200ms") == (7, "took_too_long")
    assert shop.refused("cancel", run, "--wait", "--timeout", "soon") == (2, "usage")


def test_what_the_store_refuses_is_an_error_of_the_verb(shop: Shop) -> None:
    """A run may be gone between the look at it and the write."""
    with opened("sqlite:///shop.db") as store, pytest.raises(UnknownRun):
        asyncio.run(operator(store)._write(Deliver(Post("0123", "id", b"{}", 0))))  # type: ignore[arg-type]
