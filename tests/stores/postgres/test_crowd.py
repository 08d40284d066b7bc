"""Workers that meet at the same runs: who came second looks from another place on."""

import asyncio
import random

import pytest

from milepost.core.queues import EVERYTHING, Place
from milepost.errors import EpochLost
from milepost.stores.api import Head
from milepost.stores.postgres.crowd import Crowd
from milepost.testing.store_conformance.subject import Subject, append, claim
from tests.stores.postgres.conftest import PostgresPlace

FIRST = Head(1, "a1", 1, 1, 1, b"")
SECOND = EpochLost("a1", 0)


def crowd() -> Crowd:
    return Crowd(random.Random(1))


def test_who_came_first_keeps_the_order_of_turns() -> None:
    met = crowd()

    met.met([claim("a1"), claim("a2")], [FIRST, FIRST])

    assert met.apart() is None


def test_who_came_second_looks_from_somewhere_else_on_each_time() -> None:
    met = crowd()

    met.met([claim("a1"), claim("a2")], [FIRST, SECOND])

    places = {met.apart() for _ in range(10)}
    assert len(places) > 5
    assert all(place is not None and 0 <= place < 1000 for place in places)


def test_a_few_looks_after_the_others_have_gone_the_order_of_turns_is_kept_again() -> None:
    met = crowd()
    met.met([claim("a1")], [SECOND])

    looks = 0
    while met.apart() is not None:
        met.met([claim("a1")], [FIRST])
        looks += 1

    assert 3 <= looks <= 10


def test_appends_say_nothing_of_others() -> None:
    met = crowd()

    met.met([append(FIRST, b"one")], [SECOND])

    assert met.apart() is None


@pytest.mark.parametrize("postgres_version", [15, 18], ids=lambda version: f"postgres-{version}")
@pytest.mark.parametrize("apart", [0, 250, 500, 999])
def test_from_wherever_one_looks_all_is_seen_and_what_comes_first_by_priority_comes_first(
    stores: PostgresPlace, apart: int
) -> None:
    async def scene() -> None:
        store = await stores.open()
        subject = Subject(stores, store)
        for number in range(12):
            await subject.create(f"a{number:02}", due=number + 1, place=Place(priority=number % 2))
        asked = (100, ["desk"])
        some = await store._read(lambda reads: reads.due_apart(*asked, 4, EVERYTHING, apart))
        all_ = await store._read(lambda reads: reads.due_apart(*asked, 20, EVERYTHING, apart))
        turns = [run.id for run in await store.due(*asked, 20)]
        subject.close()

        assert [run.id for run in some] == [run.id for run in all_][:4]
        assert sorted(run.id for run in all_) == sorted(turns)
        assert turns == [f"a{number:02}" for number in (*range(1, 12, 2), *range(0, 12, 2))]
        for group in ([run.id for run in all_[:6]], [run.id for run in all_[6:]]):
            at = group.index(min(group))
            assert group[at:] + group[:at] == sorted(group)
        assert {run.id for run in all_[:6]} == set(turns[:6])

    asyncio.run(scene())


@pytest.mark.parametrize("postgres_version", [18], ids=lambda version: f"postgres-{version}")
def test_two_that_ask_for_all_there_is_have_each_run_once(stores: PostgresPlace) -> None:
    async def scene() -> None:
        one = Subject(stores, await stores.open())
        two = await one.other()
        for number in range(60):
            await one.create(f"a{number:02}")

        async def take(owner: str, store: object) -> list[str]:
            taken: list[str] = []
            while found := await store.due(100, ["desk"], 10):  # type: ignore[attr-defined]
                claims = [claim(run.id, owner) for run in found]
                answers = await store.commit(claims)  # type: ignore[attr-defined]
                taken += [answer.run_id for answer in answers if isinstance(answer, Head)]
            return taken

        mine, theirs = await asyncio.gather(take("w1", one.store), take("w2", two))
        one.close()
        assert sorted(mine + theirs) == [f"a{number:02}" for number in range(60)]

    asyncio.run(scene())
