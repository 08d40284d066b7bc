"""Budgets that runs share: what an entry asks of them, and when they refuse. Decided on values.

A *pool* is whose runs share a ceiling: `total` (all runs), `tenant:NAME`, `principal:NAME`. Its ceiling in a unit holds
`ever`, or for a `day`: the UTC day on which what is charged has started. A pool restricts the units that it has a
ceiling for, and no others; each run's own budget is zero by default already.

  reserve  with the first `started` of an effect (with each one of a costed read): the worst case, or nothing at all.
           What is short is refused as a whole; a reservation is never cut down to what is left.
  settle   with the entry that settles the effect: what was spent is booked, the rest is free again.
  release  what is neither started nor unknown where a visit or the run ends; an unknown effect keeps its reservation.

A ceiling counts what starts and settles while it stands. What a run did before is in its journal, and in no pool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from milepost.core import entries as e
from milepost.core.code_entries import Resumed
from milepost.core.steps import Effect

if TYPE_CHECKING:
    from milepost.core.budget import Amounts
    from milepost.core.state import RunState

Per = Literal["day", "ever"]
PERS: tuple[Per, ...] = ("day", "ever")
Key = tuple[str, str, str]  # pool, per, unit
Row = tuple[str, int, str]  # pool, UTC day (or EVER), unit
EVER = -1
TOTAL = "total"
KINDS = ("tenant", "principal")
NOTHING = Decimal(0)
DAY_MS = 86_400_000


class Reserving(msgspec.Struct, frozen=True, gc=False):
    """What an attempt that starts asks for."""

    step: str
    cost: Amounts
    day: int


class Settling(msgspec.Struct, frozen=True, gc=False):
    """What a step that holds a reservation has spent."""

    step: str
    spent: Amounts
    day: int


class Short(NamedTuple):
    """The first ceiling that does not suffice, and by how much. `held` is what others have reserved of it."""

    pool: str
    per: str
    unit: str
    ceiling: Decimal
    gap: Decimal
    held: Decimal


def pools_of(tenant: str | None, principal: str) -> tuple[str, ...]:
    """Return the pools that a run's spending is charged to."""
    named = ((KINDS[0], tenant), (KINDS[1], principal))
    return (TOTAL, *(f"{kind}:{name}" for kind, name in named if name))


def checked_pool(pool: str) -> str:
    """Return the pool. Raises ValueError for anything but `total`, `tenant:NAME` and `principal:NAME`."""
    kind, colon, name = pool.partition(":")
    if pool != TOTAL and not (colon and name and kind in KINDS):
        msg = f"{pool!r} is no pool: write total, tenant:NAME or principal:NAME"
        raise ValueError(msg)
    return pool


def day_of(at: int) -> int:
    """Return the UTC day of a moment, given in milliseconds since 1970; days are counted from 1970."""
    return at // DAY_MS


def next_day(at: int) -> int:
    """Return when the UTC day after a moment begins, both in milliseconds since 1970."""
    return (day_of(at) + 1) * DAY_MS


def bucket(per: str, day: int) -> int:
    """Return where amounts of a ceiling are counted: under their day, or for ever."""
    return day if per == "day" else EVER


def keys(ceilings: Mapping[Key, Decimal], pools: Iterable[str], units: Iterable[str]) -> list[Key]:
    """Return the ceilings that these units fall under in these pools."""
    named = list(units)
    return [key for pool in pools for per in PERS for unit in named if (key := (pool, per, unit)) in ceilings]


def short(key: Key, ceiling: Decimal, spent: Decimal, held: Decimal, cost: Decimal) -> Short | None:
    """Return what is missing for this cost, None where all of it may be reserved."""
    gap = spent + held + cost - ceiling
    return Short(*key, ceiling, gap, held) if gap > 0 else None


# ---------------------------------------------------------------- what entries ask for


def _started(_: RunState, entry: e.EffectStarted) -> Reserving | None:
    return Reserving(entry.step, entry.reserve, day_of(entry.at)) if entry.reserve else None


def _confirmed(state: RunState, entry: e.EffectConfirmed) -> list[Settling]:
    return _settled(state, entry.step, entry.spent, entry.at)


def _failed(state: RunState, entry: e.EffectFailed) -> list[Settling]:
    if not settles(entry):
        return []
    return _settled(state, entry.step, failed_for(state, entry), entry.at)


def failed_for(state: RunState, entry: e.EffectFailed) -> Amounts | None:
    """Return what a failure that is not applied yet has cost: None for all that was reserved.

    What failed for certain cost nothing, where it does not say otherwise; a read that was lost may have been charged.
    """
    effect = state.steps.get(entry.step)
    lost = type(effect) is Effect and effect.effect == "read" and effect.outcome == "unknown"
    return entry.spent if entry.spent is not None or lost else {}


def settles(entry: e.EffectFailed) -> bool:
    """Say whether a failure ends a reservation: for good, or a try of a costed read, each of which may be charged."""
    return entry.final or entry.reason == "raised"


def _settled(state: RunState, step: str, spent: Amounts | None, at: int) -> list[Settling]:
    held = state.ledger.reserved.get(step)
    if held is None and not spent:
        return []
    amounts = (held or {}) if spent is None else spent
    return [Settling(step, amounts, day_of(state.ledger.since.get(step, at)))]


def _left(state: RunState, entry: e.Entry) -> list[Settling]:
    if type(entry) is e.RunStopped and entry.status == "blocked":
        return []
    return [Settling(step, {}, EVER) for step in unneeded(state)]


def unneeded(state: RunState) -> list[str]:
    """Return the steps that hold a reservation and are neither started nor unknown."""
    if not state.ledger.reserved:
        return []
    open_ = {effect.step for effect in state.unsettled()}
    return [step for step in state.ledger.reserved if step not in open_]


RESERVES: dict[type[e.Entry], Callable[[RunState, Any], Reserving | None]] = {e.EffectStarted: _started}
SETTLES: dict[type[e.Entry], Callable[[RunState, Any], list[Settling]]] = {
    e.EffectConfirmed: _confirmed,
    e.EffectFailed: _failed,
    e.Checkpointed: _left,
    e.RewindAsked: _left,
    e.Rewound: _left,
    e.RunDone: _left,
    e.RunStopped: _left,
    e.SegmentFailed: _left,
    e.Retried: _left,
    Resumed: _left,
}


# ---------------------------------------------------------------- the books, as values


@dataclass(slots=True)
class Books:
    """What a store keeps of its pools: ceilings, what was spent, and one reservation per run, step and ceiling."""

    ceilings: dict[Key, Decimal] = field(default_factory=dict)
    spent: dict[Row, Decimal] = field(default_factory=dict)
    held: dict[tuple[str, str], dict[Row, Decimal]] = field(default_factory=dict)  # by run and step

    def set(self, pool: str, per: str, ceilings: Mapping[str, Decimal | None]) -> None:
        """Set ceilings, or lift them: what they held is let go, what was spent stays known."""
        for unit, ceiling in ceilings.items():
            if ceiling is not None:
                self.ceilings[pool, per, unit] = ceiling
                continue
            self.ceilings.pop((pool, per, unit), None)
            for rows in self.held.values():
                gone = [row for row in rows if (row[0], row[2]) == (pool, unit) and (row[1] != EVER) is (per == "day")]
                for row in gone:
                    del rows[row]

    def reserve(self, run: str, pools: Iterable[str], asked: Reserving) -> None:
        """Hold a cost. What the step held already is booked: that attempt may have been charged."""
        for row, amount in self.held.pop((run, asked.step), {}).items():
            self.spent[row] = self.spent.get(row, NOTHING) + amount
        found = keys(self.ceilings, pools, asked.cost)
        rows = {(pool, bucket(per, asked.day), unit): asked.cost[unit] for pool, per, unit in found}
        if rows:
            self.held[run, asked.step] = rows

    def settle(self, run: str, pools: Iterable[str], settled: Settling) -> None:
        """Let a reservation go, and book what was spent."""
        self.held.pop((run, settled.step), None)
        for pool, per, unit in keys(self.ceilings, pools, settled.spent):
            row = (pool, bucket(per, settled.day), unit)
            if settled.spent[unit]:
                self.spent[row] = self.spent.get(row, NOTHING) + settled.spent[unit]
