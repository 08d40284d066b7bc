"""`milepost start` starts durably, once for each key, and with `--wait` ends as the run ends."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.cli.shop_floor import Shop


@contextmanager
def driven(shop: Shop) -> Iterator[None]:
    """A real worker runs meanwhile."""
    worker = shop.worker()
    yield
    worker.terminate()
    assert worker.wait(timeout=60) == 0, shop.log(worker)


def test_a_start_is_durable_before_the_command_ends_and_says_what_must_run(shop: Shop) -> None:
    said = shop.ok("start", "buy", '"one"')

    run = said.splitlines()[0].removeprefix("Run ")
    assert shop.status(run) == "ready"
    assert "No worker is running. Start one: milepost worker" in said


def test_the_same_key_and_input_are_the_same_run(shop: Shop) -> None:
    first = shop.start("buy", "one", "--key", "ticket-1")

    assert shop.start("buy", "one", "--key", "ticket-1") == first
    assert shop.refused("start", "buy", '"two"', "--key", "ticket-1") == (5, "start_conflict")
    assert shop.refused("start", "faxing", '"one"', "--key", "ticket-1") == (5, "start_conflict")
    assert len(shop.read("runs")) == 1


def test_authority_budget_tags_and_deadline_are_recorded(shop: Shop) -> None:
    """Requirement 45."""
    run = shop.start(
        "paying", "o-1",
        "--principal", "bot", "--tenant", "acme", "--scope", "payments:charge", "--scope", "mail", "--expires", "24h",
        "--budget", "usd=2.50", "--budget", "calls=4", "--tag", "team=blue", "--deadline", "2h",
    )  # fmt: skip

    shown = shop.read("show", run)

    assert (shown["principal"], shown["tenant"], shown["tags"]) == ("bot", "acme", {"team": "blue"})
    assert shown["authority"]["scopes"] == ["mail", "payments:charge"]
    assert shown["authority"]["expires_at"] > shown["deadline"] > shown["created_at"]
    assert shown["budget"]["granted"] == {"usd": "2.50", "calls": "4"}


@pytest.mark.parametrize("deadline", ["2030-01-31T12:00:00+00:00", "2030-01-31T12:00:00Z", "2030-01-31"])
def test_a_deadline_may_be_a_moment(shop: Shop, deadline: str) -> None:
    run = shop.start("sleeping", None, "--deadline", deadline)

    assert shop.read("show", run)["deadline"].startswith("2030-01-3")


def test_the_input_may_come_from_standard_input(shop: Shop) -> None:
    shop.ok("start", "buy", "-", "--key", "k", stdin='"one"')

    assert shop.start("buy", "one", "--key", "k") == shop.read("runs")[0]["run"]


@pytest.mark.parametrize(
    ("args", "refusal"),
    [
        (["buy", "one"], (2, "usage")),
        (["buy", "7"], (2, "invalid_value")),
        (["buy", "NaN"], (2, "invalid_value")),
        (["sell", '"one"'], (3, "unknown_workflow")),
        (["buy", '"one"', "--budget", "usd=lots"], (2, "usage")),
        (["buy", '"one"', "--budget", "usd=-1"], (2, "invalid_value")),
        (["buy", '"one"', "--tag", "blue"], (2, "usage")),
        (["buy", '"one"', "--tag", "a=1", "--tag", "a=2"], (2, "usage")),
        (["buy", '"one"', "--deadline", "tomorrow"], (2, "usage")),
        (["buy", '"one"', "--expires", "later"], (2, "usage")),
    ],
)
def test_what_cannot_be_started_is_refused_and_nothing_is_recorded(
    shop: Shop, args: list[str], refusal: tuple[int, str]
) -> None:
    assert shop.refused("start", *args) == refusal
    assert shop.read("runs") == []


def test_a_named_store_must_be_there_so_that_a_misspelt_path_makes_no_second_one(shop: Shop) -> None:
    for command in (["start", "buy", '"one"'], ["worker"]):
        assert shop.refused(*command, "--store", "shpo.db") == (4, "store_missing")
    assert not (shop.folder / "shpo.db").exists()


def test_waiting_prints_the_result_and_ends_with_0(shop: Shop) -> None:
    with driven(shop):
        assert shop.ok("start", "buy", '"one"', "--wait", "--timeout", "60s") == '"receipt for one"\n'
        assert shop.read("start", "buy", '"two"', "--wait", "--timeout", "60s")["result"] == "receipt for two"


def test_waiting_for_a_run_that_fails_ends_with_code_6(shop: Shop) -> None:
    with driven(shop):
        result = shop.milepost("start", "failing", "--wait", "--timeout", "60s")

    assert result.exit_code == 6
    assert "it is not mended yet" in result.stdout
    assert "milepost retry" in result.stdout


def test_waiting_for_a_run_that_needs_a_person_ends_with_code_5_and_the_command_to_type(shop: Shop) -> None:
    with driven(shop):
        for args in (["mailing", '"bob"'], ["family"]):
            result = shop.milepost("start", *args, "--wait", "--timeout", "60s")
            assert result.exit_code == 5
            assert "milepost approve ap-" in result.stderr


def test_waiting_ends_with_code_7_and_the_run_goes_on(shop: Shop) -> None:
    result = shop.milepost("start", "buy", '"one"', "--wait", "--timeout", "100ms")

    assert result.exit_code == 7
    assert "No worker is running" in result.stderr
    shop.drive()
    assert shop.read("runs")[0]["status"] == "done"


def test_a_verb_that_waits_ends_when_a_worker_has_acted(shop: Shop) -> None:
    run = shop.start("mailing", "bob")
    shop.drive()
    [approval] = shop.read("show", run)["approvals"]

    with driven(shop):
        told = shop.read("approve", approval["approval"], "--by", "ann", "--wait", "--timeout", "60s")

    assert (told["status"], told["undelivered"]) == ("done", 0)
    assert shop.ledger() == ["mail bob"]


def test_a_living_worker_is_named_as_the_one_who_acts(shop: Shop) -> None:
    with driven(shop):
        told = shop.read("start", "sleeping")
        said = shop.ok("grant", told["run"], "scope")

    assert told["workers_alive"] == 1
    assert "No worker is running" not in said


def test_no_thread_is_left_behind(shop: Shop) -> None:
    before = threading.active_count()

    shop.start("sleeping")
    shop.drive()

    assert threading.active_count() <= before
