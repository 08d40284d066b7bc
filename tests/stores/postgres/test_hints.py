"""A process hears at once that another one has made something due, where no pooler stands between."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from milepost.core.queues import EVERYTHING
from milepost.stores.postgres.store import PostgresStore
from milepost.testing.store_conformance.subject import Subject, append, deliver
from tests.polling import eventually
from tests.servers.fixtures import PostgresDatabase, bouncer
from tests.servers.pgbouncer import PgBouncer
from tests.stores.postgres.conftest import PostgresPlace

__all__ = ["bouncer"]
pytestmark = pytest.mark.parametrize("postgres_version", [15, 18], ids=lambda version: f"postgres-{version}")


def played(place: PostgresPlace, scene: Callable[[Subject, PostgresStore], Coroutine[Any, Any, None]]) -> None:
    """Play a scene with a store and another process's, which listens."""

    async def play() -> None:
        subject = Subject(place, await place.open())
        other = await place.open()
        hears(other)
        await scene(subject, other)
        other.close()
        subject.close()

    asyncio.run(play())


def hears(store: PostgresStore) -> None:
    """Wait for a hint."""
    eventually(store.changed, saying="a hint")


def test_a_start_a_message_and_a_run_that_is_given_back_are_told_to_other_processes(stores: PostgresPlace) -> None:
    async def scene(subject: Subject, other: PostgresStore) -> None:
        await subject.create("a1")
        hears(other)
        head = await subject.claim("a1")
        await subject.create("b1")
        hears(other)
        await subject.done(deliver("b1", "m1"))
        hears(other)
        await subject.done(append(head, b"later", release=(10, 10)))
        hears(other)

    played(stores, scene)


def test_what_concerns_nobody_else_is_not_told_and_one_s_own_is_not_heard(stores: PostgresPlace) -> None:
    async def scene(subject: Subject, other: PostgresStore) -> None:
        hears(subject.store)  # type: ignore[arg-type]
        head = await subject.held("a1")
        hears(other)
        await subject.done(append(head, b"work"))
        await subject.done(deliver("a1", "m1"))  # its own worker brings it
        await subject.done(append(head, b"rests", release=(10, 10_000)))
        await subject.store.counts()  # two readers: what was to be told was told before both have answered
        await subject.store.counts()
        assert not other.changed()
        assert not subject.store.changed()

    played(stores, scene)


def test_behind_a_pooler_there_is_no_hint_and_what_is_told_there_is_heard_elsewhere(
    database: PostgresDatabase, bouncer: Callable[..., PgBouncer]
) -> None:
    async def scene() -> None:
        place = PostgresPlace(bouncer(connections=3).url(database.name))
        pooled, direct = await place.open(), PostgresStore(database.url)
        hears(direct)
        subject = Subject(place, await place.open())
        assert not pooled.changed()
        eventually(lambda: pooled._listening._pooled, saying="it to find out that it cannot listen")
        await subject.create("a1")
        hears(direct)
        assert not pooled.changed()
        assert [run.id for run in await pooled.due(10, ["desk"], 5, EVERYTHING)] == ["a1"]
        for store in (pooled, direct):
            store.close()
        subject.close()

    asyncio.run(scene())


def test_a_hint_may_have_been_missed_while_nobody_listened(stores: PostgresPlace) -> None:
    async def scene(subject: Subject, other: PostgresStore) -> None:
        connection = other._listening._connection
        assert connection is not None
        pid = connection.info.backend_pid
        await subject.store._on_reader(lambda reader: reader.execute("SELECT pg_terminate_backend(%s)", (pid,)))  # type: ignore[attr-defined]
        other._listening._again_at = 0.0
        eventually(lambda: other.changed() and other._listening._connection is not connection, saying="it to listen")

    played(stores, scene)
