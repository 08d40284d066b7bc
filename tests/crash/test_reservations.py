"""Several processes spend from one budget at once: at no moment is more of it spent and reserved than there is."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from milepost.stores.pools import PoolRow, SetCeiling
from milepost.stores.sqlite.store import SqliteStore
from tests.crash.killing import SWEEP_ALL
from tests.crash.reserving import DAY

PROCESSES = 4
ALL = 10_000
SAMPLE = 400
RESERVATIONS = ALL if SWEEP_ALL else SAMPLE
TOTAL = Decimal(RESERVATIONS) * 3 / 4  # less than what they would spend
OF_ACME = Decimal(RESERVATIONS) / 2
WITHIN_S = 600


def looked(store: SqliteStore) -> dict[str, PoolRow]:
    return {row.pool: row for row in asyncio.run(store.pools(DAY))}


def within(rows: dict[str, PoolRow]) -> Decimal:
    """Assert that no ceiling is exceeded; return what is spent and reserved of the total."""
    for row in rows.values():
        assert row.spent + row.reserved <= row.ceiling, row
    return rows["total"].spent + rows["total"].reserved


@pytest.mark.timeout(WITHIN_S)
def test_what_many_processes_reserve_of_one_budget_never_exceeds_it(
    tmp_path: Path, tell: Callable[[str], None]
) -> None:
    """Requirement 72. Requirement 83. A sample of 10,000 reservations; all of them with MILEPOST_SWEEP=all."""
    store = SqliteStore(str(tmp_path / "store.db"), create=True)
    for pool, per, most in (("total", "day", TOTAL), ("tenant:acme", "ever", OF_ACME)):
        asyncio.run(store.commit([SetCeiling(pool, per, {"usd": most}, "a try", "ann", 1)]))
    each = str(RESERVATIONS // PROCESSES)
    command = [sys.executable, "-m", "tests.crash.reserving", str(tmp_path / "store.db")]
    processes = [
        subprocess.Popen([*command, f"run{n}", each, str(n)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for n in range(PROCESSES)
    ]
    looks, seen = 0, set[Decimal]()
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        while any(process.poll() is None for process in processes):
            seen.add(within(looked(store)))
            looks += 1
        told = [json.loads(process.communicate()[0]) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    rows = looked(store)
    within(rows)
    asked, granted = (sum(one[what] for one in told) for what in ("asked", "granted"))
    spent, held = (Decimal(sum(one[what] for one in told)) / 100 for what in ("spent", "held"))
    store.close()
    assert asked == RESERVATIONS
    assert 0 < granted < asked, "some were refused, and some were not"
    assert len(seen) > 1, "it was looked at while they spent"
    assert {(row.spent, row.reserved) for row in rows.values()} == {(spent, held)}
    tell(f"{asked:,} reservations by {PROCESSES} processes: {granted:,} granted, {looks:,} looks, none above")
