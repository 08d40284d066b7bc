"""Opening a store that exists, and acting on it without an App."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from milepost.app import open_store
from milepost.errors import MilepostError, UnknownRun
from milepost.operations.verbs import Operator

if TYPE_CHECKING:
    from milepost.stores.api import Operation, Store

T = TypeVar("T")
SYSTEM = "system"


def now_ms() -> int:
    """Return the wall time in milliseconds since 1970 UTC."""
    return time.time_ns() // 1_000_000


@contextmanager
def opened(url: str) -> Iterator[Store]:
    """Open a store that exists. Raises StoreMissing, NotAStore, NewerSchema, StoreBusy."""
    store = open_store(url)
    try:
        yield store
    finally:
        store.close()


def wait_for(work: Coroutine[Any, Any, T]) -> T:
    """Run what a command has to wait for: the one bridge from click's plain functions."""
    return asyncio.run(work)


def writing(store: Store) -> Callable[[Operation], Awaitable[Any]]:
    """Return what commits one operation at once, and raises what refused it."""

    async def write(operation: Operation) -> Any:
        answer = (await store.commit([operation]))[0]
        if isinstance(answer, MilepostError):
            raise answer
        return answer

    return write


def operator(store: Store) -> Operator:
    """Return the verbs over a store: each is one operation, committed at once."""
    return Operator(store, writing(store), store.wall)


async def find_run(store: Store, prefix: str) -> str:
    """Return the run that an id, or its beginning, means. Raises UnknownRun, also for the store's own journal."""
    if not prefix:
        raise UnknownRun(prefix)
    run_id = await store.resolve_id(prefix)
    if run_id == SYSTEM:
        raise UnknownRun(prefix)
    return run_id
