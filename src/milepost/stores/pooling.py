"""The shared budgets of a batch: ceilings, reservations and what was spent, inside its transaction.

Ceilings are loaded only where an append costs; where none is declared nothing more is read or written. What is held is
the sum of its rows: no counter of reservations can leak. Amounts are added here, as decimals. What was read is read
again where anybody else has written meanwhile (see facts.py).

Every append is decided when its turn comes, on what stands in memory; the rows follow at the end of all of them, one
statement a table, and what was spent is written once a batch. Whatever is read in between is read behind them. A step
whose reservation this connection has written itself needs no question about what is let go.

Where notes may be made (see noting.py), what is decided is noted by append, as long as nothing has to be read; the rows
follow when the tables catch up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from milepost.core.codec import encode
from milepost.core.pools import EVER, NOTHING, Key, Row, bucket, keys, short
from milepost.core.store_entries import CeilingSet
from milepost.stores.facts import Counted, Pending
from milepost.stores.noting import Note
from milepost.stores.pools import PoolShort

if TYPE_CHECKING:
    from milepost.stores.api import Append
    from milepost.stores.facts import Facts
    from milepost.stores.pools import SetCeiling
    from milepost.stores.statements import Statements


class Pools:
    """What a batch knows of the shared budgets; `forget` it where a part of the batch was rolled back."""

    __slots__ = ("_catch_up", "_facts", "_journal", "_note", "_sql")

    def __init__(
        self, sql: Statements, journal: Callable[[bytes, int], None], facts: Facts, catch_up: Callable[[], None]
    ) -> None:
        self._sql = sql
        self._journal = journal
        self._facts = facts
        self._catch_up = catch_up
        self._note: Note | None = None  # of the append whose turn it is

    @property
    def _pending(self) -> Pending:
        found = self._facts.pending
        assert found is not None, "the tables caught up before anything is decided on what they say"
        return found

    def forget(self) -> None:
        """Read anew what is asked for from here on; no append has its turn any more."""
        self._note = None
        self._facts.forget_pools()

    def together(self, appends: Sequence[Append], notes: dict[int, Note] | None = None) -> None:
        """Reserve and settle for appends, one after the other. Raises PoolShort where one of them is refused.

        Where `notes` are given they tell, by the place of an append, what it changes, and nothing is written. They are
        empty, and everything is written, where something had to be read.
        """
        for place, append in enumerate(appends):
            reserves, settles = append.reserve is not None, append.spent or append.overspent
            if not (reserves or settles):
                continue
            self._note = note = None if notes is None else Note([], [], [])
            if reserves:
                self.reserve(append)
            if settles:
                self._settle(append)
            if notes is not None and note is not None:
                if self._note is None:  # something was read, so it all stands in the tables
                    notes.clear()
                    notes = None
                elif note.held or note.gone or note.spent:
                    notes[place] = note
        self._note = None
        if notes is None:
            self.write()

    def _read(self) -> None:
        """Make the tables say what was decided so far: something is going to be read of them."""
        if self._note is not None:
            self._note = None
            self._catch_up()
        self.write()

    def reserve(self, append: Append) -> None:
        """Hold what an append may cost. Raises PoolShort. Its row is written when the append is settled.

        What its step held already is booked: a read that costs is charged for each try.
        """
        asked, facts = append.reserve, self._facts
        if asked is None or not (facts.ceilings or self._limits()):
            return
        step, cost = (append.head.run, asked.step), asked.cost
        if asked.again:
            for counted, amount in self._let_go(step):
                self._book(counted, amount)
        rows: list[tuple[Counted, Decimal]] = []
        for counted in self._under(asked.pools, cost, asked.day):
            amount = cost[counted.unit]
            held = self._held_in(counted) if counted.held is None else counted.held
            spent = self.spent_in(counted) if counted.spent is None else counted.spent
            wanted = held + amount
            if spent + wanted > counted.limit:
                missing = short(counted.key, counted.limit, spent, held, amount)
                if missing is not None:  # nothing is, where the last of 28 digits alone says so
                    raise PoolShort(missing)
            counted.held = wanted
            rows.append((counted, amount))
        facts.reserved[step] = rows
        if rows:
            self._pending.puts[step] = rows
            if self._note is not None:
                self._note.held.append((asked.step, [(*counted.row, amount) for counted, amount in rows]))

    def settle(self, append: Append) -> None:
        """Let go what steps of an append had reserved, and book what they spent."""
        self._settle(append)
        self.write()

    def _settle(self, append: Append) -> None:
        for unit, amount in append.overspent.items():
            self._sql.do("put_overspent", append.head.run, unit, f"{amount:f}")
        facts = self._facts
        if not append.spent or not (facts.ceilings or self._limits()):
            return
        run = append.head.run
        for settled in append.spent:
            step = (run, settled.step)
            if facts.holding or step in facts.reserved:
                self._let_go(step)
            else:  # what is held was not asked for yet, so nobody needs to know how much of it goes
                self._drop(step)
            spent = settled.spent
            for counted in self._under(settled.pools, spent, settled.day):
                amount = spent[counted.unit]
                if amount:
                    self._book(counted, amount)

    def write(self) -> None:
        """Write what was decided and does not stand in the tables yet."""
        pending = self._pending
        if pending.drops:
            self._sql.many("drop_reserved", list(pending.drops))
            pending.drops = {}
        if pending.puts:
            rows = [(*counted.row, *step, f"{cost:f}") for step, some in pending.puts.items() for counted, cost in some]
            self._sql.many("put_reserved", rows)
            pending.puts = {}
        if pending.booked:
            self._sql.many("put_spent", [(*counted.row, f"{counted.spent:f}") for counted in pending.booked])
            pending.booked = {}

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

    def _under(self, pools: tuple[str, ...], amounts: Mapping[str, Decimal], day: int) -> list[Counted]:
        """Return what these units fall under in these pools on a day: the same for very many calls."""
        asked = (pools, day, *amounts)
        found = self._facts.under.get(asked)
        if found is None:
            fallen = keys(self._limits(), pools, amounts)
            found = [self.counted((pool, bucket(per, day), unit)) for pool, per, unit in fallen]
            self._facts.under[asked] = found
        return found

    def counted(self, row: Row) -> Counted:
        """Return what is counted in a row."""
        found = self._facts.counted.get(row)
        if found is None:
            pool, day, unit = row
            key = (pool, "ever" if day == EVER else "day", unit)
            found = self._facts.counted[row] = Counted(key, row, self._limits().get(key, NOTHING))
        return found

    def _held_in(self, counted: Counted) -> Decimal:
        self._read()
        held = sum((Decimal(amount) for (amount,) in self._sql.run("reserved_of", *counted.row)), NOTHING)
        counted.held, self._facts.holding = held, True
        return held

    def spent_in(self, counted: Counted) -> Decimal:
        """Return what its row says of what was spent."""
        if self._note is not None:
            self._read()
        rows = self._sql.run("spent_of", *counted.row)
        counted.spent = spent = Decimal(rows[0][0]) if rows else NOTHING
        return spent

    def _let_go(self, step: tuple[int, str]) -> Sequence[tuple[Counted, Decimal]]:
        """Let go what a step of a run holds; return it."""
        gone = self._facts.reserved.pop(step, None)
        if gone is None:
            self._read()
            rows = self._sql.run("take_reserved", *step)
            gone = [(self.counted((pool, day, unit)), Decimal(amount)) for pool, day, unit, amount in rows]
        elif gone:
            self._drop(step)
        for counted, amount in gone:
            if counted.held is not None:
                counted.held -= amount
        return gone

    def _drop(self, step: tuple[int, str]) -> None:
        pending = self._pending
        if pending.puts.pop(step, None) is None:
            pending.drops[step] = None
        note = self._note
        if note is not None:
            note.gone.append(step[1])
            if note.held and note.held[0][0] == step[1]:  # what goes is read before what is held: this comes and goes
                note.held.clear()

    def _book(self, counted: Counted, amount: Decimal) -> None:
        spent = self.spent_in(counted) if counted.spent is None else counted.spent
        counted.spent = spent + amount
        self._pending.booked[counted] = None
        if self._note is not None:
            self._note.spent.append((*counted.row, amount))
