"""Shared budgets, decided on values: what entries ask for, and books that never exceed a ceiling."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.core import entries as e
from milepost.core import messages as m
from milepost.core.authority import Granted
from milepost.core.budget import Ledger
from milepost.core.inbox import journal
from milepost.core.limit_entries import Narrowed, Overspent
from milepost.core.pools import (
    EVER,
    RESERVES,
    SETTLES,
    Books,
    Reserving,
    Settling,
    Short,
    checked_pool,
    day_of,
    keys,
    next_day,
    pools_of,
    short,
    unneeded,
)
from milepost.core.state import RunState
from tests.core import samples as say

DAY = 86_400_000
MONEY = st.decimals(min_value=0, max_value=100, places=2, allow_nan=False, allow_infinity=False)


def settles(state: RunState, entry: e.Entry) -> list[Settling]:
    return SETTLES[type(entry)](state, entry)


@pytest.mark.parametrize(
    ("tenant", "principal", "pools"),
    [
        (None, "", ("total",)),
        ("", "bot", ("total", "principal:bot")),
        ("acme", "bot", ("total", "tenant:acme", "principal:bot")),
    ],
)
def test_a_run_is_charged_to_all_pools_that_it_falls_under(
    tenant: str | None, principal: str, pools: tuple[str, ...]
) -> None:
    assert pools_of(tenant, principal) == pools


@pytest.mark.parametrize("pool", ["total", "tenant:a:b", "principal:x"])
def test_a_pool_is_named_by_its_kind(pool: str) -> None:
    assert checked_pool(pool) == pool


@pytest.mark.parametrize("pool", ["", "all", "tenant", "tenant:", ":x", "role:x", "Total", "total:x"])
def test_what_is_no_pool_is_refused(pool: str) -> None:
    with pytest.raises(ValueError, match="is no pool"):
        checked_pool(pool)


def test_a_day_is_utc_s_and_ends_where_the_next_one_begins() -> None:
    assert (day_of(0), day_of(DAY - 1), day_of(DAY)) == (0, 0, 1)
    assert (next_day(0), next_day(DAY - 1), next_day(DAY)) == (DAY, DAY, 2 * DAY)


def test_a_pool_restricts_the_units_that_it_names_and_no_others() -> None:
    ceilings = {("total", "ever", "usd"): Decimal(1), ("tenant:a", "day", "calls"): Decimal(1)}

    assert keys(ceilings, ("total", "tenant:a"), ["usd", "tokens"]) == [("total", "ever", "usd")]
    assert keys(ceilings, ("total", "tenant:b"), ["calls"]) == []


def test_what_is_short_is_refused_whole_and_says_by_how_much() -> None:
    """Requirement 72. Also at zero: nothing is granted of what is not there."""
    key = ("total", "ever", "usd")

    def missing(ceiling: str, gap: str, held: str) -> Short:
        return Short(*key, Decimal(ceiling), Decimal(gap), Decimal(held))

    assert short(key, Decimal(10), Decimal(4), Decimal(3), Decimal(3)) is None
    assert short(key, Decimal(10), Decimal(4), Decimal(3), Decimal("3.01")) == missing("10", "0.01", "3")
    assert short(key, Decimal(0), Decimal(0), Decimal(0), Decimal("0.01")) == missing("0", "0.01", "0")
    assert short(key, Decimal(1), Decimal(2), Decimal(0), Decimal(0)) == missing("1", "1", "0")


# ---------------------------------------------------------------- what entries ask for


def test_the_first_attempt_reserves_and_a_resend_or_a_retry_does_not() -> None:
    state = say.run()

    first = RESERVES[e.EffectStarted](state, say.started(at=DAY, reserve=say.usd(2)))

    assert first == Reserving(say.STEP, say.usd(2), 1)
    assert RESERVES[e.EffectStarted](state, say.started(resend=True)) is None


def test_an_outcome_settles_on_the_day_of_the_start_whenever_it_is_known() -> None:
    state = say.run(say.started(at=DAY, reserve=say.usd(2)), granted=say.usd(5))

    silent, exact = say.confirmed(at=3 * DAY), say.confirmed(at=3 * DAY, spent=say.usd("0.5"))

    assert settles(state, silent) == [Settling(say.STEP, say.usd(2), 1)]
    assert settles(state, exact) == [Settling(say.STEP, say.usd("0.5"), 1)]


def test_a_failure_for_good_releases_and_one_that_is_tried_again_keeps() -> None:
    state = say.run(say.started(reserve=say.usd(2)), granted=say.usd(5))

    assert settles(state, say.failed(final=True)) == [Settling(say.STEP, {}, 0)]
    assert settles(state, say.failed(final=False)) == []


def test_a_try_of_a_costed_read_that_raised_is_settled_by_itself() -> None:
    raised = say.failed(final=False, reason="raised", spent=say.usd(2))
    state = say.run(say.started(effect="read", reserve=say.usd(2)), granted=say.usd(5))

    assert settles(state, raised) == [Settling(say.STEP, say.usd(2), 0)]
    state.apply(raised)
    assert (state.ledger.spent, state.ledger.reserved, state.ledger.since) == (say.usd(2), {}, {})


def test_a_read_that_was_lost_and_is_given_up_may_have_been_charged() -> None:
    for effect, spent in (("read", say.usd(2)), ("keyed", {})):
        state = say.run(say.started(effect=effect, reserve=say.usd(2)), say.lost(), granted=say.usd(5))
        given_up = say.failed(reason="absent", final=True)

        assert settles(state, given_up) == [Settling(say.STEP, spent, 0)]
        state.apply(given_up)
        assert state.ledger.spent == spent


def test_what_costs_nothing_settles_nothing() -> None:
    state = say.run(say.started())

    assert settles(state, say.confirmed()) == []
    assert settles(state, e.Checkpointed(at=1, boundary=say.boundary())) == []


@pytest.mark.parametrize(
    "end",
    [
        e.Checkpointed(at=1, boundary=say.boundary()),
        e.RunStopped(at=1, status="killed", code="killed", why="x"),
        e.RunStopped(at=1, status="failed", code="failed", why="x"),
        e.SegmentFailed(at=1, why="x", attempt=1, retry_at=2),
        e.Retried(at=1, by="ann"),
    ],
    ids=lambda entry: getattr(entry, "status", type(entry).__name__),
)
def test_what_is_neither_started_nor_unknown_is_released_at_the_end(end: e.Entry) -> None:
    state = say.run(
        say.started(step=":0", reserve=say.usd(1)), say.failed(step=":0"),
        say.started(step=":1", reserve=say.usd(1)), say.started(step=":2", reserve=say.usd(1)), say.lost(step=":2"),
        granted=say.usd(5),
    )  # fmt: skip

    assert unneeded(state) == [":0"]
    assert settles(state, end) == [Settling(":0", {}, EVER)]


def test_a_block_keeps_all_that_is_reserved() -> None:
    blocked = e.RunStopped(at=1, status="blocked", code="diverged", why="x")
    state = say.run(say.started(reserve=say.usd(1)), say.failed(), granted=say.usd(5))

    assert settles(state, blocked) == []
    state.apply(blocked)
    assert state.ledger.reserved == {say.STEP: say.usd(1)}


# ---------------------------------------------------------------- limits of a run


def test_a_ceiling_lowers_what_was_granted_and_never_raises_it() -> None:
    """Requirement 83. What was spent stays spent: nothing is left below it."""
    state = say.run(granted=say.usd(10), spent=say.usd(4))

    state.apply(Narrowed(at=1, by="ann", ceilings={"usd": Decimal(3), "tokens": Decimal(7)}))

    assert state.ledger.granted == {"usd": Decimal(3), "tokens": Decimal(0)}
    assert (state.ledger.left("usd"), state.ledger.spent) == (Decimal(-1), say.usd(4))
    state.apply(Narrowed(at=1, by="ann", ceilings=say.usd(8)))
    assert state.ledger.granted["usd"] == 3


def test_a_revoked_scope_is_gone_wherever_it_came_from_until_it_is_granted_anew() -> None:
    """Requirement 49."""
    state, start = say.run(), Granted("bot", ("a", "b"))
    state.apply(e.Widened(at=1, by="ann", scopes=("c", "d")))

    state.apply(Narrowed(at=2, by="ann", scopes=("a", "c")))
    narrowed = state.held(start).scopes
    state.apply(e.Widened(at=3, by="ann", scopes=("c",)))

    assert (narrowed, state.held(start).scopes) == (("b", "d"), ("b", "c", "d"))


def test_what_was_overspent_adds_up_and_survives_a_boundary() -> None:
    more = Overspent(at=1, step=":0", path="p", attempt=1, reserved=say.usd(1), spent=say.usd(3), over=say.usd(2))
    state = say.run(more, more)

    state.apply(e.Checkpointed(at=2, boundary=say.boundary(overspent=state.overspent)))

    assert state.overspent == say.usd(4)


# ---------------------------------------------------------------- books

CALLS = st.lists(st.tuples(st.integers(0, 5), MONEY, MONEY, st.sampled_from(["keep", "settle", "fail"])), max_size=30)


@given(CALLS, MONEY, MONEY)
def test_books_in_which_only_what_fits_is_reserved_never_exceed_a_ceiling(
    calls: list[tuple[int, Decimal, Decimal, str]], total: Decimal, of_acme: Decimal
) -> None:
    """Requirement 72. Requirement 83."""
    books = Books()
    books.set("total", "ever", {"usd": total})
    books.set("tenant:acme", "day", {"usd": of_acme})
    pools = ("total", "tenant:acme")
    rows = {("total", EVER, "usd"): total, ("tenant:acme", 1, "usd"): of_acme}

    def used(row: tuple[str, int, str]) -> Decimal:
        return books.spent.get(row, Decimal(0)) + sum(held.get(row, Decimal(0)) for held in books.held.values())

    for number, (place, worst, actual, then) in enumerate(calls):
        step = f":{place}" if then == "keep" else f":done{number}"
        if all(used(row) + worst <= most for row, most in rows.items()):
            books.reserve("run", pools, Reserving(step, say.usd(str(worst)), 1))
            if then != "keep":
                spent = say.usd(str(min(actual, worst))) if then == "settle" else {}
                books.settle("run", pools, Settling(step, spent, 1))
        assert all(used(row) <= most for row, most in rows.items())


def test_a_ceiling_that_is_lifted_lets_go_what_it_held_and_no_other_does() -> None:
    books = Books()
    for per in ("day", "ever"):
        books.set("total", per, {"usd": Decimal(9), "calls": Decimal(9)})
    books.reserve("run", ("total",), Reserving(":0", {"usd": Decimal(2), "calls": Decimal(1)}, 3))

    books.set("total", "ever", {"usd": None, "tokens": None})

    rows = {("total", 3, "usd"): Decimal(2), ("total", 3, "calls"): Decimal(1), ("total", EVER, "calls"): Decimal(1)}
    assert books.held == {("run", ":0"): rows}
    assert ("total", "ever", "usd") not in books.ceilings

    books.set("total", "day", {"calls": None})

    assert books.held == {("run", ":0"): {row: rows[row] for row in rows if row != ("total", 3, "calls")}}


def test_reserving_again_books_what_the_step_held_and_a_day_is_that_of_the_start() -> None:
    books = Books()
    books.set("total", "day", {"usd": Decimal(9)})
    books.reserve("run", ("total",), Reserving(":0", say.usd(2), 3))

    books.reserve("run", ("total",), Reserving(":0", say.usd(4), 4))
    books.reserve("run", ("tenant:x",), Reserving(":1", say.usd(4), 4))
    books.settle("run", ("total",), Settling(":0", say.usd(1), 4))
    books.settle("run", ("total",), Settling(":2", say.usd(0), 4))

    assert (books.spent, books.held) == ({("total", 3, "usd"): Decimal(2), ("total", 4, "usd"): Decimal(1)}, {})


def test_a_reservation_that_is_taken_back_leaves_nothing() -> None:
    ledger = Ledger(granted=say.usd(5))
    ledger.reserve(":0", say.usd(3), 7)

    ledger.release(":0")
    ledger.release(":1")

    assert (ledger.reserved, ledger.since, ledger.left("usd")) == ({}, {}, Decimal(5))


def test_a_message_that_revokes_narrows_the_run_whatever_it_does() -> None:
    message = m.Revoke(at=1, by="ann", scopes=("a",), ceilings=say.usd(3), why="x")

    assert journal(say.run(), message, 9) == [Narrowed(at=9, by="ann", scopes=("a",), ceilings=say.usd(3), why="x")]


@pytest.mark.parametrize("status", ["killed", "cancelled", "failed"])
def test_a_run_that_stops_keeps_only_what_may_have_been_spent(status: str) -> None:
    state = say.run(
        say.started(step=":0", reserve=say.usd(1)), say.failed(step=":0"),
        say.started(step=":1", reserve=say.usd(1)), say.lost(step=":1"), granted=say.usd(5),
    )  # fmt: skip

    state.apply(e.RunStopped(at=1, status=status, code=status, why="x"))

    assert state.ledger.reserved == {":1": say.usd(1)}


def test_a_ledger_that_is_closed_keeps_what_may_have_been_spent_and_grants_nothing() -> None:
    ledger = Ledger(granted=say.usd(9), spent=say.usd(1), reserved={":0": say.usd(2)})

    ledger.close()

    assert (ledger.granted, ledger.left("usd")) == (say.usd(3), Decimal(0))
