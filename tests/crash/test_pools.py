"""Killed between a reservation and what settles it: the books are right at once, and after the recovery."""

import asyncio
import random
import shutil
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from milepost.app import open_store
from milepost.operations.recounting import recount
from milepost.stores.pools import PoolRow, SetCeiling
from tests.crash import desk
from tests.crash.killing import SEED, SWEEP_ALL, calls_of, copied, killed_at, restarted, whole, work

MOST = {"usd": Decimal(10), "tokens": Decimal(30)}
INSIDE = [
    "ask:before",
    "ask:applied",
    "ask:return",
    "charge first:before",
    "charge first:applied",
    "charge second:return",
]
SAMPLE = 16


def limited(folder: Path) -> Path:
    """Make a store in which the desk's money is a shared budget, too."""
    folder.mkdir()
    store = open_store(desk.store_of(folder), create=True)
    for pool, per in (("total", "ever"), ("principal:desk", "ever")):
        asyncio.run(store.commit([SetCeiling(pool, per, MOST, "a try", "ann", 1)]))
    store.close()
    return folder


def books(folder: Path) -> dict[tuple[str, str], PoolRow]:
    """Return the pools as a dead worker left them; assert that the journals say the same, and that all is within."""

    async def read() -> dict[tuple[str, str], PoolRow]:
        store = open_store(desk.store_of(copy))
        try:
            assert await recount(store) == []
            return {(row.pool, row.unit): row for row in await store.pools(0)}
        finally:
            store.close()

    copy = copied(folder, folder.with_name(folder.name + "-read"))
    try:
        rows = asyncio.run(read())
    finally:
        shutil.rmtree(copy)
    for (_, unit), row in rows.items():
        assert row.spent + row.reserved <= row.ceiling
        assert row == PoolRow(
            row.pool, "ever", unit, MOST[unit], rows["total", unit].spent, rows["total", unit].reserved
        )
    return rows


def settled(folder: Path) -> None:
    """Go on to the end; assert that all is spent that was done, and nothing is reserved any more."""
    whole(folder, restarted(folder))
    rows = books(folder)
    assert [rows["total", "usd"].spent, rows["total", "usd"].reserved] == [10, 0]
    assert rows["total", "tokens"].reserved == 0
    assert rows["total", "tokens"].spent in {7, 17}  # a try that was lost may have been charged


@pytest.mark.parametrize("place", INSIDE)
def test_a_reservation_outlives_the_worker_that_was_killed_with_it(tmp_path: Path, place: str) -> None:
    """Requirement 83."""
    folder = limited(tmp_path / "desk")
    assert work(folder, crash_at=place).killed
    unit = "tokens" if place.startswith("ask") else "usd"
    assert books(folder)["total", unit].reserved == (10 if unit == "tokens" else 5)
    settled(folder)


@pytest.mark.timeout(900)
def test_the_books_are_right_wherever_a_worker_is_killed(tmp_path: Path, tell: Callable[[str], None]) -> None:
    """Requirement 83. Requirement 85. The rows say what the journals say, and no ceiling is exceeded."""
    counts = calls_of(limited(tmp_path / "counted"))
    places = [(call, number) for call, count in counts.items() for number in range(1, count + 1)]
    chosen = places if SWEEP_ALL else random.Random(SEED).sample(places, SAMPLE)
    hit = 0
    for call, number in chosen:
        folder = limited(tmp_path / f"{call}-{number}")
        hit += killed_at(folder, call, number)
        books(folder)
        settled(folder)
    tell(f"shared budgets: {hit} kill points hit, {len(chosen)} chosen of {len(places)}")
    assert hit
