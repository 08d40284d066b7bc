"""A plain ledger of what a store is asked: it knows nothing of batches, notes, memory, savepoints or processes."""

from collections.abc import Iterable
from decimal import Decimal

from milepost.core.pools import EVER, Row
from milepost.errors import EpochLost, MilepostError
from milepost.stores.api import Head
from milepost.stores.pools import PoolSpent, Reserve

Step = tuple[str, str]


class Ledger:
    """What is under ceilings, spent, held and answered: the meaning of each operation, one after the other."""

    def __init__(self) -> None:
        self.ceilings: dict[tuple[str, str, str], Decimal] = {}
        self.spent: dict[Row, Decimal] = {}
        self.held: dict[Step, dict[Row, Decimal]] = {}
        self.answered: dict[str, tuple[str, str, str | None]] = {}
        self.epochs: dict[str, int] = {}
        self.owners: dict[str, str | None] = {}
        self.killed: set[str] = set()
        self.open: set[Step] = set()

    def holding(self, row: Row) -> Decimal:
        return sum((rows.get(row, Decimal(0)) for rows in self.held.values()), Decimal(0))

    def rows(self, pools: Iterable[str], units: Iterable[str], day: int) -> list[tuple[Row, Decimal]]:
        asked = {(pool, unit) for pool in pools for unit in units}
        return [
            ((pool, EVER if per == "ever" else day, unit), most)
            for (pool, per, unit), most in self.ceilings.items()
            if (pool, unit) in asked
        ]

    def book(self, row: Row, amount: Decimal) -> None:
        self.spent[row] = self.spent.get(row, Decimal(0)) + amount

    def append(self, head: Head, epoch: int) -> None:
        if self.epochs.get(head.run_id) != epoch:
            raise EpochLost(head.run_id, epoch)

    def reserve(self, run: str, asked: Reserve) -> None:
        if not self.ceilings:
            return
        if asked.again:
            for row, amount in self.held.pop((run, asked.step), {}).items():
                self.book(row, amount)
        rows = {}
        for row, most in self.rows(asked.pools, asked.cost, asked.day):
            amount = asked.cost[row[2]]
            if self.spent.get(row, Decimal(0)) + self.holding(row) + amount > most:
                raise MilepostError  # short of money
            rows[row] = amount
        if rows:
            self.held[run, asked.step] = rows

    def settle(self, run: str, said: PoolSpent) -> None:
        if not self.ceilings:
            return
        self.held.pop((run, said.step), None)
        for row, _ in self.rows(said.pools, said.spent, said.day):
            self.book(row, said.spent[row[2]])

    def lift(self, pool: str, per: str, unit: str) -> None:
        self.ceilings.pop((pool, per, unit), None)
        for rows in self.held.values():
            for row in [row for row in rows if (row[0], row[2]) == (pool, unit) and (row[1] != EVER) == (per == "day")]:
                del rows[row]

    def kill(self, run: str) -> None:
        if run in self.killed:
            return
        self.killed.add(run)
        self.epochs[run] += 1
        self.owners[run] = None
        for step in [step for step in self.held if step[0] == run and step not in self.open]:
            del self.held[step]
        for id_, (of, verdict, by) in self.answered.items():
            if of == run and verdict in {"asked", "approved"}:
                self.answered[id_] = (of, "void", by)

    def prune(self, run: str) -> None:
        if run not in self.killed or any(step[0] == run for step in self.open):
            raise MilepostError
        self.answered = {id_: one for id_, one in self.answered.items() if one[0] != run}
        self.held = {step: rows for step, rows in self.held.items() if step[0] != run}
        for known in (self.epochs, self.owners):
            known.pop(run, None)
