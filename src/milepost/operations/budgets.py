"""What a person does to budgets: ceilings of shared pools, and a run's own limits made tighter."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from milepost.core import messages as m
from milepost.core.budget import amounts
from milepost.core.pools import NOTHING, PERS, checked_pool, day_of
from milepost.errors import InvalidValue
from milepost.stores.pools import SetCeiling

if TYPE_CHECKING:
    from milepost.stores.api import Store
    from milepost.stores.fleet import WorkerRow

TAKEN_WITHIN_S = 5.0
LOOK_S = 0.02
Write = Callable[[Any], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class PoolView:
    """A shared pool's ceiling in a unit, and how it stands: today's amounts where it is per day.

    `left` may be reserved; `over` is what is spent and reserved above the ceiling, once that was lowered or overspent.
    """

    pool: str
    per: str
    unit: str
    ceiling: Decimal
    spent: Decimal
    reserved: Decimal
    left: Decimal
    over: Decimal


def checked(given: Mapping[str, Decimal | int] | None, what: str = "budget") -> dict[str, Decimal]:
    """Return exact amounts. Raises InvalidValue for what is none."""
    try:
        return amounts(given)
    except ValueError as error:
        raise InvalidValue(what, str(error)) from error


async def set_ceiling(
    write: Write, pool: str, per: str, ceilings: Mapping[str, Decimal | int | None], *, by: str, why: str, now: int
) -> int:
    """Set what a shared pool may spend per unit; None lifts a ceiling. Return how many waiting runs look again.

    It counts what starts and settles from now on. Raises InvalidValue for no pool, no amount, or no period.
    """
    try:
        checked_pool(pool)
    except ValueError as error:
        what = "pool"
        raise InvalidValue(what, str(error)) from error
    if per not in PERS:
        what = "per"
        raise InvalidValue(what, f"{per!r} is no period: write day or ever")
    exact = checked({unit: amount for unit, amount in ceilings.items() if amount is not None}, "ceiling")
    whole = {unit: exact.get(unit) for unit in ceilings}
    woken: int = await write(SetCeiling(pool, per, whole, why, by, now))
    return woken


async def pools(store: Store, now: int) -> list[PoolView]:
    """Return every ceiling of the shared pools, the widest pool first."""
    found = []
    for row in await store.pools(day_of(now)):
        free = row.ceiling - row.spent - row.reserved
        left, over = max(free, NOTHING), max(-free, NOTHING)
        found.append(PoolView(row.pool, row.per, row.unit, row.ceiling, row.spent, row.reserved, left, over))
    return sorted(found, key=lambda one: (":" in one.pool, one.pool, one.unit, one.per))


def revoke(
    scopes: Iterable[str], ceilings: Mapping[str, Decimal | int] | None, *, by: str, why: str, now: int
) -> m.Revoke:
    """Return the message that takes scopes from a run, and lowers what it was granted to ceilings.

    Raises InvalidValue for what is no amount.
    """
    return m.Revoke(at=now, by=by, scopes=tuple(scopes), ceilings=checked(ceilings, "ceiling"), why=why)


async def taken(store: Store, run_id: str, message: m.Message, dead: Callable[[WorkerRow], bool]) -> bool:
    """Wait until a run's owner has taken a message, or nobody who is not `dead` holds the run; return whether it is so.

    Then it holds: whoever takes a run up reads its messages before anything starts.
    """
    body = m.encode(message)
    deadline = asyncio.get_running_loop().time() + TAKEN_WITHIN_S
    while True:
        waits = any(body == found for _, found in await store.inbox(run_id))
        owner = (await store.run(run_id)).owner
        if not waits or owner is None or any(one.id == owner and dead(one) for one in await store.holders()):
            return True
        if asyncio.get_running_loop().time() >= deadline:
            return False
        await asyncio.sleep(LOOK_S)
