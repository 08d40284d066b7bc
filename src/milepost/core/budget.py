"""A ceiling with a ledger: reserve the worst case before, settle the actual after, nothing that was not granted.

Amounts are Decimal or int in units of any name. A unit that was never granted has a ceiling of zero. A reservation
belongs to its effect and lasts until the effect settles; an unknown one keeps it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

Amounts = dict[str, Decimal]
NOTHING = Decimal(0)


def amounts(of: Mapping[str, Decimal | int] | None) -> Amounts:
    """Return the amounts as Decimals. Raises ValueError for a float, a negative amount, or one that is not finite."""
    result: Amounts = {}
    for unit, amount in (of or {}).items():
        if isinstance(amount, bool) or not isinstance(amount, int | Decimal):
            msg = f"{unit}={amount!r}: amounts are Decimal or int, never {type(amount).__name__}"
            raise ValueError(msg)  # noqa: TRY004  one error for one question: is this an amount?
        exact = Decimal(amount)
        if not exact.is_finite() or exact < 0:
            msg = f"{unit}={amount!r}: amounts are finite and zero or more"
            raise ValueError(msg)
        result[unit] = exact
    return result


@dataclass(slots=True)
class Ledger:
    """What a run was granted, has spent, and has reserved per step; `since` when, in milliseconds since 1970."""

    granted: Amounts = field(default_factory=dict)
    spent: Amounts = field(default_factory=dict)
    reserved: dict[str, Amounts] = field(default_factory=dict)
    since: dict[str, int] = field(default_factory=dict)

    def left(self, unit: str) -> Decimal:
        """Return what may still be reserved of a unit."""
        left = self.granted.get(unit, NOTHING) - self.spent.get(unit, NOTHING)
        for cost in self.reserved.values():
            left -= cost.get(unit, NOTHING)
        return left

    def short(self, cost: Amounts) -> Amounts:
        """Return, per unit, how much is missing for this cost; empty when all of it may be reserved."""
        gaps: Amounts = {}
        for unit, amount in cost.items():
            gap = amount - self.left(unit)
            if gap > 0:
                gaps[unit] = gap
        return gaps

    def grant(self, more: Amounts) -> None:
        """Raise the ceiling."""
        for unit, amount in more.items():
            self.granted[unit] = self.granted.get(unit, NOTHING) + amount

    def lower(self, ceilings: Amounts) -> None:
        """Lower what was granted to these ceilings; what is below one already stays. Spent is spent."""
        for unit, ceiling in ceilings.items():
            self.granted[unit] = min(self.granted.get(unit, NOTHING), ceiling)

    def reserve(self, step: str, cost: Amounts, at: int) -> None:
        """Hold the cost for a step. Holding again for the same step replaces, it does not add."""
        if cost:
            self.reserved[step] = cost
            self.since[step] = at

    def begin(self, step: str, cost: Amounts, at: int) -> None:
        """Hold the cost of an attempt. What a lost one held (of a costed read) is booked: it may have been charged."""
        if step in self.reserved:
            self.settle(step, None)
        self.reserve(step, cost, at)

    def release(self, step: str) -> None:
        """Let a step's reservation go: nothing of it was spent."""
        self.reserved.pop(step, None)
        self.since.pop(step, None)

    def settle(self, step: str, spent: Amounts | None) -> None:
        """Release a step's reservation and book what was spent; None books the whole reservation."""
        held = self.reserved.pop(step, {})
        self.since.pop(step, None)
        for unit, amount in (held if spent is None else spent).items():
            if amount:
                self.spent[unit] = self.spent.get(unit, NOTHING) + amount

    def close(self) -> None:
        """Lower the ceiling to what is spent and reserved, so that nothing more may be spent before a new grant."""
        self.granted = dict(self.spent)
        for cost in self.reserved.values():
            self.grant(cost)
