"""Whatever a store is asked, and whenever it is cut off, its books are those of a ledger that is kept beside it.

What is compared: what people read, what the store goes on from in memory, and what stands in the tables in the end.
"""

import asyncio
import random
import shutil
from collections.abc import Callable
from copy import deepcopy
from decimal import Decimal
from pathlib import Path
from typing import Any

import apsw
import pytest

from milepost.core.pools import EVER, Row, day_of
from milepost.errors import EpochLost, MilepostError, Rejected, StoreBusy, StoreFailed, UnknownRun
from milepost.stores.api import Append, ApprovalRow, Deliver, EffectRow, Emit, Head, Operation, Post, Switch, Throw
from milepost.stores.encryption import Cipher, load, write
from milepost.stores.keeping import Prune
from milepost.stores.pools import PoolSpent, Reserve, SetCeiling
from milepost.stores.sqlite import kept, writing
from milepost.stores.sqlite.store import SqliteStore
from milepost.testing.store_conformance.subject import Subject, append, claim, kill
from tests.stores.conftest import SqlitePlace
from tests.stores.plain_ledger import Ledger, Step

DAY = day_of(1_795_996_800_000)
DAYS = (DAY, DAY + 1)
POOLS = ("total", "tenant:acme")
UNITS = ("usd", "calls")
SEEDS = (1, 12, 30, 34, 60, 104, 202, 378)  # of thousands that were tried: what is rare happens in these
Does = Callable[[Ledger], None]


class Boom(RuntimeError):
    """A tool breaks in a way that nobody foresaw."""


class Play:
    """One scene: stores that are open, the ledger, and what comes next by chance."""

    def __init__(self, stores: SqlitePlace, chance: random.Random) -> None:
        self.stores, self.chance = stores, chance
        self.ledger = Ledger()
        self.key_file = stores.path.with_name("payload.keys")
        self.cipher: Cipher | None = None
        self.open: list[SqliteStore] = []
        self.heads: list[Head] = []
        self.number = 0
        self.wild = chance.choice([0, 0.01, 0.1])  # how much is refused, or decided by itself
        self.wealth = chance.choice([2, 50])

    def opened(self) -> SqliteStore:
        store = SqliteStore(str(self.stores.path), create=True, cipher=self.cipher)
        store._writer.set_busy_timeout(5)
        return store

    def next(self) -> int:
        self.number += 1
        return self.number

    def amounts(self, most: int) -> dict[str, Decimal]:
        units = self.chance.sample(UNITS, self.chance.randint(1, 2))
        return {unit: Decimal(self.chance.randint(0, most)) / 10 for unit in units}

    def pools(self) -> tuple[str, ...]:
        return POOLS if self.chance.random() < 0.6 else POOLS[:1]

    def day(self) -> int:
        return DAYS[self.chance.random() < 0.1]

    # ------------------------------------------------------------ what may be asked

    def a_head(self, stale: float) -> Head:
        good = [head for head in self.heads if self.ledger.epochs.get(head.run_id) == head.epoch]
        good = [head for head in good if head.run_id not in self.ledger.killed]
        return self.chance.choice(self.heads if not good or self.chance.random() < stale else good)

    def step_of(self, head: Head) -> str | None:
        ours = [step for run, step in self.ledger.held if run == head.run_id]
        return self.chance.choice(ours) if ours and self.chance.random() < 0.8 else None

    def an_append(self) -> tuple[Operation, Does]:
        chance, head = self.chance, self.a_head(stale=self.wild / 3)
        given = append(head, *[b"entry"] * chance.choice([1, 1, 1, 2, 3]))
        epoch = head.epoch
        does: list[Does] = [lambda books: books.append(head, epoch)]
        kind = chance.choice([self.start, self.outcome, _nothing_more])
        more = ((1, kind), (0.3, self.question), (0.3, self.answers), (self.wild, self.tool), (self.wild, self.odd))
        for likely, add in more:
            if chance.random() < likely:
                add(given, does)

        def all_of_it(books: Ledger) -> None:
            for do in does:
                do(books)

        return given, all_of_it

    def start(self, given: Append, does: list[Does]) -> None:
        chance, run = self.chance, given.head.run_id
        again = chance.random() < 0.35
        step = (self.step_of(given.head) if again else None) or f":{self.next()}"
        most = 60 if chance.random() < 0.9 else 60_000  # which no ceiling suffices for
        asked = Reserve(step, self.amounts(most), self.pools(), self.day(), again)
        given.reserve = asked
        given.effects = [EffectRow(step, "started", "pay#1", "pay", "once", 1, 10)]
        does += [lambda books: books.reserve(run, asked), lambda books: books.open.add((run, step))]
        if chance.random() < 0.1:  # a tool inside the transaction settles at once
            said = PoolSpent(step, asked.cost, asked.pools, asked.day)
            given.spent = [said]
            does.append(lambda books: books.settle(run, said))

    def outcome(self, given: Append, does: list[Does]) -> None:
        run = given.head.run_id
        said: list[PoolSpent] = []
        for _ in range(self.chance.choice([1, 1, 2])):
            step = self.step_of(given.head) or f":{self.chance.randint(1, self.next())}"
            if step not in {one.step for one in said}:
                spent = self.amounts(50) if self.chance.random() < 0.8 else {}
                said.append(PoolSpent(step, spent, self.pools(), self.day()))
        given.spent = said
        given.effects = [EffectRow(one.step, None) for one in said]
        for one in said:
            does.append(lambda books, one=one: books.settle(run, one))  # type: ignore[misc]
            does.append(lambda books, one=one: books.open.discard((run, one.step)))  # type: ignore[misc]

    def question(self, given: Append, does: list[Does]) -> None:
        run, id_ = given.head.run_id, f"ap-{self.next():05}"
        given.approvals = [ApprovalRow(id_, run, ":0", "pay#1", "pay", b"{}", self.number, "asked")]
        does.append(lambda books: books.answered.__setitem__(id_, (run, "asked", None)))

    def answers(self, given: Append, does: list[Does]) -> None:
        run = given.head.run_id
        said: list[tuple[str, str, str]] = []
        ours = [id_ for id_, (of, _, _) in self.ledger.answered.items() if of == run]
        for id_ in self.chance.sample(ours, min(len(ours), self.chance.choice([1, 1, 2]))):
            verdicts = self.chance.choices(["approved", "denied", "used"], k=self.chance.choice([1, 1, 2]))
            said.extend((id_, verdict, f"by {self.next()}") for verdict in verdicts)
        given.answers = said
        for id_, verdict, by in said:
            does.append(lambda books, id_=id_, v=verdict, by=by: books.answered.__setitem__(id_, (run, v, by)))  # type: ignore[misc]

    def odd(self, given: Append, does: list[Does]) -> None:
        match self.chance.choice(["switch", "nobody", "overspent"]):
            case "switch":
                given.holds = [Switch("tool:other", "hold", "found twice", "ann", 20)]
            case "nobody":
                given.posts = [Post("nobody", f"m{self.next()}", b"hello", 30)]
                does.append(_refuses)
            case _:
                given.overspent = {"usd": Decimal(self.next())}

    def tool(self, given: Append, does: list[Does]) -> None:
        kind = self.chance.choice(["done", "raises", "rolls back", "breaks"])

        def work(tx: Any) -> list[bytes]:
            tx.execute("CREATE TABLE IF NOT EXISTS places (name TEXT PRIMARY KEY)")
            if kind == "raises":
                raise Rejected("not today")
            if kind == "breaks":
                raise Boom
            if kind == "rolls back":
                for _ in range(2):
                    tx.execute("INSERT OR ROLLBACK INTO places VALUES ('here')")
            return [b"worked"]

        given.work = work
        if kind == "breaks":
            does.append(_breaks)
        elif kind != "done":
            does.append(_refuses)

    def beside(self) -> tuple[Operation, Does]:
        chance, number = self.chance, self.next()
        kind = chance.choice(["emit", "hello", "hello", "claim"])
        if chance.random() < self.wild * 2:
            kind = chance.choice(["nobody", "lost"])
        if kind == "emit":
            return Emit([("mail", 30, b"{}")]), _nothing
        if kind in {"hello", "nobody"}:
            run = "mail" if kind == "hello" else "nobody"
            return Deliver(Post(run, f"m{number}", b"hello", 30)), _nothing if kind == "hello" else _refuses
        head = self.a_head(stale=0.0)
        run, owner, was = head.run_id, f"w{number}", "nobody"
        if kind == "claim" and run not in self.ledger.killed:
            was = self.ledger.owners.get(run) or "nobody"

        def take(books: Ledger) -> None:
            if run not in books.owners or books.owners[run] != was:
                raise EpochLost(run, 0)
            books.owners[run], books.epochs[run] = owner, books.epochs[run] + 1

        return claim(run, owner, was), take

    def heavy(self) -> tuple[Operation, Does]:
        chance = self.chance
        run = self.a_head(stale=0.5).run_id
        kind = chance.choice(["ceiling", "ceiling", "kill", "kill", "prune", "throw"])
        if kind == "ceiling":
            return self.ceiling()
        if kind == "kill" and run in self.ledger.epochs:
            return kill(run), lambda books: books.kill(run) if run in books.epochs else _refuses(books)
        if kind == "prune" and run in self.ledger.epochs:
            return Prune([run], 40, "ann", "old", lambda _: b"pruned"), lambda books: books.prune(run)
        return Throw(30), _nothing

    def ceiling(self) -> tuple[Operation, Does]:
        pool, per = self.chance.choice(POOLS), self.chance.choice(["ever", "day"])
        most: dict[str, Decimal | None] = {}
        for unit, amount in self.amounts(250).items():
            spent = self.ledger.spent.get((pool, EVER if per == "ever" else DAY, unit), Decimal(0))
            most[unit] = None if self.chance.random() < 0.3 else spent + amount * self.wealth

        def does(books: Ledger) -> None:
            for unit, one in most.items():
                if one is None:
                    books.lift(pool, per, unit)
                else:
                    books.ceilings[pool, per, unit] = one

        return SetCeiling(pool, per, most, "a try", "ann", 20), does

    # ------------------------------------------------------------ what is done

    async def hold(self) -> None:
        """Have a few runs that somebody holds."""
        subject = Subject(self.stores, self.open[0])
        live = [run for run in self.ledger.epochs if run not in self.ledger.killed]
        while len(live) < 3:
            run = f"a{self.next()}"
            head = await subject.held(run, "w0")
            self.heads.append(head)
            self.ledger.epochs[run], self.ledger.owners[run] = head.epoch, "w0"
            live.append(run)
        del self.heads[:-12]

    def batch(self) -> list[tuple[Operation, Does]]:
        chance = self.chance
        operations = [self.an_append() for _ in range(chance.choice([1, 1, 2, 3, 4]))]
        for _ in range(chance.choice([0, 0, 1, 1, 2])):
            operations.insert(chance.randint(0, len(operations)), self.beside())
        if chance.random() < 0.04:
            operations.insert(chance.randint(0, len(operations)), self.heavy())
        return operations

    async def turn(self, store: SqliteStore) -> None:
        operations = self.batch()
        books, refused = deepcopy(self.ledger), []
        whole = True
        for _, does in operations:
            before = deepcopy(books)
            try:
                does(books)
            except MilepostError:
                books = before
                refused.append(True)
            except Boom:
                whole = False
                break
            else:
                refused.append(False)
        given = [operation for operation, _ in operations]
        if not whole:
            with pytest.raises(Boom):
                await store.commit(given)
            return
        if self.chance.random() < 0.06:
            await self.kept_out(store, given)
        if self.chance.random() < 0.02:
            store = await self.failed(store, given)
        answers = await store.commit(given)
        assert [isinstance(answer, MilepostError) for answer in answers] == refused, answers
        self.ledger = books
        self.heads += [answer for answer in answers if isinstance(answer, Head)]

    async def kept_out(self, store: SqliteStore, given: list[Operation]) -> None:
        """Try it while somebody else writes, who changes nothing."""
        other = apsw.Connection(str(self.stores.path))
        other.execute("BEGIN IMMEDIATE").fetchall()
        with pytest.raises(StoreBusy):
            await store.commit(given)
        other.execute("ROLLBACK").fetchall()
        other.close()

    async def failed(self, store: SqliteStore, given: list[Operation]) -> SqliteStore:
        """Let the commit itself fail: of nobody knows what such a store goes on, and another is opened in its place."""
        store._writer.set_commit_hook(lambda: True)
        with pytest.raises(StoreFailed):
            await store.commit(given)
        store.close()
        place = self.open.index(store)
        self.open[place] = self.opened()
        return self.open[place]

    def leave(self, place: int) -> None:
        """Close one of the stores in good order, and open it anew; perhaps encrypted from then on."""
        self.open[place].close()
        if self.cipher is None and self.chance.random() < 0.3:
            write(self.key_file, "k1", rotate=False)
            self.cipher = load(self.key_file)
            self.open = [store for store in self.open if store is not self.open[place]]
            for store in self.open:
                store.close()
            self.open = [self.opened() for _ in range(2)]
            return
        self.open[place] = self.opened()

    # ------------------------------------------------------------ what has to be so

    async def compare(self, store: SqliteStore) -> None:
        books = self.ledger
        for day in DAYS:
            found = {(row.pool, row.per, row.unit): row for row in await store.pools(day)}
            assert {key: row.ceiling for key, row in found.items()} == books.ceilings
            for (pool, per, unit), shown in found.items():
                row = (pool, EVER if per == "ever" else day, unit)
                assert (shown.spent, shown.reserved) == (books.spent.get(row, Decimal(0)), books.holding(row)), row
        rows = await store.pool_rows()
        assert _filled(rows.spent) == _filled(books.spent)
        assert {step: parts for step, parts in rows.held.items() if parts} == _held(books)
        said = {row.id: (row.run_id, row.verdict, row.by) for row in await store.approvals()}
        assert said == books.answered

    def compare_memory(self, store: SqliteStore) -> None:
        """What the store would go on from is what is so, and what it would write makes the tables say so."""
        facts = store._kept.take()
        if facts.next_row is None:
            return
        store._kept.keep(facts, whole=True)
        books = self.ledger
        names = dict(_rows(self.stores.path, "SELECT run, id FROM mp_runs"))
        for row, counted in facts.counted.items():
            assert counted.spent is None or counted.spent == books.spent.get(row, Decimal(0)), row
            assert counted.held is None or counted.held == books.holding(row), row
        for (run, step), some in facts.reserved.items():
            assert {counted.row: amount for counted, amount in some} == books.held.get((names[run], step), {})
        assert facts.pending is not None
        assert (facts.behind is None) <= (len(facts.pending) == 0)
        assert [(facts.behind,)] == _rows(self.stores.path, "SELECT (SELECT row FROM mp_behind)")
        assert facts.ceilings is None or facts.ceilings == books.ceilings

    def copied(self, place: Path) -> None:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        for name in ("", "-wal"):
            shutil.copy(f"{self.stores.path}{name}", place / f"store.db{name}")

    async def cut_off(self, place: Path) -> None:
        """Whoever opens what is in the file now, after a crash, finds the books, and so he does in the tables alone."""
        self.copied(place)
        store = SqliteStore(str(place / "store.db"), cipher=self.cipher)
        await self.compare(store)
        await store.commit([Throw(30)])
        self.tables(place / "store.db")
        await self.compare(store)
        store.close()

    def tables(self, path: Path) -> None:
        books = self.ledger
        assert _rows(path, "SELECT count(*) FROM mp_behind") == [(0,)]
        spent = _rows(path, "SELECT pool, day, unit, amount FROM mp_spent")
        assert _filled({(p, d, u): Decimal(a) for p, d, u, a in spent}) == _filled(books.spent)
        held: dict[Step, dict[Row, Decimal]] = {}
        sql = "SELECT id, step, pool, day, unit, amount FROM mp_reserved JOIN mp_runs USING (run)"
        for run, step, pool, day, unit, amount in _rows(path, sql):
            held.setdefault((run, step), {})[pool, day, unit] = Decimal(amount)
        assert held == _held(books)
        answered = _rows(path, "SELECT a.id, r.id, a.verdict, a.by FROM mp_approvals a JOIN mp_runs r USING (run)")
        assert {id_: (run, verdict, by) for id_, run, verdict, by in answered} == books.answered


def _nothing_more(_: Append, __: list[Does]) -> None:
    return


def _nothing(_: Ledger) -> None:
    return


def _refuses(_: Ledger) -> None:
    raise UnknownRun("nobody")


def _breaks(_: Ledger) -> None:
    raise Boom


def _filled(spent: dict[Row, Decimal]) -> dict[Row, Decimal]:
    return {row: amount for row, amount in spent.items() if amount}


def _held(books: Ledger) -> dict[Step, dict[Row, Decimal]]:
    return {step: rows for step, rows in books.held.items() if rows}


def _rows(path: Path, sql: str) -> list[Any]:
    connection = apsw.Connection(str(path))
    found = connection.execute(sql).fetchall()
    connection.close()
    return found


async def play(stores: SqlitePlace, seed: int, turns: int = 50) -> None:
    chance = random.Random(seed)
    scene = Play(stores, chance)
    scene.open = [scene.opened(), scene.opened()]
    await Subject(stores, scene.open[0]).create("mail")
    for _ in range(3):
        operation, does = scene.ceiling()
        await scene.open[0].commit([operation])
        does(scene.ledger)
    stays = chance.choice([0.6, 1.0, 1.0])  # how much one process writes alone
    for _ in range(turns):
        await scene.hold()
        place = 0 if chance.random() < stays else 1
        await scene.turn(scene.open[place])
        scene.compare_memory(scene.open[place])
        await scene.compare(scene.open[chance.randint(0, 1)])
        if chance.random() < 0.1:
            await scene.cut_off(stores.path.with_name("cut-off"))
        if chance.random() < 0.03:
            scene.leave(chance.randint(0, 1))
    for store in scene.open:
        store.close()
    scene.tables(stores.path)


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_is_asked_of_a_store_its_books_are_those_of_a_plain_ledger(
    stores: SqlitePlace, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(writing, "BEHIND_MOST", chance.choice([3, 20, 1_024]))
    monkeypatch.setattr(kept, "ROWS_KEPT", chance.choice([4, 60, 10_000, 10_000]))
    asyncio.run(play(stores, seed))
