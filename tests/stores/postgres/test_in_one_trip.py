"""Appends that are sent with their COMMIT: what they took for granted is looked at by the server, behind the locks."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from milepost.errors import EpochLost
from milepost.stores.api import Store, SwitchedOff, Throw
from milepost.stores.postgres.store import PostgresStore
from milepost.testing.store_conformance.subject import Subject, append, deliver, refused, switch
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
