"""Two processes that ask for the same thing at once: one after the other, as far as rules look at both."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from milepost.core.queues import Limit, Place
from milepost.stores.api import Claim, Head, Store
from milepost.stores.fleet import LimitReached
from milepost.stores.pools import PoolShort, Reserve, SetCeiling
from milepost.testing.store_conformance.subject import Subject, append, claim
from tests.stores.postgres.conftest import PostgresPlace

pytestmark = pytest.mark.parametrize("postgres_version", [15, 18], ids=lambda version: f"postgres-{version}")
ROUNDS = 15
TODAY = 20_786


def played(place: PostgresPlace, scene: Callable[[Subject, Store], Coroutine[Any, Any, None]]) -> None:
    """Play a scene with two processes."""

    async def play() -> None:
        subject = Subject(place, await place.open())
        await scene(subject, await subject.other())
        subject.close()

    asyncio.run(play())


def turn(run_id: str, limit: Limit) -> Claim:
    """Return a claim under a limit."""
    return replace(claim(run_id, f"worker of {run_id}"), limits=(limit,))


@pytest.mark.parametrize("limit", [Limit("mail", together=1), Limit("mail", starts=1, per_ms=1_000)])
def test_of_two_that_claim_under_a_limit_of_one_at_the_same_instant_one_is_turned_away(
    stores: PostgresPlace, limit: Limit
) -> None:
    async def scene(subject: Subject, other: Store) -> None:
        for number in range(ROUNDS):
            mine, theirs = f"a{number}", f"b{number}"
            for run_id in (mine, theirs):
                await subject.create(run_id, place=Place(f"mail-{number}"))
            here = replace(limit, queue=f"mail-{number}")
            answers = await asyncio.gather(
                subject.write(turn(mine, here)), subject.write(turn(theirs, here), store=other)
            )
            assert {type(one) for (one,) in answers} == {Head, LimitReached}, answers

    played(stores, scene)


def test_of_two_that_claim_the_same_runs_at_the_same_instant_each_run_has_one(stores: PostgresPlace) -> None:
    async def scene(subject: Subject, other: Store) -> None:
        runs = [f"a{number}" for number in range(ROUNDS)]
        for run_id in runs:
            await subject.create(run_id)
        mine, theirs = await asyncio.gather(
            subject.write(*(claim(run_id, "mine") for run_id in runs)),
            subject.write(*(claim(run_id, "theirs") for run_id in reversed(runs)), store=other),
        )
        won = [*(type(one) is Head for one in mine), *(type(one) is Head for one in theirs)]
        assert sum(won) == ROUNDS
        for run_id in runs:
            assert len(await subject.bodies(run_id)) == 2

    played(stores, scene)


def test_what_two_processes_reserve_of_one_pool_at_once_never_exceeds_its_ceiling(stores: PostgresPlace) -> None:
    """Requirement 72."""

    async def scene(subject: Subject, other: Store) -> None:
        heads = [await subject.held(f"a{number}") for number in range(6)]
        await subject.done(SetCeiling("total", "ever", {"usd": Decimal(ROUNDS)}, "a try", "ann", 20))

        async def spend(store: Store, some: list[Head]) -> list[Any]:
            answers: list[Any] = []
            for number in range(ROUNDS):
                asked = Reserve(f":{number}", {"usd": Decimal(1)}, ("total",), TODAY)
                answers += await store.commit([append(head, b"started", reserve=asked) for head in some])
            return answers

        answers = await asyncio.gather(spend(subject.store, heads[:3]), spend(other, heads[3:]))
        said = [answer for some in answers for answer in some]
        assert said.count(None) == ROUNDS
        assert {type(one) for one in said} == {type(None), PoolShort}
        (row,) = await subject.store.pools(TODAY)
        assert (row.reserved, row.spent) == (Decimal(ROUNDS), Decimal(0))

    played(stores, scene)
