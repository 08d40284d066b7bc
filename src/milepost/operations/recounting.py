"""The shared budgets counted anew, from nothing but journals: what their rows must be.

Entries of all runs are read in the order in which they were written, and asked what the runtime asked of each. A run
that was pruned has left its journal: what it spent cannot be counted any more. Then the rows may say more than the
journals, and never less; what is reserved must agree in any case, for nothing that holds a reservation is pruned.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from milepost.core import codec
from milepost.core.entries import EffectStarted
from milepost.core.pools import EVER, NOTHING, RESERVES, SETTLES, Books, Key, Row, pools_of
from milepost.core.state import RunState
from milepost.core.store_entries import CeilingSet, RunImported, RunPruned
from milepost.errors import UnknownRun

if TYPE_CHECKING:
    from milepost.core.entries import Entry
    from milepost.stores.api import Store


SYSTEM = "system"


async def recount(store: Store) -> list[str]:
    """Return how the rows of the shared budgets differ from what the journals say, nothing where they do not."""
    before, ceilings_before = await store.pool_rows(), await _set(store)
    books, whole = await counted(store)
    after, ceilings = await store.pool_rows(), await _set(store)
    if (before, ceilings_before) != (after, ceilings):
        return []  # somebody spends or sets at this moment: there is nothing to compare with
    found = _ceilings(books, ceilings)
    found += [
        f"{_named(row)}: the rows say {after.spent.get(row, 0)} spent, the journals {books.spent.get(row, 0)}"
        for row in sorted(after.spent.keys() | books.spent.keys())
        if _differ(after.spent.get(row, NOTHING), books.spent.get(row, NOTHING), whole=whole)
    ]
    for run, step in sorted(after.held.keys() | books.held.keys()):
        rows, counted_ = after.held.get((run, step), {}), books.held.get((run, step), {})
        if rows != counted_:
            said = f"the rows say {_held(rows)} reserved, the journals {_held(counted_)}"
            found.append(f"run {run}, step {step}: {said}")
    return found


async def _set(store: Store) -> dict[Key, Decimal]:
    return {(one.pool, one.per, one.unit): one.ceiling for one in await store.pools(0)}


def _differ(said: Decimal, counted_: Decimal, *, whole: bool) -> bool:
    return said != counted_ if whole else said < counted_


def _ceilings(books: Books, rows: dict[Key, Decimal]) -> list[str]:
    return [
        f"{unit} of {pool} ({per}): the rows say a ceiling of {rows.get((pool, per, unit), 'none')}, "
        f"the journal {books.ceilings.get((pool, per, unit), 'none')}"
        for pool, per, unit in sorted(rows.keys() | books.ceilings.keys())
        if rows.get((pool, per, unit)) != books.ceilings.get((pool, per, unit))
    ]


def _named(row: Row) -> str:
    pool, day, unit = row
    return f"{unit} of {pool}" if day == EVER else f"{unit} of {pool} on day {day}"


def _held(rows: dict[Row, Decimal]) -> str:
    return ", ".join(f"{amount:f} {_named(row)}" for row, amount in sorted(rows.items())) or "nothing"


async def counted(store: Store) -> tuple[Books, bool]:
    """Return the books as the journals say they are, and whether all journals are there: none was pruned.

    Raises Damaged for entries that do not follow from each other.
    """
    books = Books()
    brought = await _brought(store)
    states: dict[str, RunState] = {}
    charged: dict[str, tuple[str, ...]] = {}
    last, whole = 0, True
    while written := await store.written(last):
        for row, run_id, seq, body in written:
            last = row
            entry = codec.decode(body)
            whole = whole and not isinstance(entry, RunPruned)
            if isinstance(entry, CeilingSet):
                books.set(entry.pool, entry.per, entry.ceilings)
            if run_id not in states:
                states[run_id] = RunState(run_id)
                about = await store.run(run_id)
                charged[run_id] = pools_of(about.tenant, about.principal)
            if seq > brought.get(run_id, 0):
                _charge(books, states[run_id], charged[run_id], entry)
            states[run_id].apply(entry)
    books.held = {of: rows for of, rows in books.held.items() if rows}
    return books, whole


async def _brought(store: Store) -> dict[str, int]:
    """Return up to which entry runs were imported: what they spent elsewhere is not charged here."""
    try:
        _, stored, _ = await store.chain(SYSTEM)
    except UnknownRun:
        return {}
    entries = [codec.decode(one.plain) for one in stored]
    return {entry.run: entry.seq for entry in entries if isinstance(entry, RunImported)}


def _charge(books: Books, state: RunState, pools: tuple[str, ...], entry: Entry) -> None:
    if type(entry) is EffectStarted:
        asked = RESERVES[EffectStarted](state, entry)
        if asked is not None and books.ceilings:
            books.reserve(state.run, pools, asked)
    elif type(entry) in SETTLES:
        for settled in SETTLES[type(entry)](state, entry):
            books.settle(state.run, pools, settled)
