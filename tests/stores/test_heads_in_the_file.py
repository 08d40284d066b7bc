"""What stands in the file of a run's head: where it is, under which epoch, and which segment it is to enter."""

import asyncio
from typing import Any

from milepost.errors import EpochLost
from milepost.stores.api import Claim, Create, Head, NewRun
from milepost.testing.store_conformance import Subject
from milepost.testing.store_conformance.subject import append, refused
from tests.stores.conftest import SqlitePlace


def claim(run_id: str, owner: str, owner_was: str | None) -> Claim:
    return Claim(run_id, owner, owner_was, 5, lambda epoch: b"claimed %d" % epoch)


def heads(subject: Subject) -> list[tuple[Any, ...]]:
    writer = subject.store._writer  # type: ignore[attr-defined]
    rows: list[tuple[Any, ...]] = writer.execute("SELECT epoch, seq, segment FROM mp_heads").fetchall()
    return rows


def test_a_claim_leaves_the_segment_that_the_run_is_to_enter_as_it_is(stores: SqlitePlace) -> None:
    async def scene() -> None:
        subject = Subject(stores, await stores.open())
        await subject.create("a1")
        created = heads(subject)

        first = await subject.done(claim("a1", "worker-1", None))

        assert created == [(0, 1, "pay")]
        assert heads(subject) == [(1, 2, "pay")]
        assert (first.epoch, first.seq, first.segment) == (1, 2, "pay")
        subject.close()

    asyncio.run(scene())


def test_runs_that_are_created_together_leave_no_gap_in_the_journal(stores: SqlitePlace) -> None:
    async def scene() -> None:
        subject = Subject(stores, await stores.open())
        head = await subject.held("a1")
        runs = [NewRun(f"b{n}", "desk", "1", "d1", b"created", "pay", 1, 1) for n in (1, 2)]

        await subject.write(*map(Create, runs), append(head, b"one"))

        writer = subject.store._writer  # type: ignore[attr-defined]
        rows = [row for (row,) in writer.execute("SELECT row FROM mp_journal ORDER BY row").fetchall()]
        assert rows == list(range(1, 6))
        subject.close()

    asyncio.run(scene())


def test_a_claim_that_came_too_late_names_no_epoch_since_it_held_none(stores: SqlitePlace) -> None:
    async def scene() -> None:
        subject = Subject(stores, await stores.open())
        await subject.held("a1")

        (answer,) = await subject.write(claim("a1", "worker-2", "worker-9"))

        lost = refused(answer, EpochLost)
        assert (lost.run_id, lost.held) == ("a1", 0)
        subject.close()

    asyncio.run(scene())


def test_an_append_to_a_run_that_is_not_there_is_refused_like_one_under_a_lost_epoch(stores: SqlitePlace) -> None:
    async def scene() -> None:
        subject = Subject(stores, await stores.open())
        head = await subject.held("a1")

        answers = await subject.write(append(Head(99, "gone", 1, 0, 0, b"")), append(head, b"one"))

        assert refused(answers[0], EpochLost).run_id == "gone"
        assert answers[1] is None
        subject.close()

    asyncio.run(scene())
