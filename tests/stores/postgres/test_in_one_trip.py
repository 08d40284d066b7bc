"""Appends that are sent with their COMMIT: what they took for granted is looked at by the server, behind the locks."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import psycopg
import pytest

from milepost.errors import EpochLost
from milepost.stores.api import Append, EffectRow, Store, SwitchedOff, Throw
from milepost.stores.postgres.store import PostgresStore
from milepost.testing.store_conformance.subject import Subject, append, deliver, refused, status, switch
from tests.stores.postgres.conftest import PostgresPlace

pytestmark = pytest.mark.parametrize("postgres_version", [15, 18], ids=lambda version: f"postgres-{version}")


def played(place: PostgresPlace, scene: Callable[[Subject, Store], Coroutine[Any, Any, None]]) -> None:
    """Play a scene with two processes."""

    async def play() -> None:
        subject = Subject(place, await place.open())
        await scene(subject, await subject.other())
        subject.close()

    asyncio.run(play())


def is_ahead(subject: Subject) -> bool:
    """Say whether the next append goes in one trip."""
    assert isinstance(subject.store, PostgresStore)
    return subject.store._line._ahead is not None


def test_appends_that_follow_each_other_stand_in_one_chain_whose_rows_rise(stores: PostgresPlace) -> None:
    async def scene(subject: Subject, other: Store) -> None:
        head, theirs = await subject.held("a1"), await subject.held("a2")
        rows = [head.row]
        for number in range(5):
            assert is_ahead(subject)
            assert await subject.write(append(head, b"%d" % number), append(theirs, b"too")) == [None, None]
            await other.commit([deliver("a1", f"m{number}")])  # whose rows it takes no part in
            rows.append(head.row)
        assert rows == sorted(rows)
        assert (await subject.bodies("a1"))[2:] == [b"0", b"1", b"2", b"3", b"4"]
        assert (await subject.bodies("a2"))[2:] == [b"too"] * 5

    played(stores, scene)


def test_who_was_robbed_of_the_run_meanwhile_writes_nothing(stores: PostgresPlace) -> None:
    async def scene(subject: Subject, other: Store) -> None:
        head = await subject.held("a1")
        await subject.done(append(head, b"mine"))
        assert is_ahead(subject)
        await subject.claim("a1", "worker-2", "worker-1", store=other)
        (answer,) = await subject.write(append(head, b"stale"))
        assert isinstance(answer, EpochLost)
        assert await subject.bodies("a1") == [b"created a1", b"claimed 1", b"mine", b"claimed 2"]

    played(stores, scene)


def test_a_switch_that_somebody_threw_meanwhile_is_seen(stores: PostgresPlace) -> None:
    async def scene(subject: Subject, other: Store) -> None:
        head = await subject.held("a1")
        await subject.done(append(head, b"before", scopes=["tool:pay"]))
        assert is_ahead(subject)
        await subject.done(Throw(at=20, holds=[switch("tool:pay")]), store=other)
        (answer,) = await subject.write(append(head, b"behind", scopes=["tool:pay"]))
        refused(answer, SwitchedOff)
        assert not is_ahead(subject)
        assert (await subject.bodies("a1"))[2:] == [b"before"]

    played(stores, scene)


def test_a_refused_append_takes_none_of_its_batch_along(stores: PostgresPlace) -> None:
    async def scene(subject: Subject, other: Store) -> None:
        lost, kept = await subject.held("a1"), await subject.held("a2")
        await subject.claim("a1", "worker-2", "worker-1", store=other)
        assert is_ahead(subject)
        refusal, written = await subject.write(append(lost, b"stale"), append(kept, b"kept"))
        assert (type(refusal), written) == (EpochLost, None)
        assert (await subject.bodies("a2"))[2:] == [b"kept"]

    played(stores, scene)


# ---------------------------------------------------------------- while it is under way


def row_of(subject: Subject, run: int) -> psycopg.Connection[Any]:
    """Hold the head of a run, as another process does that writes to it."""
    assert isinstance(subject.store, PostgresStore)
    holding: psycopg.Connection[Any] = psycopg.connect(subject.store._where.conninfo)
    holding.execute("SELECT 1 FROM mp_heads WHERE run = %s FOR NO KEY UPDATE", (run,))
    return holding


async def departed(subject: Subject, *appends: Append) -> asyncio.Task[list[Any]]:
    """Commit appends that find the heads of their runs locked; return what waits for it."""
    assert isinstance(subject.store, PostgresStore)
    task = asyncio.create_task(subject.store.commit(list(appends)))
    await asyncio.sleep(0)
    assert subject.store._flight is not None
    return task


def test_the_loop_goes_on_while_a_batch_waits_for_its_locks(stores: PostgresPlace) -> None:
    async def scene(subject: Subject, _: Store) -> None:
        head = await subject.held("a1")
        await subject.done(append(head, b"before"))
        with row_of(subject, head.run) as holding:
            written = await departed(subject, append(head, b"mine"))
            assert (await subject.store.run("a1")).seq == 3  # answered meanwhile, on this loop
            assert not written.done()
            holding.rollback()
            assert await written == [None]
        assert (await subject.bodies("a1"))[2:] == [b"before", b"mine"]

    played(stores, scene)


@pytest.mark.parametrize("must", [False, True])
def test_what_is_asked_for_while_a_batch_is_under_way_is_written_behind_it(stores: PostgresPlace, must: bool) -> None:  # noqa: FBT001
    async def scene(subject: Subject, _: Store) -> None:
        head, other = await subject.held("a1"), await subject.held("a2")
        await subject.done(append(head, b"before"))
        with row_of(subject, head.run) as holding:
            first = await departed(subject, append(head, b"first"))
            letting_go = asyncio.get_running_loop().run_in_executor(None, holding.rollback)
            second = [append(other, b"second")]
            answers = subject.store.commit_now(second, must=True) if must else await subject.store.commit(second)
            assert (await first, answers) == ([None], [None])
            await letting_go
        found = [(run_id, body) for _, run_id, _, body in await subject.store.written(0)]
        assert found[-2:] == [("a1", b"first"), ("a2", b"second")]

    played(stores, scene)


def test_a_batch_whose_caller_went_away_is_written_all_the_same(stores: PostgresPlace) -> None:
    async def scene(subject: Subject, _: Store) -> None:
        head = await subject.held("a1")
        await subject.done(append(head, b"before"))
        with row_of(subject, head.run) as holding:
            written = await departed(subject, append(head, b"mine"))
            written.cancel()
            assert isinstance((await asyncio.gather(written, return_exceptions=True))[0], asyncio.CancelledError)
            holding.rollback()
        await subject.done(append(head, b"behind it"))
        assert (await subject.bodies("a1"))[2:] == [b"before", b"mine", b"behind it"]

    played(stores, scene)


def test_what_one_statement_cannot_say_goes_in_one_trip_too(stores: PostgresPlace) -> None:
    async def scene(subject: Subject, _: Store) -> None:
        head, other = await subject.held("a1"), await subject.held("a2")
        await subject.done(append(head, b"before"))
        assert is_ahead(subject)
        ended = append(head, b"end", status=status("done"), chunks={"c1": b"chunk"}, release=(40, None))
        written = asyncio.create_task(subject.store.commit([ended, append(other, b"too")]))
        await asyncio.sleep(0)
        assert isinstance(subject.store, PostgresStore)
        assert subject.store._flight is not None
        assert await written == [None, None]
        row = await subject.store.run("a1")
        assert (row.status, row.owner, row.seq) == ("done", None, 4)
        assert await subject.store.chunk("a1", "c1") == b"chunk"

    played(stores, scene)


# ---------------------------------------------------------------- sent off


def sent(subject: Subject, *appends: Append) -> asyncio.Future[list[Any] | Exception]:
    """Send appends off; return the future of what becomes of them, or are refused with."""
    landed: asyncio.Future[list[Any] | Exception] = asyncio.get_running_loop().create_future()
    assert subject.store.depart(list(appends), landed.set_result)
    assert not landed.done()
    return landed


def test_what_was_sent_off_is_written_and_the_next_can_be(stores: PostgresPlace) -> None:
    async def scene(subject: Subject, other: Store) -> None:
        head = await subject.held("a1")
        await subject.done(append(head, b"before"))
        for number in range(3):
            assert await sent(subject, append(head, b"%d" % number), append(head, b"too")) == [None, None]
        assert (await subject.bodies("a1"))[3:] == [b"0", b"too", b"1", b"too", b"2", b"too"]
        assert (await other.tail("a1")).head.hash == head.hash

    played(stores, scene)


def test_what_was_sent_off_and_is_refused_is_told_so(stores: PostgresPlace) -> None:
    async def scene(subject: Subject, other: Store) -> None:
        head = await subject.held("a1")
        await subject.done(append(head, b"mine"))
        await subject.claim("a1", "worker-2", "worker-1", store=other)
        answers = await sent(subject, append(head, b"stale"))
        assert isinstance(answers, list)
        assert [type(answer) for answer in answers] == [EpochLost]
        assert await subject.bodies("a1") == [b"created a1", b"claimed 1", b"mine", b"claimed 2"]

    played(stores, scene)


def test_nothing_is_sent_off_that_has_to_ask_first_or_while_something_is_under_way(stores: PostgresPlace) -> None:
    async def scene(subject: Subject, _: Store) -> None:
        head, other = await subject.held("a1"), await subject.held("a2")
        await subject.done(append(head, b"before"))
        never: list[Any] = []
        assert not subject.store.depart([deliver("a1", "m1")], never.append)
        with row_of(subject, head.run) as holding:
            landed = sent(subject, append(head, b"mine"))
            assert not subject.store.depart([append(other, b"too")], never.append)
            holding.rollback()
            assert await landed == [None]
        assert (await subject.bodies("a1"))[2:] == [b"before", b"mine"]
        assert (await subject.bodies("a2"))[2:] == never == []

    played(stores, scene)


def test_what_is_behind_what_was_sent_off_waits_for_it_on_the_thread(stores: PostgresPlace) -> None:
    async def scene(subject: Subject, _: Store) -> None:
        head, other = await subject.held("a1"), await subject.held("a2")
        await subject.done(append(head, b"before"))
        with row_of(subject, head.run) as holding:
            landed = sent(subject, append(head, b"first"))
            letting_go = asyncio.get_running_loop().run_in_executor(None, holding.rollback)
            assert await subject.store.commit([append(other, b"second")]) == [None]
            assert await landed == [None]
            await letting_go
        found = [(run_id, body) for _, run_id, _, body in await subject.store.written(0)]
        assert found[-2:] == [("a1", b"first"), ("a2", b"second")]

    played(stores, scene)


def test_one_run_puts_and_drops_effects_as_many_runs_do(stores: PostgresPlace) -> None:
    """One effect of each goes in a statement of its own, more of them in that of many runs: the rows are the same."""

    def row(step: str, outcome: str | None) -> EffectRow:
        return EffectRow(step, outcome, f"work/{step}", "pay", "keyed", 1, 5, "why", None)

    async def scene(subject: Subject, _: Store) -> None:
        heads = [await subject.held("a1"), await subject.held("a2")]
        for head in heads:
            await subject.done(append(head, b"before"))
        one, many = heads
        for effects in ([row("s1", "started")], [row("s2", "started"), row("s1", None)], [], [row("s2", "unknown")]):
            assert await subject.write(append(one, b"1", b"2", effects=effects)) == [None]
        assert await subject.write(append(many, b"1", effects=[row("s1", "started"), row("s2", "unknown")])) == [None]
        assert await subject.write(append(many, b"2", effects=[row("s1", None)]), append(one, b"3")) == [None, None]
        for head in heads:
            (effect,) = await subject.store.effects(head.run_id)
            assert (effect.step, effect.outcome, effect.path, effect.why) == ("s2", "unknown", "work/s2", "why")

    played(stores, scene)
