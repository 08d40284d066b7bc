"""Nothing is spent that was not granted: reserve the worst case, settle the actual."""

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.core.budget import Amounts, Ledger, amounts
from tests.core.samples import usd

MONEY = st.decimals(min_value=0, max_value=10_000, places=2, allow_nan=False, allow_infinity=False)


def test_amounts_are_decimals_of_any_unit() -> None:
    assert amounts({"usd": 5, "tokens": Decimal("1.5")}) == {"usd": Decimal(5), "tokens": Decimal("1.5")}
    assert amounts(None) == amounts({}) == {}


@pytest.mark.parametrize("amount", [0.1, True, "5", None, Fraction(1, 3)])
def test_what_is_no_exact_amount_is_refused(amount: Any) -> None:
    with pytest.raises(ValueError, match="Decimal or int"):
        amounts({"usd": amount})


@pytest.mark.parametrize("amount", [Decimal("NaN"), Decimal("Infinity"), Decimal(-1), -1])
def test_an_amount_that_is_negative_or_not_finite_is_refused(amount: Any) -> None:
    with pytest.raises(ValueError, match="finite and zero or more"):
        amounts({"usd": amount})


def test_a_unit_that_was_never_granted_has_a_ceiling_of_zero() -> None:
    ledger = Ledger()

    assert ledger.left("usd") == 0
    assert ledger.short(usd(1)) == usd(1)
    assert ledger.short({}) == {}


def test_a_reservation_holds_the_worst_case() -> None:
    ledger = Ledger(granted=usd(5))

    ledger.reserve(":0", usd(3), 1)

    assert ledger.left("usd") == 2
    assert ledger.short(usd(2)) == {}
    assert ledger.short(usd(4)) == usd(2)


def test_reserving_again_for_the_same_step_replaces_and_does_not_add() -> None:
    ledger = Ledger(granted=usd(5))

    ledger.reserve(":0", usd(3), 1)
    ledger.reserve(":0", usd(4), 2)

    assert ledger.left("usd") == 1


def test_reserving_nothing_holds_nothing() -> None:
    ledger = Ledger(granted=usd(5))

    ledger.reserve(":0", {}, 1)

    assert ledger.reserved == {}


def test_an_attempt_books_what_a_lost_one_of_its_step_held_and_holds_its_own() -> None:
    ledger = Ledger(granted=usd(9))

    ledger.begin(":0", usd(3), 1)
    assert (ledger.spent, ledger.reserved, ledger.since) == ({}, {":0": usd(3)}, {":0": 1})
    ledger.begin(":0", usd(4), 2)

    assert (ledger.spent, ledger.reserved, ledger.since) == (usd(3), {":0": usd(4)}, {":0": 2})


def test_settling_books_what_was_spent_and_releases_the_rest() -> None:
    ledger = Ledger(granted=usd(5), reserved={":0": usd(3)})

    ledger.settle(":0", usd(1))

    assert (ledger.spent, ledger.reserved, ledger.left("usd")) == (usd(1), {}, Decimal(4))


def test_settling_without_an_amount_books_the_whole_reservation() -> None:
    ledger = Ledger(granted=usd(5), reserved={":0": usd(3)})

    ledger.settle(":0", None)

    assert (ledger.spent, ledger.left("usd")) == (usd(3), Decimal(2))


def test_settling_zero_leaves_no_trace_of_the_unit() -> None:
    ledger = Ledger(reserved={":0": usd(3)})

    ledger.settle(":0", usd(0))
    ledger.settle(":1", None)

    assert ledger.spent == {}


def test_a_grant_raises_the_ceiling() -> None:
    ledger = Ledger(granted=usd(5))

    ledger.grant({"usd": Decimal(1), "tokens": Decimal(10)})

    assert ledger.granted == {"usd": Decimal(6), "tokens": Decimal(10)}


@given(st.lists(st.tuples(MONEY, MONEY, st.booleans()), max_size=20), MONEY)
def test_whoever_reserves_only_what_is_left_never_spends_more_than_was_granted(
    calls: list[tuple[Decimal, Decimal, bool]], granted: Decimal
) -> None:
    ledger = Ledger(granted={"usd": granted})
    for number, (worst, actual, settles) in enumerate(calls):
        cost: Amounts = {"usd": worst}
        if ledger.short(cost):
            continue
        ledger.reserve(f":{number}", cost, number)
        if settles:
            ledger.settle(f":{number}", {"usd": min(actual, worst)})

    assert ledger.left("usd") >= 0
    assert ledger.spent.get("usd", Decimal(0)) <= granted
