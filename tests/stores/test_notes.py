"""What is noted beside entries counts at once, for every process, and comes to stand in its tables by itself.

A note is made where a batch goes on from what the one before it knew: so the first start of a scene is written where it
belongs, and what follows is noted.
"""

import asyncio
from collections.abc import Awaitable, Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import apsw
import pytest

from milepost.core.pools import EVER, day_of
from milepost.errors import EpochLost, StoreFailed
from milepost.stores.api import Append, ApprovalRow, Claim, Deliver, Emit, Head, Post, Status
from milepost.stores.keeping import Prune, Tombstone
from milepost.stores.noting import Note, encode, fold
from milepost.stores.pools import PoolShort, PoolSpent, Reserve, SetCeiling
from milepost.stores.sqlite import connection as opening
from milepost.stores.sqlite import kept, writing
from milepost.stores.sqlite.store import SqliteStore
from milepost.testing.store_conformance.subject import Subject, append, refused
from tests.stores.conftest import SqlitePlace

TODAY = day_of(1_795_996_800_000)
ROW = ("total", EVER, "usd")
TABLES = ("mp_reserved", "mp_spent", "mp_approvals")
COUNTING = (
    "INSERT INTO mp_reserved (run, step, pool, day, unit, amount) VALUES (1, ':7', 'total', -1, 'usd', '1')",
    """INSERT INTO mp_spent (pool, day, unit, amount) VALUES ('total', -1, 'usd', '1')
    ON CONFLICT (pool, day, unit) DO UPDATE SET amount = excluded.amount""",
)
Part = Callable[[Subject, Head], Awaitable[None]]
Scene = Callable[[Part], None]


def ceiling(usd: int) -> SetCeiling:
    return SetCeiling("total", "ever", {"usd": Decimal(usd)}, "a try", "ann", 20)


def starting(head: Head, usd: str, step: str, *, again: bool = False) -> Append:
    return append(head, b"started", reserve=Reserve(step, {"usd": Decimal(usd)}, ("total",), TODAY, again))


def settling(head: Head, usd: str, step: str) -> Append:
    return append(head, b"settled", spent=[PoolSpent(step, {"usd": Decimal(usd)}, ("total",), TODAY)])


def asking(head: Head, *ids: str) -> Append:
    rows = [ApprovalRow(id_, head.run_id, ":0", "pay#1", "pay", b"{}", at, "asked") for at, id_ in enumerate(ids)]
    return append(head, b"asked", approvals=rows)


def answering(head: Head, id_: str, verdict: str, by: str = "ann") -> Append:
    return append(head, b"answered", answers=[(id_, verdict, by)])


def hello(number: int) -> Deliver:
    return Deliver(Post("a1", f"m{number}", b"hello", 30))


def lost_claim() -> Claim:
    """A claim that is refused: the run is held by somebody else than it says."""
    return Claim("a1", "worker-9", "nobody", 30, lambda _: b"claimed")


@pytest.fixture
def scene(stores: SqlitePlace) -> Scene:
    """Runs a scene with a ceiling of ten, and a run whose first start is written where it belongs."""

    async def play(part: Part) -> None:
        subject = Subject(stores, await stores.open())
        head = await subject.held("a1")
        await subject.done(ceiling(10))
        assert await subject.write(starting(head, "1", ":0")) == [None]
        assert await subject.write(asking(head, "ap-1", "ap-2")) == [None]
        try:
            await part(subject, head)
        finally:
            subject.close()

    return lambda part: asyncio.run(play(part))


def rows(path: Path, sql: str) -> list[tuple[object, ...]]:
    connection = apsw.Connection(str(path))
    found = connection.execute(sql).fetchall()
    connection.close()
    return found


async def stands(store: SqliteStore) -> tuple[Decimal, Decimal]:
    """What is spent and held of the ceiling, as a process reads it."""
    (row,) = await store.pools(TODAY)
    return row.spent, row.reserved


async def verdicts(store: SqliteStore) -> dict[str, tuple[str, str | None]]:
    return {row.id: (row.verdict, row.by) for row in await store.approvals()}


def test_a_call_under_a_ceiling_and_with_an_approval_writes_the_tables_of_one_without_and_no_others(
    scene: Scene,
) -> None:
    async def part(subject: Subject, head: Head) -> None:
        said: list[str] = []

        def note(_: object, sql: str, __: object) -> bool:
            said.append(sql)
            return True

        await subject.write(answering(head, "ap-2", "approved"))  # the first note is one statement more
        subject.store._writer.exec_trace = note  # type: ignore[attr-defined]

        start = starting(head, "2", ":1")
        start.answers = [("ap-1", "used", "ann")]
        assert await subject.write(start) == [None]
        assert await subject.write(settling(head, "2", ":1")) == [None]

        assert len([sql for sql in said if "mp_journal" in sql]) == 2
        assert not [sql for sql in said if any(table in sql for table in TABLES)]
        assert "mp_behind" not in "".join(said)

    scene(part)


def test_what_looks_at_none_of_the_tables_leaves_them_behind_and_nothing_is_read_again_for_it(scene: Scene) -> None:
    async def part(subject: Subject, head: Head) -> None:
        await subject.write(starting(head, "1", ":1"))
        said: list[str] = []

        def note(_: object, sql: str, __: object) -> bool:
            said.append(sql)
            return True

        subject.store._writer.exec_trace = note  # type: ignore[attr-defined]

        second = await subject.held("a2")
        await subject.done(hello(1))
        await subject.done(Emit([("a1", 30, b"{}")]))
        answers = await subject.write(hello(2), settling(head, "1", ":1"), Emit([("a1", 31, b"{}")]))
        assert answers == [True, None, None]
        assert await subject.write(starting(second, "2", ":0")) == [None]

        assert not [sql for sql in said if any(table in sql for table in (*TABLES, "mp_ceilings", "mp_behind"))]
        assert await stands(subject.store) == (Decimal(1), Decimal(3))  # type: ignore[arg-type]

    scene(part)


def test_what_a_batch_takes_back_is_neither_noted_nor_forgotten_of_what_was_noted_before(scene: Scene) -> None:
    async def part(subject: Subject, head: Head) -> None:
        await subject.write(starting(head, "2", ":1"))
        start = starting(head, "9", ":2")
        start.answers = [("ap-1", "used", "ann")]

        answers = await subject.write(
            hello(1), settling(head, "1.5", ":1"), start, hello(2), answering(head, "ap-2", "used")
        )

        assert [type(answer) for answer in answers] == [bool, type(None), PoolShort, bool, type(None)]
        assert await stands(subject.store) == (Decimal("1.5"), Decimal(1))  # type: ignore[arg-type]
        assert await verdicts(subject.store) == {"ap-1": ("asked", None), "ap-2": ("used", "ann")}  # type: ignore[arg-type]

    scene(part)


def test_a_start_that_is_refused_in_the_middle_of_a_batch_books_nothing_twice_of_what_was_noted_before(
    scene: Scene,
) -> None:
    async def part(subject: Subject, head: Head) -> None:
        await subject.write(starting(head, "2", ":1"))
        await subject.write(settling(head, "2", ":1"))

        answers = await subject.write(hello(1), append(head, b"another"), starting(head, "9", ":2"))

        assert [type(answer) for answer in answers] == [bool, type(None), PoolShort]
        assert await stands(subject.store) == (Decimal(2), Decimal(1))  # type: ignore[arg-type]

    scene(part)


def test_what_is_noted_is_seen_by_every_process_at_once(scene: Scene) -> None:
    async def part(subject: Subject, head: Head) -> None:
        other = await subject.other()
        await subject.write(starting(head, "2.50", ":1"), starting(head, "3", ":2"))
        await subject.write(settling(head, "2", ":2"), settling(head, "0.75", ":0"))
        await subject.write(answering(head, "ap-1", "approved"), answering(head, "ap-2", "denied", "bob"))
        await subject.write(answering(head, "ap-1", "used"))

        for store in (subject.store, other):
            assert isinstance(store, SqliteStore)
            assert await stands(store) == (Decimal("2.75"), Decimal("2.50"))
            assert (await store.pool_rows()).held == {("a1", ":1"): {ROW: Decimal("2.50")}}
            assert await verdicts(store) == {"ap-1": ("used", "ann"), "ap-2": ("denied", "bob")}
            assert [row.id for row in await store.approvals("ap-1", "used")] == ["ap-1"]
            assert await store.approvals("", "asked") == []
        assert rows(Path(other.place), "SELECT * FROM mp_spent") == []

    scene(part)


def test_a_start_of_another_process_counts_what_is_noted(scene: Scene) -> None:
    async def part(subject: Subject, head: Head) -> None:
        other, second = await subject.other(), await subject.held("a2", "worker-2")
        await subject.write(starting(head, "1", ":1"))
        await subject.write(starting(head, "5", ":2"))
        await subject.write(settling(head, "4", ":2"))

        (answer,) = await subject.write(starting(second, "5", ":0"), store=other)
        short = refused(answer, PoolShort).short
        assert (short.gap, short.held) == (Decimal(1), Decimal(2))

        assert await subject.write(starting(second, "4", ":0"), store=other) == [None]
        (answer,) = await subject.write(starting(head, "1", ":3"))
        assert refused(answer, PoolShort).short.held == Decimal(6)

    scene(part)


def test_the_tables_say_everything_once_the_process_has_left(stores: SqlitePlace, scene: Scene) -> None:
    async def part(subject: Subject, head: Head) -> None:
        await subject.write(starting(head, "2.50", ":1"), starting(head, "3", ":2"))
        await subject.write(settling(head, "3", ":2"), answering(head, "ap-1", "used"))
        assert rows(stores.path, "SELECT count(*) FROM mp_behind") == [(1,)]

    scene(part)

    assert rows(stores.path, "SELECT count(*) FROM mp_behind") == [(0,)]
    assert rows(stores.path, "SELECT step, amount FROM mp_reserved ORDER BY step") == [(":0", "1"), (":1", "2.50")]
    assert rows(stores.path, "SELECT * FROM mp_spent") == [(*ROW, "3")]
    assert rows(stores.path, "SELECT id, verdict FROM mp_approvals") == [("ap-1", "used"), ("ap-2", "asked")]


@pytest.mark.parametrize("why", ["a claim was refused", "too much to keep in memory"])
def test_a_process_that_forgot_what_it_knew_leaves_nothing_noted_either(
    stores: SqlitePlace, scene: Scene, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    async def part(subject: Subject, head: Head) -> None:
        if why == "too much to keep in memory":
            monkeypatch.setattr(kept, "ROWS_KEPT", 2)
        assert await subject.write(starting(head, "2", ":1"), answering(head, "ap-1", "used")) == [None, None]
        if why == "a claim was refused":
            refused((await subject.write(lost_claim()))[0], EpochLost)
        assert rows(stores.path, "SELECT count(*) FROM mp_behind") == [(1,)]

    scene(part)

    assert rows(stores.path, "SELECT count(*) FROM mp_behind") == [(0,)]
    assert rows(stores.path, "SELECT step FROM mp_reserved ORDER BY step") == [(":0",), (":1",)]


def test_what_somebody_notes_who_is_killed_is_written_by_whoever_comes_next(stores: SqlitePlace, scene: Scene) -> None:
    async def part(subject: Subject, head: Head) -> None:
        await subject.write(starting(head, "2", ":1"))
        killed: Any = subject.store
        killed._writer.close()
        killed._kept.behind = False  # so nothing is done on the way out

        other = await subject.other()
        await subject.done(Deliver(Post("a1", "m1", b"hello", 30)), store=other)

        assert rows(stores.path, "SELECT step, amount FROM mp_reserved ORDER BY step") == [(":0", "1"), (":1", "2")]

    scene(part)


def test_the_tables_are_never_behind_by_more_than_a_bound(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    assert writing.BEHIND_MOST == 1_024
    monkeypatch.setattr(writing, "BEHIND_MOST", 8)

    async def part(subject: Subject, head: Head) -> None:
        behind = []
        for number in range(1, 30):
            await subject.write(starting(head, "1", f":{number}"))
            await subject.write(append(head, b"another"), settling(head, "0.1", f":{number}"))
            ((last, first),) = rows(
                Path(subject.store.place), "SELECT max(j.row), b.row FROM mp_journal j, mp_behind b"
            )
            behind.append(0 if first is None else last - first)  # type: ignore[operator]
            assert await stands(subject.store) == (Decimal(number) / 10, Decimal(1))  # type: ignore[arg-type]

        assert 4 < max(behind) <= 8 + 2

    scene(part)


def test_a_batch_of_which_a_part_is_refused_leaves_no_note_of_that_part(scene: Scene) -> None:
    async def part(subject: Subject, head: Head) -> None:
        await subject.write(starting(head, "1", ":1"))
        start = starting(head, "9", ":2")
        start.answers = [("ap-1", "used", "ann")]

        answers = await subject.write(settling(head, "1", ":1"), start, answering(head, "ap-2", "denied"))

        assert [type(answer) for answer in answers] == [type(None), PoolShort, type(None)]
        assert await stands(subject.store) == (Decimal(1), Decimal(1))  # type: ignore[arg-type]
        assert await verdicts(subject.store) == {"ap-1": ("asked", None), "ap-2": ("denied", "ann")}  # type: ignore[arg-type]

    scene(part)


def test_what_a_try_held_is_booked_where_both_tries_are_only_noted(scene: Scene) -> None:
    async def part(subject: Subject, head: Head) -> None:
        for number in range(3):
            assert await subject.write(starting(head, "2", ":1", again=number > 0)) == [None]

        assert await stands(subject.store) == (Decimal(4), Decimal(3))  # type: ignore[arg-type]
        (answer,) = await subject.write(starting(head, "4", ":1", again=True))
        assert refused(answer, PoolShort).short.gap == Decimal(1)  # what the third one held is booked as well

    scene(part)


def test_an_amount_that_is_above_what_is_left_by_its_last_digit_alone_is_decided_as_everywhere(scene: Scene) -> None:
    async def part(subject: Subject, head: Head) -> None:
        seventh = Decimal(2) / 7
        await subject.done(ceiling(14))
        assert await subject.write(settling(head, str(seventh), ":0")) == [None]
        assert await subject.write(starting(head, str(seventh), ":1")) == [None]

        amount = Decimal("13.42857142857142857142857143")
        assert seventh + (seventh + amount) > 14
        assert seventh + seventh + amount == 14
        assert await subject.write(starting(head, str(amount), ":2")) == [None]

    scene(part)


def test_a_day_of_which_nothing_is_known_yet_is_read_and_not_guessed(scene: Scene) -> None:
    async def part(subject: Subject, head: Head) -> None:
        other = await subject.other()
        await subject.done(SetCeiling("total", "day", {"usd": Decimal(3)}, "a try", "ann", 20), store=other)
        for day, usd in ((TODAY, "1"), (TODAY + 1, "2"), (TODAY, "1"), (TODAY + 1, "1")):
            step = f":{day}{usd}{head.seq}"
            start = append(head, b"started", reserve=Reserve(step, {"usd": Decimal(usd)}, ("total",), day, again=False))
            assert await subject.write(start) == [None]

        tomorrow = append(head, b"started", reserve=Reserve(":9", {"usd": Decimal(1)}, ("total",), TODAY + 1))
        assert refused((await subject.write(tomorrow))[0], PoolShort).short.per == "day"
        assert [row.reserved for row in await other.pools(TODAY)] == [Decimal(2), Decimal(6)]
        assert [row.reserved for row in await other.pools(TODAY + 1)] == [Decimal(3), Decimal(6)]

    scene(part)


def test_a_note_goes_with_its_run_and_what_it_spent_stays(stores: SqlitePlace, scene: Scene) -> None:
    async def part(subject: Subject, head: Head) -> None:
        await subject.write(settling(head, "1", ":0"))
        second = await subject.held("a2")
        await subject.write(starting(second, "1", ":0"))
        await subject.write(settling(second, "2", ":0"), append(second, b"done", status=Status("done", 30)))
        await subject.write(append(second, b"released", release=(None, None)))
        noted = "SELECT count(*) FROM mp_journal j JOIN mp_runs r USING (run) WHERE r.id = 'a2' AND note IS NOT NULL"
        assert rows(stores.path, noted) == [(2,)]

        def told(_: Tombstone) -> bytes:
            return b"pruned"

        (answer,) = await subject.write(Prune(["a2"], 40, "ann", "old", told))

        assert not isinstance(answer, Exception)
        assert rows(stores.path, "SELECT count(*) FROM mp_journal WHERE note LIKE '%\"2\"%'") == [(0,)]
        assert await stands(subject.store) == (Decimal(3), Decimal(0))  # type: ignore[arg-type]

    scene(part)


def test_who_does_not_know_of_notes_cannot_count_without_them(stores: SqlitePlace, scene: Scene) -> None:
    async def part(subject: Subject, head: Head) -> None:
        await subject.write(starting(head, "2", ":1"))
        connection = apsw.Connection(str(stores.path))
        for sql in COUNTING:
            with pytest.raises(apsw.ConstraintError, match="is behind the journal"):
                connection.execute(sql).fetchall()
        connection.close()

    scene(part)


def test_a_store_that_was_made_before_notes_makes_them_once_it_is_opened(
    stores: SqlitePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as then:
        then.setattr(opening, "MIGRATIONS", opening.MIGRATIONS[:4])
        opened = apsw.Connection(str(stores.path))
        opening.prepare(opened, str(stores.path))
        for sql in (
            "INSERT INTO mp_ceilings VALUES ('total', 'ever', 'usd', '10')",
            "INSERT INTO mp_spent VALUES ('total', -1, 'usd', '4')",
        ):
            opened.execute(sql).fetchall()
        opened.close()

    async def scene_after() -> None:
        subject = Subject(stores, await stores.open())
        head = await subject.held("a1")
        for step in (":0", ":1", ":2"):
            assert await subject.write(starting(head, "1", step)) == [None]
        await subject.write(settling(head, "2", ":1"))
        assert await stands(subject.store) == (Decimal(6), Decimal(2))  # type: ignore[arg-type]
        assert rows(stores.path, "SELECT count(*) FROM mp_journal WHERE note IS NOT NULL") == [(3,)]
        subject.close()

    asyncio.run(scene_after())


def test_a_store_that_has_failed_is_left_as_it_is(stores: SqlitePlace, scene: Scene) -> None:
    async def part(subject: Subject, head: Head) -> None:
        await subject.write(starting(head, "2", ":1"))
        subject.store._failed = "the disk is gone"  # type: ignore[attr-defined]
        with pytest.raises(StoreFailed):
            await subject.write(starting(head, "1", ":2"))

    scene(part)

    assert rows(stores.path, "SELECT count(*) FROM mp_behind") == [(1,)]


def test_what_one_append_holds_and_lets_go_of_is_not_held_by_whoever_reads_its_note(scene: Scene) -> None:
    async def part(subject: Subject, head: Head) -> None:
        at_once = starting(head, "2", ":1")
        at_once.spent = [PoolSpent(":1", {"usd": Decimal("1.5")}, ("total",), TODAY)]
        assert await subject.write(at_once) == [None]
        assert await stands(subject.store) == (Decimal("1.5"), Decimal(1))  # type: ignore[arg-type]
        other = await subject.other()
        await subject.done(hello(1), store=other)
        assert await stands(subject.store) == (Decimal("1.5"), Decimal(1))  # type: ignore[arg-type]

    scene(part)


def test_a_step_that_comes_and_goes_between_two_looks_is_nothing_to_the_tables() -> None:
    held = Note([], [(":1", [(*ROW, Decimal(2))])], [])
    gone = Note([":1"], [], [(*ROW, Decimal("0.5"))])
    last = Note([":0"], [], [(*ROW, Decimal("1.25"))])
    folded = fold([(7, encode(held)), (7, encode(gone)), (7, encode(last))])

    assert folded.held == {}
    assert list(folded.gone) == [(7, ":0")]
    assert folded.spent == {ROW: Decimal("1.75")}
