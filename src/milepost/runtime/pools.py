"""Money on its way: what entries ask of shared budgets, what is said where one is short, and of what was overspent.

A step that a shared budget refuses parks. It looks again by itself: soon, where what others hold may be set free; when
the day ends, where the ceiling is for a day; now and then in any case. Each time that it parks again it takes twice as
long, up to a bound: very many may wait for the same money, and for days. Whoever raises the ceiling wakes all at once.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from milepost.core.limit_entries import Overspent
from milepost.core.pools import NOTHING, RESERVES, SETTLES, day_of, next_day
from milepost.errors import Waiting
from milepost.stores.pools import PoolSpent, Reserve

if TYPE_CHECKING:
    from milepost.core import entries as e
    from milepost.core.pools import Short
    from milepost.core.steps import Effect
    from milepost.runtime.branch import Branch, ToolStep
    from milepost.runtime.session import Session

log = logging.getLogger("milepost")
SOON_MS, SOON_MOST_MS = 5_000, 60_000
LATER_MS, LATER_MOST_MS = 60_000, 600_000
NOBODY = frozenset[str]()


def charge(session: Session, entry: e.Entry, spent: list[PoolSpent]) -> Reserve | None:
    """Return what an entry that is not applied yet reserves, and add to `spent` what it settles."""
    kind, state = type(entry), session.state
    if kind in RESERVES:
        asked = RESERVES[kind](state, entry)
        if asked is None:
            return None
        return Reserve(asked.step, asked.cost, session.pools, asked.day, asked.step in state.ledger.reserved)
    if kind in SETTLES and (state.ledger.reserved or getattr(entry, "spent", None)):
        for one in SETTLES[kind](state, entry):
            spent.append(PoolSpent(one.step, one.spent, session.pools, one.day))  # noqa: PERF401  it is one, mostly
    return None


def settled_at_once(session: Session, step: ToolStep) -> list[PoolSpent]:
    """Return what the outcome of a transactional tool settles, which commits together with its start."""
    ledger = session.state.ledger
    held = ledger.reserved.get(step.id)
    return [PoolSpent(step.id, held, session.pools, day_of(ledger.since[step.id]))] if held else []


def held_beside(session: Session, step: ToolStep) -> frozenset[str]:
    """Return the other steps of the run that hold reservations now."""
    reserved = session.state.ledger.reserved
    alone = len(reserved) == (step.id in reserved)
    return NOBODY if alone else frozenset(reserved.keys() - {step.id})


async def wait(branch: Branch, step: ToolStep, short: Short, beside: frozenset[str]) -> None:
    """Rest while a shared budget is short; say what raises it.

    `beside` are the steps that held reservations when it was asked for: until the answer came one may have let go.
    """
    session = branch.session
    now = session.engine.clock.now()
    due = now + looks_after(short, session.state.short)
    if short.per == "day":
        due = min(due, next_day(now))
    waiting = Waiting("budget", None, ask(short))
    session.polls[step.id] = due
    ours = session.state.ledger.reserved.copy()
    try:
        while session.engine.clock.now() < due and beside <= ours.keys() and session.state.ledger.reserved == ours:
            await session.parked(step.id, waiting, branch.idle)
    finally:
        session.polls.pop(step.id, None)


def looks_after(short: Short, times: int) -> int:
    """Return after how many milliseconds a step looks by itself whose run has parked so often in a row for money."""
    first, most = (SOON_MS, SOON_MOST_MS) if short.gap <= short.held else (LATER_MS, LATER_MOST_MS)
    return min(first << min(times, 8), most)


def ask(short: Short) -> str:
    """Return what a person may type so that what is short suffices."""
    per = " --per day" if short.per == "day" else ""
    enough = short.ceiling + short.gap
    return f"milepost budget set {short.pool} {short.unit}={enough.normalize():f}{per} --why …"


def overspent(session: Session, effect: Effect, number: int, spent: dict[str, Any] | None) -> tuple[Overspent, ...]:
    """Return the alarm that stands beside an outcome which cost more than was reserved, none where it did not."""
    if not spent:
        return ()
    held = session.state.ledger.reserved.get(effect.step, {})
    more = {unit: amount - held.get(unit, NOTHING) for unit, amount in spent.items()}
    over = {unit: amount for unit, amount in more.items() if amount > 0}
    if not over:
        return ()
    said = ", ".join(f"{amount:f} {unit}" for unit, amount in over.items())
    log.warning("run %s: %s spent %s more than was reserved", session.run_id, effect.path, said)
    alarm = Overspent(
        at=session.engine.clock.now(),
        step=effect.step,
        path=effect.path,
        attempt=number,
        reserved=held,
        spent=spent,
        over=over,
    )
    return (alarm,)
