"""What entries of one held run ask of shared budgets, how a call that is short rests, and what was overspent."""

import logging
from decimal import Decimal
from typing import Any

import pytest

from milepost.core import entries as e
from milepost.core.limit_entries import Overspent
from milepost.core.pools import DAY_MS, EVER, Short
from milepost.errors import Waiting
from milepost.runtime import pools
from milepost.runtime.session import Session
from milepost.stores.pools import PoolSpent, Reserve
from tests.core import samples as s
from tests.runtime.sessions import NOW, OTHER, STEP, engine_of, held
from tests.runtime.test_what_a_call_rests_on import Branch, step_of

POOLS = ("total", "tenant:acme", "principal:bot")
GRANT = e.Widened(at=1, by="ann", budget=s.usd(9))
LATE = 3 * DAY_MS + 5


def charged(session: Session, entry: e.Entry) -> tuple[Reserve | None, list[PoolSpent]]:
    spent: list[PoolSpent] = []
    return pools.charge(session, entry, spent), spent


def test_a_start_that_costs_reserves_on_its_day_and_says_whether_its_step_may_hold_something() -> None:
    start = s.started(at=LATE, reserve=s.usd(5))

    assert charged(held(GRANT), start) == (Reserve(STEP, s.usd(5), POOLS, 3, again=False), [])
    again = held(GRANT, s.started(effect="read", reserve=s.usd(5)), s.lost())
    assert charged(again, s.started(at=LATE, attempt=2, effect="read", reserve=s.usd(5), resend=True)) == (
        Reserve(STEP, s.usd(5), POOLS, 3, again=True),
        [],
    )
    assert charged(held(), s.started()) == (None, [])


def test_what_settles_books_what_was_spent_on_the_day_of_its_start() -> None:
    session = held(GRANT, s.started(at=LATE, reserve=s.usd(5)))

    assert charged(session, s.confirmed(at=LATE + DAY_MS, spent=s.usd(2))) == (
        None,
        [PoolSpent(STEP, s.usd(2), POOLS, 3)],
    )
    assert charged(session, s.confirmed(at=LATE + DAY_MS)) == (None, [PoolSpent(STEP, s.usd(5), POOLS, 3)])
    assert charged(session, s.lost()) == (None, [])
    done = e.RunStopped(at=NOW, status="failed", code="x", why="x")
    session.put(s.failed(final=True))
    assert charged(session, done) == (None, [])


def test_what_was_spent_without_a_reservation_is_booked_as_well() -> None:
    session = held(s.started(at=LATE))

    assert charged(session, s.confirmed(at=LATE, spent=s.usd(2))) == (None, [PoolSpent(STEP, s.usd(2), POOLS, 3)])
    assert charged(session, s.confirmed(at=LATE)) == (None, [])


def test_what_a_run_leaves_behind_is_let_go() -> None:
    session = held(GRANT, s.started(reserve=s.usd(5)), s.failed())
    stopped = e.RunStopped(at=NOW, status="failed", code="x", why="x")

    assert charged(session, stopped) == (None, [PoolSpent(STEP, {}, POOLS, EVER)])


def test_a_transactional_outcome_settles_what_its_start_reserved() -> None:
    session = held(GRANT, s.started(at=LATE, reserve=s.usd(5)))

    assert pools.settled_at_once(session, step_of()) == [PoolSpent(STEP, s.usd(5), POOLS, 3)]
    assert pools.settled_at_once(held(s.started()), step_of()) == []


def test_the_other_steps_that_hold_money_are_named() -> None:
    session = held(GRANT, s.started(reserve=s.usd(2)), s.started(step=OTHER, reserve=s.usd(3)))

    assert pools.held_beside(session, step_of()) == {OTHER}
    assert pools.held_beside(held(GRANT, s.started(step=OTHER, reserve=s.usd(3))), step_of()) == {OTHER}
    assert pools.held_beside(held(GRANT, s.started(reserve=s.usd(2))), step_of()) == set()
    assert pools.held_beside(held(), step_of()) == set()


# ---------------------------------------------------------------- resting


def short(gap: int, held_: int, per: str = "ever") -> Short:
    return Short("total", per, "usd", Decimal(50), Decimal(gap), Decimal(held_))


@pytest.mark.parametrize(
    ("short_", "waits_ms", "ask"),
    [
        (short(3, 3), pools.SOON_MS, "milepost budget set total usd=53 --why …"),
        (short(4, 3), pools.LATER_MS, "milepost budget set total usd=54 --why …"),
        (short(50, 3), pools.LATER_MS, "milepost budget set total usd=100 --why …"),
        (short(4, 3, "day"), pools.LATER_MS, "milepost budget set total usd=54 --per day --why …"),
    ],
)
async def test_a_call_that_is_short_rests_and_says_what_suffices(short_: Short, waits_ms: int, ask: str) -> None:
    session = held()
    engine = engine_of(session)

    def earlier() -> None:
        engine.clock.now = lambda: NOW + waits_ms - 1

    def due() -> None:
        engine.clock.now = lambda: NOW + waits_ms

    branch: Any = Branch(session, earlier, due)

    await pools.wait(branch, step_of(), short_, frozenset())

    seen: Any = ({STEP: Waiting("budget", None, ask)}, {STEP: NOW + waits_ms}, {})
    assert branch.seen == [seen, seen]
    assert (session.polls, session.waits) == ({}, {})


@pytest.mark.parametrize(
    ("short_", "seconds"),
    [(short(3, 3), [5, 10, 20, 40, 60, 60]), (short(4, 3), [60, 120, 240, 480, 600, 600])],
)
def test_who_is_short_again_and_again_looks_ever_more_rarely_up_to_a_bound(short_: Short, seconds: list[int]) -> None:
    assert [pools.looks_after(short_, times) for times in range(6)] == [second * 1_000 for second in seconds]
    assert pools.looks_after(short_, 100_000) == seconds[-1] * 1_000


def test_how_often_a_run_was_short_is_counted_until_an_effect_is_confirmed_or_it_waits_for_something_else() -> None:
    session = held(GRANT)
    counts = []
    short_, person = e.RunParked(at=5, reason="budget"), e.RunParked(at=5, reason="person")
    for entry in (short_, short_, person, short_, s.started(reserve=s.usd(2)), short_, s.confirmed(), short_):
        session.state.apply(entry)
        counts.append(session.state.short)

    assert counts == [1, 2, 0, 1, 1, 2, 0, 1]  # a start may be taken back: it says nothing yet


async def test_a_ceiling_of_a_day_is_looked_at_when_the_day_ends() -> None:
    session = held()
    engine = engine_of(session)
    engine.clock.now = lambda: DAY_MS - 2_000

    def over() -> None:
        engine.clock.now = lambda: DAY_MS

    branch: Any = Branch(session, over)

    await pools.wait(branch, step_of(), short(4, 3, "day"), frozenset())

    assert branch.seen[0][1] == {STEP: DAY_MS}


async def test_a_call_that_is_short_looks_again_when_its_own_run_lets_go_of_some() -> None:
    session = held(GRANT, s.started(step=OTHER, reserve=s.usd(3)))
    branch: Any = Branch(session, lambda: None, lambda: session.state.ledger.release(OTHER))

    await pools.wait(branch, step_of(), short(4, 3), frozenset({OTHER}))

    assert len(branch.seen) == 2
    gone: Any = Branch(session)
    await pools.wait(gone, step_of(), short(4, 3), frozenset({OTHER}))
    assert gone.seen == [], "what it held when it was asked was let go before the answer came"


# ---------------------------------------------------------------- overspent


def test_what_cost_more_than_was_reserved_raises_an_alarm(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "milepost")
    session = held(GRANT, s.started(reserve=s.usd(5)))
    effect = s.effect(session.state)

    alarms = pools.overspent(session, effect, 2, {"usd": Decimal("7.5"), "eur": Decimal(1)})

    assert alarms == (
        Overspent(
            at=NOW, step=STEP, path=s.PATH, attempt=2, reserved=s.usd(5),
            spent={"usd": Decimal("7.5"), "eur": Decimal(1)}, over={"usd": Decimal("2.5"), "eur": Decimal(1)},
        ),
    )  # fmt: skip
    assert caplog.messages == [f"run {s.RUN}: {s.PATH} spent 2.5 usd, 1 eur more than was reserved"]


def test_what_cost_no_more_than_was_reserved_raises_none() -> None:
    session = held(GRANT, s.started(reserve=s.usd(5)))
    effect = s.effect(session.state)

    assert pools.overspent(session, effect, 1, s.usd(5)) == ()
    assert pools.overspent(session, effect, 1, None) == ()
    assert pools.overspent(held(), effect, 1, s.usd(1))[0].reserved == {}
