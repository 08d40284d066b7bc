"""The shared budgets of a batch: ceilings, reservations and what was spent, inside its transaction.

Ceilings are loaded only where an append costs; where none is declared nothing more is read or written. What is held is
the sum of its rows: no counter of reservations can leak. Amounts are added here, as decimals. What was read is read
again where anybody else has written meanwhile (see facts.py).

Every append is decided when its turn comes, on what stands in memory; the rows follow at the end of all of them, one
statement a table, and what was spent is written once a batch. Whatever is read in between is read behind them. A step
whose reservation this connection has written itself needs no question about what is let go.

Where notes may be made (see noting.py), what is decided is noted by append instead, as long as nothing has to be read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from milepost.core.codec import encode
from milepost.core.pools import NOTHING, Key, Row, bucket, keys, short
from milepost.core.store_entries import CeilingSet
from milepost.stores.noting import Note
from milepost.stores.pools import PoolShort

if TYPE_CHECKING:
    from milepost.stores.api import Append
    from milepost.stores.facts import Facts
    from milepost.stores.pools import SetCeiling
    from milepost.stores.statements import Statements


class Pools:
    """What a batch knows of the shared budgets; `forget` it where a part of the batch was rolled back."""

    __slots__ = ("_booked", "_catch_up", "_drops", "_facts", "_journal", "_notes", "_place", "_puts", "_sql")

    def __init__(
        self, sql: Statements, journal: Callable[[bytes, int], None], facts: Facts, catch_up: Callable[[], None]
    ) -> None:
        self._sql = sql
        self._journal = journal
        self._facts = facts
        self._catch_up = catch_up
        self._notes: dict[int, Note] | None = None
        self._place = 0
        self._begin()

    def _begin(self) -> None:
        self._drops: dict[tuple[int, str], None] = {}
        self._puts: dict[tuple[int, str], list[tuple[Row, Decimal]]] = {}
        self._booked: dict[Row, None] = {}

    def forget(self) -> None:
        """Read anew what is asked for from here on."""
        self._facts.forget_pools()
        self._begin()

    def together(self, appends: Sequence[Append], notes: dict[int, Note] | None = None) -> None:
        """Reserve and settle for appends, one after the other. Raises PoolShort where one of them is refused.

        Where `notes` are given they tell, by the place of an append, what it changes, and nothing is written. They are
        empty, and everything is written, where something had to be read.
        """
        self._notes = notes
        for place, append in enumerate(appends):
            self._place = place
            if append.reserve is not None:
                self.reserve(append)
            if append.spent or append.overspent:
                self._settle(append)
        if self._notes is None:
            self._write()
        else:
            self._notes = None
            if self._drops or self._puts or self._booked:
                self._begin()

    def _note(self) -> Note:
        """Return the note of the append whose turn it is."""
        assert self._notes is not None, "only a batch that makes notes asks for one"
        return self._notes.get(self._place) or self._notes.setdefault(self._place, Note())

    def _read(self) -> None:
        """Make the tables say what was decided so far: something is going to be read of them."""
        if self._notes is not None:
            self._notes.clear()
            self._notes = None
            self._catch_up()
        self._write()

    def reserve(self, append: Append) -> None:
        """Hold what an append may cost. Raises PoolShort. Its row is written when the append is settled.

        What its step held already is booked: a read that costs is charged for each try.
        """
        asked = append.reserve
        if asked is None:
            return
        limits = self._limits()
        if not limits:
            return
        facts, step = self._facts, (append.head.run, asked.step)
        if asked.again:
            for row, amount in self._let_go(step):
                self._book(row, amount)
        rows: list[tuple[Row, Decimal]] = []
        for key, row in self._rows(asked.pools, asked.cost, asked.day):
            cost, limit = asked.cost[row[2]], limits[key]
            held, spent = facts.held.get(row), facts.spent.get(row)
            if held is None:
                held = self._held_in(row)
            if spent is None:
                spent = self._spent_in(row)
            missing = short(key, limit, spent, held, cost)
            if missing is not None:
                raise PoolShort(missing)
            rows.append((row, cost))
            facts.held[row] = held + cost
        facts.reserved[step] = rows
        if not rows:
            return
        if self._notes is not None:
            note = self._note()
            note.held = [*note.held, (asked.step, [(*row, f"{cost:f}") for row, cost in rows])]
        self._puts[step] = rows

    def settle(self, append: Append) -> None:
        """Let go what steps of an append had reserved, and book what they spent."""
        self._settle(append)
        self._write()

    def _settle(self, append: Append) -> None:
        for unit, amount in append.overspent.items():
            self._sql.do("put_overspent", append.head.run, unit, f"{amount:f}")
        if not append.spent or not self._limits():
            return
        run = append.head.run
        for settled in append.spent:
            step = (run, settled.step)
            if self._facts.held or step in self._facts.reserved:
                self._let_go(step)
            else:  # what is held was not asked for yet, so nobody needs to know how much of it goes
                self._drop(step)
            for _, row in self._rows(settled.pools, settled.spent, settled.day):
                amount = settled.spent[row[2]]
                if amount:
                    self._book(row, amount)

    def _write(self) -> None:
        """Write what was decided since the last time."""
        if self._drops:
            self._sql.many("drop_reserved", list(self._drops))
        if self._puts:
            rows = [(*row, *step, f"{cost:f}") for step, some in self._puts.items() for row, cost in some]
            self._sql.many("put_reserved", rows)
        if self._booked:
            spent = self._facts.spent
            self._sql.many("put_spent", [(*row, f"{spent[row]:f}") for row in self._booked])
        if self._drops or self._puts or self._booked:
            self._begin()

    def killed(self, run: int) -> None:
        """Let go what a killed run had reserved for effects that are neither started nor unknown."""
        self._sql.do("release_reserved", run)
        self.forget()

    def set(self, asked: SetCeiling) -> int:
        """Set or lift ceilings, and journal it; return how many runs that wait for money look again."""
        for unit, ceiling in asked.ceilings.items():
            if ceiling is None:
                self._sql.do("lift_ceiling", asked.pool, asked.per, unit)
                self._sql.do("forget_reserved", asked.pool, unit, int(asked.per == "day"))
            else:
                self._sql.do("set_ceiling", asked.pool, asked.per, unit, f"{ceiling:f}")
        entry = CeilingSet(
            at=asked.at, pool=asked.pool, per=asked.per, ceilings=dict(asked.ceilings), why=asked.why, by=asked.by
        )
        self._journal(encode(entry), asked.at)
        self.forget()
        return self._sql.changed("wake_for_money", asked.at)

    def _limits(self) -> dict[Key, Decimal]:
        found = self._facts.ceilings
        if found is None:
            found = {(pool, per, unit): Decimal(most) for pool, per, unit, most in self._sql.run("ceilings")}
            self._facts.ceilings = found
        return found

    def _rows(self, pools: tuple[str, ...], amounts: Mapping[str, Decimal], day: int) -> list[tuple[Key, Row]]:
        """Return the ceilings that these units fall under in these pools on a day: the same for very many calls."""
        asked = (pools, day, *amounts)
        found = self._facts.keys.get(asked)
        if found is None:
            fallen = keys(self._limits(), pools, amounts)
            found = [(key, (key[0], bucket(key[1], day), key[2])) for key in fallen]
            self._facts.keys[asked] = found
        return found

    def _held_in(self, row: Row) -> Decimal:
        found = self._facts.held.get(row)
        if found is None:
            self._read()
            found = self._facts.held[row] = sum(
                (Decimal(amount) for (amount,) in self._sql.run("reserved_of", *row)), NOTHING
            )
        return found

    def _spent_in(self, row: Row) -> Decimal:
        found = self._facts.spent.get(row)
        if found is None:
            if self._notes is not None:
                self._read()
            rows = self._sql.run("spent_of", *row)
            found = self._facts.spent[row] = Decimal(rows[0][0]) if rows else NOTHING
        return found

    def _let_go(self, step: tuple[int, str]) -> Sequence[tuple[Row, Decimal]]:
        """Delete what a step of a run holds; return it."""
        gone = self._facts.reserved.pop(step, None)
        if gone is None:
            self._read()
            rows = self._sql.run("take_reserved", *step)
            gone = [((pool, day, unit), Decimal(amount)) for pool, day, unit, amount in rows]
        elif gone:
            self._drop(step)
        held = self._facts.held
        for row, amount in gone:
            if row in held:
                held[row] -= amount
        return gone

    def _drop(self, step: tuple[int, str]) -> None:
        if step in self._puts:
            self._read()
        self._drops[step] = None
        if self._notes is not None:
            note = self._note()
            note.gone = [*note.gone, step[1]]

    def _book(self, row: Row, amount: Decimal) -> None:
        spent = self._facts.spent.get(row)
        self._facts.spent[row] = (self._spent_in(row) if spent is None else spent) + amount
        self._booked[row] = None
        if self._notes is not None:
            note = self._note()
            note.spent = [*note.spent, (*row, f"{amount:f}")]
