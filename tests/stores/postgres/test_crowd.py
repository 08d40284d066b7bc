"""Workers that want the same runs: each has a share of what is due, and seldom comes second."""

import asyncio
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from milepost.core.queues import EVERYTHING, Place, Serving
from milepost.stores.api import Head
from milepost.stores.fleet import Enlist, WorkerRow
from milepost.stores.postgres.connection import SQL
from milepost.stores.postgres.crowd import Apart, Crowd
from milepost.testing.store_conformance.subject import Subject, append, claim
from tests.stores.postgres.conftest import PostgresPlace

NOW = 100
LATER = 10**15
DUE = 300
on_each_version = pytest.mark.parametrize("postgres_version", [15, 18], ids=lambda version: f"postgres-{version}")
on_the_newest = pytest.mark.parametrize("postgres_version", [18], ids=lambda version: f"postgres-{version}")


def worker(name: str, lease_until: int = LATER, ended_at: int | None = None) -> Enlist:
    return Enlist(WorkerRow(name, "host", 7, 1, lease_until, ended_at))


async def look(
    store: Any, name: str, most: int, *, leaves: bool, now: int = NOW, serving: Serving = EVERYTHING
) -> list[str]:
    found = await store._read(lambda reads: reads.due_apart(now, ["desk"], most, serving, Apart(name, leaves)))
    return [run.id for run in found]


# ---------------------------------------------------------------- how a process looks


def test_who_drives_nothing_looks_in_the_order_of_turns() -> None:
    crowd = Crowd()

    crowd.learn([append(Head(1, "a1", 1, 1, 1, b""), b"one"), claim("a1", "somebody-else")])

    assert crowd.apart() is None


def test_a_worker_leaves_the_others_theirs_at_every_other_look() -> None:
    crowd = Crowd()
    crowd.learn([worker("w1")])

    looks = [crowd.apart() for _ in range(4)]

    assert looks == [Apart("w1", True), Apart("w1", False)] * 2


# ---------------------------------------------------------------- what it sees


@on_each_version
@pytest.mark.parametrize("leaves", [True, False])
def test_to_a_worker_that_is_alone_all_comes_in_the_order_of_turns(stores: PostgresPlace, *, leaves: bool) -> None:
    async def scene() -> None:
        store = await stores.open()
        subject = Subject(stores, store)
        await subject.write(worker("w0"), worker("w1", lease_until=NOW), worker("w2"))
        await asyncio.to_thread(store.end_worker, "w2", 50)
        for number in range(12):
            await subject.create(f"a{number:02}", due=number + 1, place=Place(priority=number % 2))
        seen = await look(store, "w0", 20, leaves=leaves)
        some = await look(store, "w0", 4, leaves=leaves)
        turns = [run.id for run in await store.due(NOW, ["desk"], 20)]
        subject.close()

        assert turns == [f"a{number:02}" for number in (*range(1, 12, 2), *range(0, 12, 2))]
        assert seen == turns
        assert some == turns[:4]

    asyncio.run(scene())


@on_each_version
def test_those_who_look_at_the_same_instant_want_different_runs_and_each_the_first_of_its_own(
    stores: PostgresPlace,
) -> None:
    async def scene() -> None:
        store = await stores.open()
        subject = Subject(stores, store)
        crew = ["w0", "w1", "w2", "w3"]
        await subject.write(*map(worker, crew))
        for number in range(40):
            await subject.create(f"a{number:02}", due=number + 1)
        looks = [await look(store, name, 5, leaves=leaves) for name in crew for leaves in (True, False)]
        subject.close()

        own, all_ = looks[::2], looks[1::2]
        wanted = [run for one in own for run in one]
        assert len(wanted) == len({*wanted})
        assert all(one == sorted(one) and len(one) == 5 for one in own)
        assert max(wanted) < "a20"
        for mine, seen in zip(own, all_, strict=True):
            assert seen == (mine if mine[0] == "a00" else ["a00", *mine[:4]])

    asyncio.run(scene())


@on_each_version
def test_of_what_is_anothers_a_few_are_taken_at_the_next_look_and_half_where_nothing_is_ones_own(
    stores: PostgresPlace,
) -> None:
    async def scene() -> None:
        store = await stores.open()
        subject = Subject(stores, store)
        await subject.write(worker("w0"), worker("w1"))
        for number in range(6):
            await subject.create(f"a{number:02}", due=number + 1)
        own = await look(store, "w0", 12, leaves=True)
        with_theirs = await look(store, "w0", 12, leaves=False)
        for run in own:
            await subject.claim(run, "w0")
        from_their_end, in_order = [await look(store, "w0", 12, leaves=leaves) for leaves in (True, False)]
        subject.close()

        theirs = sorted({f"a{number:02}" for number in range(6)} - {*own})
        assert len(own) == len(theirs) == 3
        assert sorted(with_theirs) == sorted([*own, *theirs[:2]])
        assert from_their_end == theirs[:0:-1]
        assert in_order == theirs[:2]

    asyncio.run(scene())


@on_each_version
def test_nobody_takes_a_lower_priority_while_a_higher_one_is_left_to_others(stores: PostgresPlace) -> None:
    async def scene() -> None:
        store = await stores.open()
        subject = Subject(stores, store)
        await subject.write(worker("w0"), worker("w1"))
        for number in range(12):
            await subject.create(f"a{number:02}", due=1, place=Place(priority=int(number < 4)))
        looks = {
            (name, leaves, most): await look(store, name, most, leaves=leaves)
            for name in ("w0", "w1")
            for leaves in (True, False)
            for most in (8, 80)
        }
        subject.close()

        urgent = [f"a{number:02}" for number in range(4)]
        assert sorted(looks["w0", True, 80] + looks["w1", True, 80]) == urgent
        for name in ("w0", "w1"):
            assert len(looks[name, False, 80]) == 12
            assert sorted(looks[name, False, 80][:4]) == urgent
            assert len(looks[name, False, 8]) == 3  # both of its own, and one of the others'
            assert {*looks[name, False, 8]} <= {*urgent}

    asyncio.run(scene())


@on_each_version
def test_what_a_worker_that_does_not_take_its_share_would_have_is_not_passed_over(stores: PostgresPlace) -> None:
    """Others come to it after some looks, however much of their own comes behind it."""

    async def scene() -> None:
        store = await stores.open()
        subject = Subject(stores, store)
        await subject.write(worker("w0"), worker("stands-still"))
        early = [f"a{number:02}" for number in range(4)]
        for run in early:
            await subject.create(run, due=1)
        crowd, taken = Crowd(), []
        crowd.learn([worker("w0")])
        for turn in range(20):
            for number in range(2):
                await subject.create(f"b{turn:02}{number}", due=2)
            apart = crowd.apart()
            assert apart is not None
            for run in await look(store, "w0", 2, leaves=apart.leaves):
                await subject.claim(run, "w0")
                taken.append(run)
        subject.close()

        assert {*early} <= {*taken[:12]}

    asyncio.run(scene())


@on_each_version
@pytest.mark.parametrize("leaves", [True, False])
def test_what_only_one_worker_serves_has_its_turn_beside_what_comes_in_with_a_higher_priority(
    stores: PostgresPlace, *, leaves: bool
) -> None:
    """Half of it is the share of a worker that does not serve its queue; it stood still for as long as others came."""

    async def scene() -> None:
        store = await stores.open()
        subject = Subject(stores, store)
        await subject.write(worker("serves-it"), worker("w1"))
        rare = [f"a{number:02}" for number in range(6)]
        for run in rare:
            await subject.create(run, due=1_000, place=Place(queue="rare"))
        for number in range(60):
            await subject.create(f"b{number:02}", due=5_900, place=Place(priority=2))
        both = Serving(queues=("default", "rare"))
        soon = await look(store, "serves-it", 80, leaves=leaves, now=5_999, serving=both)
        in_time = await look(store, "serves-it", 80, leaves=leaves, now=6_000, serving=both)
        by_others = await look(store, "w1", 80, leaves=leaves, now=6_000, serving=Serving(queues=("default",)))
        few = await look(store, "serves-it", 8, leaves=leaves, now=6_000, serving=both)
        subject.close()

        assert not {*rare} & {*soon}  # it is left to whoever has it as his share, and what is urgent comes first
        assert in_time == [*soon, *rare]
        assert not {*rare} & {*by_others}
        assert not {*rare} & {*few}  # where there is no room for all, priorities stand above that

    asyncio.run(scene())


@on_the_newest
def test_four_workers_that_ask_for_all_there_is_have_each_run_once_and_come_second_at_few(
    stores: PostgresPlace,
) -> None:
    async def scene() -> None:
        subject = Subject(stores, await stores.open())
        crew = {"w0": subject.store, **{f"w{number}": await subject.other() for number in (1, 2, 3)}}
        for name, store in crew.items():
            await store.commit([worker(name)])
        await asyncio.gather(*(subject.create(f"a{number:03}") for number in range(400)))
        taken, second = [], 0
        while looks := {
            name: found for name, store in crew.items() if (found := await store.due(NOW, ["desk"], 20))
        }:  # all of them look before any of them claims
            for name, found in looks.items():
                answers = await crew[name].commit([claim(run.id, name) for run in found])
                taken += [answer.run_id for answer in answers if isinstance(answer, Head)]
                second += sum(not isinstance(answer, Head) for answer in answers)
        subject.close()

        assert sorted(taken) == [f"a{number:03}" for number in range(400)]
        assert second <= 40  # looking in the order of turns: 1,200

    asyncio.run(scene())


# ---------------------------------------------------------------- what a look costs


@on_each_version
def test_a_look_passes_what_is_due_a_few_times_and_not_once_for_each_of_it(stores: PostgresPlace) -> None:
    """Counted in its plan. It took half a second of every look among ten thousand, and no result told."""

    async def scene() -> None:
        store = await stores.open()
        subject = Subject(stores, store)
        await subject.write(worker("w0"), worker("w1"))
        for number in range(DUE):
            await subject.create(f"a{number:03}", due=1)
        subject.close()

    asyncio.run(scene())
    with psycopg.connect(stores.url) as connection:
        asked = b"EXPLAIN (ANALYZE, FORMAT JSON) " + SQL["due_apart"]
        answer = psycopg.RawCursor(connection).execute(asked, [NOW, '["desk"]', None, 20, "w0", False]).fetchone()

    assert answer is not None
    passed = sum(node["Actual Rows"] * node["Actual Loops"] for node in nodes(answer[0][0]["Plan"]))
    assert DUE < passed < 20 * DUE


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Return the nodes of a plan."""
    yield plan
    for below in plan.get("Plans", ()):
        yield from nodes(below)
