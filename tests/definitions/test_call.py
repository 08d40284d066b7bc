from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from milepost.definitions.call import (
    Call,
    Finding,
    amounts,
    conflict,
    did_not_happen,
    happened,
    rejected,
    still_unknown,
)
from milepost.definitions.secrets import SecretMissing, from_environment
from milepost.errors import InvalidValue, MilepostError


class Client:
    pass


def a_call() -> Call:
    opened = {Client: Client()}
    return Call(
        key="k", attempt=2, deadline=datetime(2026, 1, 1, tzinfo=UTC),
        secrets={"stripe": "s3"}.__getitem__, resources=opened.__getitem__,
    )  # fmt: skip


def test_a_call_hands_out_what_the_app_provides() -> None:
    call = a_call()

    assert (call.key, call.attempt, call.secret("stripe")) == ("k", 2, "s3")
    assert isinstance(call.resource(Client), Client)


def test_a_call_keeps_the_last_note_and_adds_up_what_was_spent() -> None:
    call = a_call()
    call.note("ch_1")
    call.note("ch_2")
    call.spent(usd=Decimal("0.10"), calls=1)
    call.spent(usd=Decimal("0.02"))

    assert call.noted == "ch_2"
    assert call.spending == {"usd": Decimal("0.12"), "calls": Decimal(1)}


@pytest.mark.parametrize("amount", [0.1, True, "1", Decimal("NaN"), Decimal("Infinity"), -1, Decimal("-0.01")])
def test_an_amount_that_does_not_add_up_is_refused(amount: Any) -> None:
    with pytest.raises(InvalidValue, match=r"spent\['usd'\]"):
        a_call().spent(usd=amount)


class Money(Decimal):
    """A user's own kind of Decimal."""


@pytest.mark.parametrize("amount", [Decimal("sNaN"), Decimal("-Infinity"), Money("NaN"), Money(-1), -1, 0.5])
def test_one_amount_of_several_that_does_not_add_up_is_refused_by_its_unit(amount: Any) -> None:
    with pytest.raises(InvalidValue, match=r"cost\['eur'\]"):
        amounts({"usd": Decimal(1), "eur": amount, "calls": 1}, "cost")


def test_amounts_of_every_kind_become_decimals_apart_from_what_they_were_given_in() -> None:
    given: dict[str, Any] = {"usd": Decimal("0.10"), "eur": Money("1.5"), "calls": 2, "free": Decimal(0)}

    found = amounts(given, "cost")
    given["usd"] = Decimal(9)

    assert found == {"usd": Decimal("0.10"), "eur": Decimal("1.5"), "calls": Decimal(2), "free": Decimal(0)}
    assert {type(amount) for amount in found.values()} == {Decimal}
    assert amounts([("usd", 1)], "cost") == {"usd": Decimal(1)}


def test_each_finding_says_one_thing() -> None:
    assert happened(7) == Finding("happened", 7)
    assert did_not_happen() == Finding("did_not_happen")
    assert rejected("no such card") == Finding("rejected", why="no such card")
    assert still_unknown(ask_again="10s") == Finding("still_unknown", ask_again_ms=10_000)
    assert still_unknown().ask_again_ms == 30_000
    assert conflict(["a", "b"]) == Finding("conflict", why="found ['a', 'b']")


def test_what_was_found_in_conflict_is_kept_short() -> None:
    assert len(conflict("x" * 10_000).why) == 2_000


def test_a_secret_comes_from_the_environment_or_is_missed_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRIPE_KEY", "s3")
    monkeypatch.setenv("EMPTY_KEY", "")

    assert from_environment("STRIPE_KEY") == "s3"
    for name in ("EMPTY_KEY", "NO_SUCH_KEY"):
        with pytest.raises(SecretMissing, match=name) as missing:
            from_environment(name)
        assert isinstance(missing.value, MilepostError)
