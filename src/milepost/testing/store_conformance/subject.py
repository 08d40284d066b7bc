"""The store that a conformance test puts to the proof, with short ways to write to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from milepost.core.chain import verify
from milepost.stores.api import (
    Append,
    Claim,
    Create,
    Created,
    Deliver,
    Head,
    Kill,
    Killed,
    NewRun,
    Operation,
    Post,
    Status,
    Store,
    Switch,
)

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)


class StoreFactory(Protocol):
    """Opens one place, new for each test, as often as it is asked: each opening stands for a process."""

    async def open(self) -> Store:
        """Open the place; the first opening creates it."""
        ...


class Subject:
    """One place with a store opened on it. Bodies of entries are opaque to a store, so the tests use short ones."""

    def __init__(self, factory: StoreFactory, store: Store) -> None:
        self.store = store
        self._factory = factory
        self._opened = [store]

    async def other(self) -> Store:
        """Open the place once more."""
        store = await self._factory.open()
        self._opened.append(store)
        return store

    def close(self) -> None:
        """Close every opening."""
        for store in self._opened:
            store.close()

    # ------------------------------------------------------------ writing

    async def write(self, *operations: Operation, store: Store | None = None) -> list[Any]:
        """Commit a batch; return its answers, refusals as errors."""
        return await (store or self.store).commit(operations)

    async def done(self, operation: Operation, *, store: Store | None = None) -> Any:
        """Commit one operation that must not be refused; return its answer."""
        (answer,) = await self.write(operation, store=store)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def create(self, run_id: str, *, store: Store | None = None, **facts: Any) -> Created:
        """Create a run, due at once."""
        known: dict[str, Any] = {
            "workflow": "desk",
            "version": "1",
            "digest": "d1",
            "entry": b"created " + run_id.encode(),
            "segment": "pay",
            "at": 1,
            "due": 1,
        }
        created: Created = await self.done(Create(NewRun(run_id, **{**known, **facts})), store=store)
        return created

    async def claim(
        self, run_id: str, owner: str = "worker-1", owner_was: str | None = None, *, store: Store | None = None
    ) -> Head:
        """Claim a run."""
        head: Head = await self.done(claim(run_id, owner, owner_was), store=store)
        return head

    async def held(self, run_id: str, owner: str = "worker-1", **facts: Any) -> Head:
        """Create a run and claim it."""
        await self.create(run_id, **facts)
        return await self.claim(run_id, owner)

    async def kill(self, run_id: str, *, store: Store | None = None, now: int = 99) -> Killed:
        """Kill a run and its descendants."""
        killed: Killed = await self.done(kill(run_id, now), store=store)
        return killed

    # ------------------------------------------------------------ reading

    async def bodies(self, run_id: str, *, store: Store | None = None) -> list[bytes]:
        """Return the bodies of a run's whole chain, after verifying it from its genesis to its head."""
        genesis, stored, head = await (store or self.store).chain(run_id)
        verify(run_id, genesis, 1, ((one.seq, one.body, one.hash) for one in stored), head.hash)
        if stored and (stored[-1].seq, len(stored)) != (head.seq, head.seq):
            raise AssertionError(f"the head names entry {head.seq}, {len(stored)} are stored")
        return [one.plain for one in stored]

    async def messages(self, run_id: str) -> list[bytes]:
        """Return the bodies of the messages that wait for a run."""
        return [body for _, body in await self.store.inbox(run_id)]


def append(head: Head, *bodies: bytes, **beside: Any) -> Append:
    """Return an append of these bodies."""
    return Append(head, list(bodies), beside.pop("at", 10), **beside)


def claim(run_id: str, owner: str = "worker-1", owner_was: str | None = None) -> Claim:
    """Return a claim whose entry names its epoch."""
    return Claim(run_id, owner, owner_was, 5, lambda epoch: f"claimed {epoch}".encode())


def kill(run_id: str, now: int = 99) -> Kill:
    """Return a kill whose entry names its epoch and what it leaves open, and which tells the parent."""
    return Kill(
        run_id,
        "runaway",
        now,
        lambda epoch, paths: f"killed {epoch} {','.join(paths)}".encode(),
        lambda parent: Post(parent, f"killed {run_id}", b"told", 99),
    )


def deliver(run_id: str, message_id: str, body: bytes = b"hello", at: int = 50) -> Deliver:
    """Return a message for a run."""
    return Deliver(Post(run_id, message_id, body, at))


def switch(scope: str, kind: str = "hold") -> Switch:
    """Return a switch on a scope."""
    return Switch(scope, kind, "found twice", "ann", 20)


def status(name: str, **facts: Any) -> Status:
    """Return a status."""
    return Status(name, 30, **facts)


def refused(answer: Any, kind: type[E]) -> E:
    """Return the error that refused an operation; AssertionError where it was not refused, or with another one."""
    if not isinstance(answer, kind):
        raise AssertionError(f"expected a refusal with {kind.__name__}, got {answer!r}")  # noqa: TRY004  a failed proof
    return answer


async def raised(doing: Coroutine[Any, Any, Any], kind: type[E]) -> E:
    """Return the error that a reading verb raised; AssertionError where it raised none."""
    try:
        answer = await doing
    except kind as error:
        return error
    raise AssertionError(f"expected {kind.__name__}, got {answer!r}")


def proves(test: Callable[[Any, Subject], Coroutine[Any, Any, None]]) -> Callable[[Any, StoreFactory], None]:
    """Turn an async test of a subject into one that pytest runs with the fixture `stores`."""

    def prove(self: Any, stores: StoreFactory) -> None:
        async def scene() -> None:
            subject = Subject(stores, await stores.open())
            try:
                await test(self, subject)
            finally:
                subject.close()

        asyncio.run(scene())

    prove.__name__, prove.__qualname__, prove.__doc__ = test.__name__, test.__qualname__, test.__doc__
    return prove
