"""How many statements a batch takes: what is asked for each of many runs is asked for all of them at once."""

import asyncio

import pytest

from milepost.stores.api import Post
from milepost.stores.postgres.store import PostgresStore
from milepost.testing.store_conformance.subject import Subject, append
from tests.stores.postgres.conftest import PostgresPlace

pytestmark = pytest.mark.parametrize("postgres_version", [18], ids=lambda version: f"postgres-{version}")
MANY = 20


def statements(store: PostgresStore) -> int:
    """Return how many statements the latest batch took."""
    assert store._line._wire is not None
    return store._line._wire._sent


def test_who_tells_many_runs_something_asks_for_their_numbers_at_once(stores: PostgresPlace) -> None:
    async def scene() -> None:
        store = await stores.open()
        subject = Subject(stores, store)
        head = await subject.held("a1")
        for number in range(MANY):
            await subject.create(f"b{number}")
        taken: list[int] = []
        for name, count in (("first", 1), ("prepared", 1), ("all", MANY)):
            posts = tuple(Post(f"b{number}", name, b"hello", 50) for number in range(count))
            await subject.done(append(head, name.encode(), posts=posts))
            taken.append(statements(store))
        told = [await store.inbox(f"b{number}") for number in range(MANY)]
        subject.close()

        assert [len(messages) for messages in told] == [3, *[1] * (MANY - 1)]
        assert taken[2] - taken[1] == 2 * (MANY - 1)  # the message, and that it makes its run due

    asyncio.run(scene())


def test_what_follows_for_runs_without_more_is_four_statements_whatever_their_number(stores: PostgresPlace) -> None:
    async def scene() -> None:
        store = await stores.open()
        subject = Subject(stores, store)
        heads = [await subject.held(f"a{number}") for number in range(MANY)]
        await subject.write(*(append(head, b"before") for head in heads))
        taken: list[int] = []
        for some in (heads[:1], heads):
            await subject.write(*(append(head, b"one", b"two") for head in some))
            taken.append(statements(store))
        subject.close()

        assert taken == [4, 4]

    asyncio.run(scene())
