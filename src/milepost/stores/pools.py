"""What a store is asked of shared budgets, and the rows that it shows of them. See core/pools.py for the rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol

import msgspec

from milepost.core.pools import Row, Short
from milepost.errors import MilepostError

PER = {"day": "a day", "ever": "in all"}


class Reserve(msgspec.Struct, gc=False):
    """What an attempt may cost at worst, charged to shared pools on a UTC day. It is held whole, or refused.

    `again` says that its step may hold something already: that is booked then, and where it is False nobody looks.
    """

    step: str
    cost: Mapping[str, Decimal]
    pools: tuple[str, ...]
    day: int
    again: bool = True


class PoolSpent(msgspec.Struct, gc=False):
    """What a step has spent, charged to shared pools on the UTC day of its start; what it had reserved is let go."""

    step: str
    spent: Mapping[str, Decimal]
    pools: tuple[str, ...]
    day: int


@dataclass(slots=True)
class SetCeiling:
    """Set what a shared pool may spend, per unit; None lifts a unit's ceiling. `per` is `day` or `ever`.

    Runs that are parked for money are made due by it. Answered with how many those are.
    """

    pool: str
    per: str
    ceilings: Mapping[str, Decimal | None]
    why: str
    by: str
    at: int


class PoolShort(MilepostError):
    """The ceiling of a shared pool does not suffice for what this append would reserve."""

    code = "pool_short"

    def __init__(self, short: Short) -> None:
        kept = f"{short.pool} may spend {short.ceiling:f} {short.unit} {PER[short.per]}"
        super().__init__(f"{kept}: {short.gap:f} are missing")
        self.short = short


@dataclass(slots=True)
class PoolRow:
    """A ceiling of a shared pool in one unit, and what of it is spent and reserved; of one day, where it is per day."""

    pool: str
    per: str
    unit: str
    ceiling: Decimal
    spent: Decimal
    reserved: Decimal


@dataclass(slots=True)
class PoolRows:
    """The rows of the shared pools as they stand: what is spent by (pool, day, unit), and each reservation's part."""

    spent: dict[Row, Decimal]
    held: dict[tuple[str, str], dict[Row, Decimal]]


class PoolReads(Protocol):
    """What a store answers about shared budgets."""

    async def pools(self, day: int) -> list[PoolRow]:
        """Return every ceiling with what is spent and reserved of it; of this UTC day, where it is per day."""
        ...

    async def pool_rows(self) -> PoolRows:
        """Return the rows of the shared pools."""
        ...

    async def overspent(self) -> dict[str, dict[str, Decimal]]:
        """Return by run id what runs have spent above their reservations, per unit."""
        ...

    async def written(self, after: int) -> list[tuple[int, str, int, bytes]]:
        """Return entries of all runs behind a row, as (row, run id, number, bytes), in the order of writing."""
        ...
