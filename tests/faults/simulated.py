"""Simulated time, and processes of Milepost that live in it.

An event loop whose clock jumps: where a real loop would wait for its next timer, this one sets the time forward and
goes on. All loops of one `Time` share it, and only one runs at any moment, for as long as a test says: so a test
decides which process moves, one turn of its loop at a time if it likes, and a process that is not moved is frozen, as
SIGSTOP freezes one.

A process here is what a real one is: connections of its own, an engine, a worker, a lock file. It dies by being
dropped: nothing of it is ever written again, and its lock is gone, as the kernel would drop it.
"""

import asyncio
import os
import selectors
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from contextvars import copy_context
from typing import Any, TypeVar

import milepost as mp
from milepost.core.lease import renew_every_ms
from milepost.errors import StoreFailed
from milepost.runtime import locks, starting
from milepost.runtime.engine import Engine
from milepost.runtime.worker import Worker
from milepost.stores.api import Create, Operation
from milepost.stores.sqlite.store import SqliteStore
from milepost.testing.manual_clock import ManualClock

T = TypeVar("T")
TURNS_TO_DIE = 200


class Time(ManualClock):
    """The time of the simulation, which the loops set forward. A clock for the runtime."""

    def __init__(self, seed: int = 0, passed_s: float = 0.0) -> None:
        super().__init__(seed=seed)
        self.passed_s = passed_s

    def now(self) -> int:
        return super().now() + int(self.passed_s * 1000 + 1e-6)


class _Jumping(selectors.PollSelector):
    def __init__(self, time: Time) -> None:
        super().__init__()
        self._time = time

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "a simulated process waits for nothing that could ever come"
            self._time.passed_s += max(
                1e-9, timeout
            )  # a timer that is due but for a rounding must not hold the time up
        return ready


class Loop(asyncio.SelectorEventLoop):
    """An event loop in simulated time."""

    def __init__(self, time: Time) -> None:
        self._simulated = time
        super().__init__(_Jumping(time))

    def time(self) -> float:
        return self._simulated.passed_s


class MortalStore(SqliteStore):
    """A store of a process: once that is dead, nothing is written through it. `on_commit` hears of every batch."""

    dead = False
    on_commit: Callable[[Sequence[Operation], list[Any]], None] | None = None

    async def commit(self, operations: Sequence[Operation], *, threaded: bool = False) -> list[Any]:  # noqa: ARG002
        return self._now(operations)

    def commit_now(self, operations: Sequence[Operation], *, must: bool = False) -> list[Any] | None:  # noqa: ARG002
        return self._now(operations)

    def _now(self, operations: Sequence[Operation]) -> list[Any]:
        if self.dead:
            raise StoreFailed("this process is dead")
        answers = self._commit(operations)
        if self.on_commit is not None:
            self.on_commit(operations, answers)
        return answers

    def renew(self, worker: str, until: int) -> None:
        if not self.dead:
            super().renew(worker, until)


class _OneTurn:
    """Stands for the event that ends the lease's thread: it lets one renewal through."""

    def __init__(self) -> None:
        self._asked = 0

    def wait(self, _: float) -> bool:
        self._asked += 1
        return self._asked > 1


class Threads:
    """Threads in simulated time: a `def` tool begins after as many seconds as `late` says, and cannot be cancelled."""

    def __init__(self, late: Callable[[], float]) -> None:
        self._late = late
        self.waiting = 0
        self._then: Callable[[], None] | None = None

    def start(
        self,
        loop: asyncio.AbstractEventLoop,
        fn: Callable[[], Any],
        finished: Callable[[Any, BaseException | None], None],
    ) -> None:
        context = copy_context()

        def run() -> None:
            self.waiting -= 1
            if self._then is not None and not self.waiting:
                loop.call_soon(self._then)
            try:
                value = context.run(fn)
            except Exception as error:  # noqa: BLE001  as a thread would hand it over
                finished(None, error)
            else:
                finished(value, None)

        self.waiting += 1
        loop.call_later(self._late(), run)

    def when_quiet(self, then: Callable[[], None]) -> None:
        if self.waiting:
            self._then = then
        else:
            then()

    def close(self) -> None:
        return


class Process:
    """One process that drives runs."""

    def __init__(
        self,
        store: MortalStore,
        time: Time,
        resources: Mapping[type[Any], object],
        workflows: Sequence[mp.Workflow[Any, Any]],
        *,
        lease_ms: int = 30_000,
        poll_s: float = 0.1,
    ) -> None:
        self.store = store
        self.time = time
        self.loop = Loop(time)
        self.alive = True

        self.engine = Engine(
            store,
            workflows=workflows,
            resources={kind: opening(resource) for kind, resource in resources.items()},
            secrets=lambda name: name,
            clock=time,
            lease_ms=lease_ms,
        )
        self.worker = Worker(self.engine, poll_s=poll_s)
        self.do(self.engine.open(drives=True))
        self._no_thread()
        self._working = self.loop.create_task(self.worker.run())

    def _no_thread(self) -> None:
        """Renew the lease from the loop, at the simulated moments, by what the thread would have called."""
        self.engine._stop_renewing.set()
        thread, self.engine._renewing = self.engine._renewing, None
        assert thread is not None
        thread.join()
        every_s = renew_every_ms(self.engine.lease_ms) / 1000

        def renew() -> None:
            ended, self.engine._stop_renewing = self.engine._stop_renewing, _OneTurn()  # type: ignore[assignment]
            self.engine._renew()
            self.engine._stop_renewing = ended
            self._renewal = self.loop.call_later(every_s, renew)

        self._renewal = self.loop.call_later(every_s, renew)

    # ------------------------------------------------------------ moving

    def do(self, what: Coroutine[Any, Any, T]) -> T:
        """Let the process run until this is done."""
        return self.loop.run_until_complete(what)

    def turns(self, count: int) -> None:
        """Let the process run for some turns of its loop, in no time."""

        async def some() -> None:
            for _ in range(count):
                await asyncio.sleep(0)

        self.do(some())

    def lasts(self, ms: int) -> None:
        """Let the process run for some time."""
        self.do(asyncio.sleep(ms / 1000))

    # ------------------------------------------------------------ beginning and ending

    def start(self, workflow: mp.Workflow[Any, Any], given: Any, *, key: str, **options: Any) -> str:
        """Start a run, or find the one of this key."""
        engine = self.engine
        new = starting.new_run(
            engine,
            workflow,
            workflow.input.write(given),
            run_id=self.time.uuid().hex[:20],
            key=key,
            authority=mp.Authority("ann", scopes=options.get("scopes", ())).granted(self.time.now()),
            budget=options.get("budget", {}),
            tags=None,
            deadline=None,
        )
        created = self.do(self.write(Create(new)))
        return str(created.id)

    async def write(self, operation: Operation) -> Any:
        """Commit one operation durably, and look for work."""
        answer = await self.engine.writer.durable(operation)
        self.engine.woken.set()
        return answer

    def leave(self) -> None:
        """End in good order."""

        async def leaving() -> None:
            await self.worker.drain()
            with suppress(mp.StoreError):
                await self._working
            await self.engine.close()

        self.do(leaving())
        self._end()

    def die(self) -> None:
        """End as a killed process ends: whatever it had not written is never written, and its lock is gone."""
        self._end()

    def _no_more(self) -> None:
        """Unwind what is still going on, so that nothing of it is left to the collector; none of it is written."""
        self.store.dead = True
        self.engine.writer._fail(StoreFailed("this process is dead"), [])
        for _ in range(TURNS_TO_DIE):
            left = [task for task in asyncio.all_tasks(self.loop) if not task.done()]
            if not left:
                return
            for task in left:
                task.cancel()
            self.turns(1)
        raise AssertionError(f"these tasks do not end: {asyncio.all_tasks(self.loop)}")

    def _end(self) -> None:
        self.alive = False
        self._renewal.cancel()
        self._no_more()
        held = locks._held.pop(str(locks.folder_of(self.store.place) / f"{self.engine.worker}.lock"), None)
        if held is not None:  # as the kernel closes what a process leaves open
            os.close(held)
        self.loop.close()
        self.store.close()


def opening(resource: T) -> Callable[[], AbstractAsyncContextManager[T]]:
    """Return how an app opens a resource that is there already."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[T]:
        yield resource

    return opened


def now(what: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine returns that waits for nothing: every question to the embedded store is such a one."""
    try:
        what.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    what.close()
    raise AssertionError("it waits")
