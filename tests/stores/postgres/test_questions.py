"""What is asked of every run that is driven: by the loop over a connection of its own, by a thread where that broke."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import psycopg
import pytest

from milepost.errors import Damaged, UnknownRun
from milepost.stores.postgres.connection import SQL
from milepost.stores.postgres.questions import NotAnswered, Questions
from milepost.stores.postgres.store import PostgresStore
from milepost.testing.store_conformance.subject import Subject, append, deliver, raised
from tests.stores.postgres.conftest import PostgresPlace

pytestmark = pytest.mark.parametrize("postgres_version", [15, 18], ids=lambda version: f"postgres-{version}")


def played(
    place: PostgresPlace, scene: Callable[[Subject, PostgresStore, Questions], Coroutine[Any, Any, None]]
) -> None:
    """Play a scene with a store that asks by itself, and a run that has something of everything."""

    async def play() -> None:
        store = await place.open()
        subject = Subject(place, store)
        head = await subject.held("a1", chunks={"c1": b"chunk"})
        await subject.done(append(head, b"one"))
        await subject.done(deliver("a1", "m1"))
        await scene(subject, store, await asking(store))
        subject.close()

    asyncio.run(play())


async def asking(store: PostgresStore) -> Questions:
    """Return what asks for a store, as soon as it has its connection."""
    async with asyncio.timeout(20):
        while (found := store._questions) is None or found.broken:
            await store.run("a1")
    return found


def end(store: PostgresStore, questions: Questions) -> None:
    """End the server's side of the connection that asks."""
    with psycopg.connect(store._where.conninfo, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", (questions._connection.info.backend_pid,))


def test_the_loop_is_told_what_a_thread_is_told(stores: PostgresPlace) -> None:
    async def scene(_: Subject, store: PostgresStore, questions: Questions) -> None:
        asked = await asyncio.gather(store.run("a1"), store.tail("a1"), store.chunk("a1", "c1"), store.inbox("a1"))
        read = await store._read(lambda it: [it.run("a1"), it.tail("a1"), it.chunk("a1", "c1"), it.inbox("a1")])
        assert list(asked) == read
        assert [stored.body for stored in asked[1].entries] == [b"created a1", b"claimed 1", b"one"]
        assert (asked[2], [body for _, body in asked[3]]) == (b"chunk", [b"hello"])
        assert not questions.broken

    played(stores, scene)


def test_what_is_not_there_is_named_as_a_thread_names_it(stores: PostgresPlace) -> None:
    async def scene(_: Subject, store: PostgresStore, __: Questions) -> None:
        for nobody in (store.run("a2"), store.tail("a2"), store.inbox("a2"), store.chunk("a2", "c1")):
            await raised(nobody, UnknownRun)
        await raised(store.chunk("a1", "c2"), Damaged)

    played(stores, scene)


def test_what_was_asked_when_the_connection_broke_is_asked_again(stores: PostgresPlace) -> None:
    async def scene(_: Subject, store: PostgresStore, questions: Questions) -> None:
        end(store, questions)
        rows = await asyncio.gather(*(store.run("a1") for _ in range(20)))
        assert {row.seq for row in rows} == {3}
        assert questions.broken
        assert await asking(store) is not questions

    played(stores, scene)


def test_who_no_longer_waits_for_an_answer_takes_nobody_elses(stores: PostgresPlace) -> None:
    async def scene(subject: Subject, store: PostgresStore, _: Questions) -> None:
        await subject.create("a2")
        gone = asyncio.create_task(store.run("a1"))
        await asyncio.sleep(0)
        gone.cancel()
        row, again = await asyncio.gather(store.run("a2"), store.run("a1"))
        assert (row.id, again.id) == ("a2", "a1")
        assert gone.cancelled()

    played(stores, scene)


def test_what_stands_behind_a_question_that_failed_is_left_to_a_thread_and_the_next_is_answered(
    stores: PostgresPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SQL, "fails", b"SELECT 1 / $1::bigint")

    async def scene(_: Subject, store: PostgresStore, __: Questions) -> None:
        questions = Questions(store._connected(), ("run_row", "fails"))
        together = (questions.rows("run_row", "a1"), questions.rows("fails", 0), questions.rows("run_row", "a1"))
        found, *left = await asyncio.gather(*together, return_exceptions=True)
        assert isinstance(found, list)
        assert [type(one) for one in left] == [NotAnswered, NotAnswered]
        assert await questions.rows("run_row", "a1") == found
        assert not questions.broken
        questions.close()

    played(stores, scene)
