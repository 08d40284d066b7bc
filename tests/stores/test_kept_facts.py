"""What the connection that writes has read of switches and shared budgets is used again only while it is true."""

import asyncio
from collections.abc import Awaitable, Callable
from decimal import Decimal

import pytest

from milepost.core.pools import day_of
from milepost.stores.api import Append, Head, Lift, SwitchedOff, Throw
from milepost.stores.pools import PoolShort, PoolSpent, Reserve, SetCeiling
from milepost.stores.sqlite.kept import ROWS_KEPT
from milepost.testing.store_conformance.subject import Subject, append, refused, switch
from tests.stores.conftest import SqlitePlace

TODAY = day_of(1_795_996_800_000)
LOOKED_AT = ("mp_switches", "mp_ceilings", "mp_spent WHERE", "mp_reserved WHERE pool", "max(row)")


def starting(head: Head, usd: int, step: str) -> Append:
    reserve = Reserve(step, {"usd": Decimal(usd)}, ("total",), TODAY)
    return append(head, b"started", scopes=("tool:charge",), reserve=reserve)


def settling(head: Head, usd: int, step: str) -> Append:
    return append(head, b"settled", spent=[PoolSpent(step, {"usd": Decimal(usd)}, ("total",), TODAY)])


def ceiling(usd: int | None) -> SetCeiling:
    return SetCeiling("total", "ever", {"usd": None if usd is None else Decimal(usd)}, "a try", "ann", 20)


@pytest.fixture
def scene(stores: SqlitePlace) -> Callable[[Callable[[Subject, Head], Awaitable[None]]], None]:
    """Runs a scene with a store that has a ceiling of ten, and whose latest batch was a start that reserved four."""

    async def play(part: Callable[[Subject, Head], Awaitable[None]]) -> None:
        subject = Subject(stores, await stores.open())
        head = await subject.held("a1")
        await subject.done(ceiling(10))
        for step in (":0", ":1"):
            assert await subject.write(starting(head, 2, step)) == [None]
        try:
            await part(subject, head)
        finally:
            subject.close()

    return lambda part: asyncio.run(play(part))


Scene = Callable[[Callable[[Subject, Head], Awaitable[None]]], None]


def test_a_start_reads_nothing_again_that_nobody_has_changed(scene: Scene) -> None:
    async def part(subject: Subject, head: Head) -> None:
        said: list[str] = []

        def note(_: object, sql: str, __: object) -> bool:
            said.append(sql)
            return True

        subject.store._writer.exec_trace = note  # type: ignore[attr-defined]

        await subject.write(starting(head, 2, ":2"))
        await subject.write(settling(head, 1, ":2"))

        assert any("mp_journal" in sql for sql in said)
        assert not [sql for sql in said if any(table in sql for table in LOOKED_AT)]

    scene(part)


def test_a_switch_that_another_process_throws_between_two_starts_refuses_the_second(scene: Scene) -> None:
    async def part(subject: Subject, head: Head) -> None:
        other = await subject.other()
        await subject.done(Throw(20, holds=[switch("tool:charge", "freeze")]), store=other)

        (answer,) = await subject.write(starting(head, 1, ":2"))
        refused(answer, SwitchedOff)

        await subject.done(Throw(20, lifts=[Lift("tool:charge", "fine", "ann", "freeze")]), store=other)
        assert await subject.write(starting(head, 1, ":2")) == [None]

    scene(part)


def test_what_another_process_reserves_and_spends_counts_at_once(scene: Scene) -> None:
    async def part(subject: Subject, head: Head) -> None:
        other, second = await subject.other(), await subject.held("a2", "worker-2")
        await subject.write(starting(second, 3, ":0"), store=other)
        assert await subject.write(starting(head, 1, ":2")) == [None]
        await subject.write(starting(second, 2, ":1"), store=other)

        (answer,) = await subject.write(starting(head, 1, ":3"))

        assert refused(answer, PoolShort).short.held == Decimal(10)

    scene(part)


def test_a_ceiling_that_another_process_lowers_or_lifts_holds_for_the_next_start(scene: Scene) -> None:
    async def part(subject: Subject, head: Head) -> None:
        other = await subject.other()
        await subject.done(ceiling(4), store=other)

        (answer,) = await subject.write(starting(head, 1, ":2"))
        refused(answer, PoolShort)

        await subject.done(ceiling(None), store=other)
        assert await subject.write(starting(head, 100, ":2")) == [None]

    scene(part)


def test_what_this_process_changes_beside_its_batches_is_read_again(scene: Scene) -> None:
    async def part(subject: Subject, head: Head) -> None:
        writer = subject.store._writer  # type: ignore[attr-defined]
        writer.execute("UPDATE mp_reserved SET amount = '5'").fetchall()

        (answer,) = await subject.write(starting(head, 1, ":2"))

        refused(answer, PoolShort)

    scene(part)


def test_a_start_that_was_refused_leaves_nothing_reserved_behind(scene: Scene) -> None:
    async def part(subject: Subject, head: Head) -> None:
        stale = Head(head.run, head.run_id, head.epoch - 1, head.row, head.seq, head.hash, head.segment)

        short, lost = await subject.write(starting(head, 7, ":2"), starting(stale, 6, ":2"))
        refused(short, PoolShort)
        assert lost is not None

        assert await subject.write(starting(head, 6, ":2")) == [None]

    scene(part)


def test_no_more_rows_are_kept_than_a_bound(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ROWS_KEPT == 10_000
    monkeypatch.setattr("milepost.stores.sqlite.kept.ROWS_KEPT", 0)

    async def part(subject: Subject, head: Head) -> None:
        await subject.write(starting(head, 1, ":2"))
        kept = subject.store._kept  # type: ignore[attr-defined]

        assert kept.facts is None

    scene(part)
