"""The one place from which a process writes: group commit, first in, first out.

The rule of output commit: a record is awaited only when the outside world is about to see something. `durable` is for
those (a `started`, an answer to a caller outside); `put` is for everything else. What was put is written with whatever
is awaited next, or after a moment, and always in the order in which it was put: so a `started` that is durable means
that all before it is durable too.

Where the store is far away and can be sent a batch without waiting (`depart`), at most one is under way, and what comes
meanwhile is written behind it.

What may go wrong. A refusal (a lost epoch, a switch, an identity that is taken) concerns one append and goes back to
its caller. A busy file wrote nothing, so the same batch is tried again, a few times. A commit that raised is unknown,
whatever it raised, and to go on without its batch would leave holes in records: everything that waits is told so, the
writer accepts nothing more, and the process has to reopen and read back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from milepost.errors import EpochLost, StoreBusy, StoreError, StoreFailed
from milepost.stores.api import Append, Create, Emit, Kill

if TYPE_CHECKING:
    from milepost.stores.api import Operation, Store

LAZY_S = 0.02
QUEUE_MAX = 2_000
BUSY_TRIES = 3
SLOW_COMMIT_S = 0.002
STUCK_S = 5.0

IN_A_ROW = 16
HALF_LEAST = 16

Refused = Callable[[Exception], None]
Queued = tuple["Operation", "asyncio.Future[Any] | None", "Refused | None"]


class Durable(asyncio.Future[Any]):
    """The future of a commit. It cannot be cancelled: a task that awaits it is cancelled when the answer is known."""

    def cancel(self, msg: Any | None = None) -> bool:  # noqa: ARG002  the form of Future.cancel
        """Refuse."""
        return False


class Writer:
    """Collects operations of all runs of a process and commits them together."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._queue: list[Queued] = []
        self._again: list[Queued] = []  # a batch that was sent, and not written: it is tried again before all others
        self._committing = False
        self._in_a_row = 0
        self._waiting = 0  # how many in the queue are waited for
        self._half = 0  # of so many the first are sent, when there are as many; 0 where they are not parted
        self._wake: asyncio.Future[None] | None = None
        self._lazy: asyncio.TimerHandle | None = None
        self._urgent = False
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self.failed: Exception | None = None
        self.on_failed: Callable[[Exception], None] | None = None
        self.on_written: Callable[[set[str]], None] | None = None
        self.tools_in_flight = 0
        self.turn = 0
        self._since = 0.0
        self._entries = 0
        self.commits = 0

    @property
    def stuck(self) -> bool:
        """Whether a commit has been under way for so long that it hangs: other than slow, or waiting for its turn."""
        return self._committing and asyncio.get_running_loop().time() - self._since > STUCK_S

    @property
    def closed(self) -> bool:
        """Whether it has written its last."""
        return self._task is None or self._task.done()

    def open(self) -> None:
        """Start writing."""
        self._task = asyncio.create_task(self._run(), name="milepost-writer")

    async def close(self) -> None:
        """Write what is queued, then stop."""
        self._closed = True
        self._hurry()
        if self._task is not None:
            await self._task

    def put(self, append: Append, refused: Refused) -> None:
        """Queue an append; `refused` is called if it is refused. Raises StoreFailed once the store has failed."""
        if self.failed is not None:
            raise self.failed
        self._queue.append((append, None, refused))
        self._entries += len(append.entries)
        if self._lazy is None:
            self._lazy = asyncio.get_running_loop().call_later(LAZY_S, self._late)

    def more(self, entries: int) -> None:
        """Count entries that were added to an append that is queued already."""
        self._entries += entries

    def durable(self, operation: Operation, *, alone: bool = False) -> asyncio.Future[Any]:
        """Queue an operation; the future is done when it and all before it is durable, with its answer or refusal.

        `alone` says that nothing else of this process is likely to have something to write: then the commit is made, or
        sent, at once, without a turn of the loop. One that is made has taken its time: now and then the loop gets its
        turn, for timers and messages.
        """
        if self.failed is not None:
            raise self.failed
        if self._task is not None and self._task.done():
            # Code that kept its cancellation to itself may end after that; what it asks for can never be answered.
            why = "this process has closed the store already, so nothing more is written. Start it again."
            raise StoreError(why)
        future = Durable()
        self._queue.append((operation, future, None))
        self._waiting += 1
        if alone and not self._committing and self._in_a_row < IN_A_ROW:
            self._in_a_row += 1
            self._now()
        else:
            self._in_a_row = 0
            self._hurry()
            if self._waiting == self._half and not self._committing:
                self._set_off()
        return future

    def _now(self, *, must: bool = False) -> None:
        batch = self._take()
        try:
            answers = self._store.commit_now([operation for operation, _, _ in batch], must=must)
        except StoreBusy:
            self._give_back(batch)  # nothing was written; the writer tries again, and counts
        except Exception as error:  # noqa: BLE001  it is told to all who wait
            self._fail(error, batch)
        else:
            if answers is not None:
                self._answer(batch, answers)
            elif not self._sent(batch):
                self._give_back(batch)

    def _set_off(self) -> None:
        if not self._sent(batch := self._take()):
            self._half = 0
            self._give_back(batch)

    def _sent(self, batch: list[Queued]) -> bool:
        """Send a batch without waiting, where the store does that; say whether it is dealt with."""
        operations = [operation for operation, _, _ in batch]
        try:
            self._committing = self._store.depart(operations, partial(self._landed, batch))
        except Exception as error:  # noqa: BLE001  it is told to all who wait
            self._fail(error, batch)
            return True
        self._since = asyncio.get_running_loop().time()
        return self._committing

    def _landed(self, batch: list[Queued], found: list[Any] | Exception) -> None:
        self._in_a_row = 0  # the loop had its turn
        if isinstance(found, StoreBusy):
            self._again = batch
            self._hurry()
            return  # and until it is written nothing overtakes it
        self._committing = False
        if isinstance(found, Exception):
            self._fail(found, batch)
        else:
            self._answer(batch, found)
            self._share(batch)
        if self._queue or self._closed:
            self._hurry()

    def _share(self, batch: list[Queued]) -> None:
        """Send the half of those who wait, where they are many: the others have their turns while it is under way.

        Else all would wait for the store, and then the store for all. Of few the store is not done sooner than of all.
        """
        half = (sum(future is not None for _, future, _ in batch) + self._waiting) // 2
        self._half = half if half >= HALF_LEAST else 0
        if self._half and self._waiting >= self._half:
            self._set_off()

    def _give_back(self, batch: list[Queued]) -> None:
        self._queue = batch
        self._entries = sum(len(operation.entries) for operation, _, _ in batch if type(operation) is Append)
        self._waiting = sum(future is not None for _, future, _ in batch)
        self.turn -= 1  # it was not taken after all: what a session counts by turns is still to be written
        self._hurry()

    def _take(self) -> list[Queued]:
        batch, self._queue = self._queue, []
        self._entries = self._waiting = 0
        self.turn += 1
        return batch

    async def room(self) -> None:
        """Wait while too much is queued: a run that never waits for the world must still wait for the disk."""
        while self._entries >= QUEUE_MAX and self.failed is None:
            self._hurry()
            await asyncio.sleep(0)

    @property
    def crowded(self) -> bool:
        """Whether a step should wait for room."""
        return self._entries >= QUEUE_MAX

    def write_now(self) -> None:
        """Write what is queued before this returns; only behind a thread's commit, or a busy file, a moment later."""
        if self._committing:
            self._hurry()
        else:
            self._now(must=True)

    def events(self, events: list[tuple[str, int, bytes]]) -> None:
        """Queue diagnostic events; they ride along with whatever is written next."""
        self._queue.append((Emit(events), None, None))
        if self._lazy is None and not self._closed:
            self._lazy = asyncio.get_running_loop().call_later(LAZY_S, self._late)

    def _late(self) -> None:
        # The timer is left standing when something urgent takes the queue along: cancelling it for each effect costs
        # more than a rare commit that is early.
        self._lazy = None
        if self._queue:
            self._hurry()

    def _hurry(self) -> None:
        self._urgent = True
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if not self._urgent:
                self._wake = loop.create_future()
                await self._wake
            self._urgent = False
            await self._write()
            if self._closed and not self._committing:
                if self._lazy is not None:
                    self._lazy.cancel()
                return

    async def _write(self) -> None:
        """Write what is queued, batch after batch, unless one is under way: then what is behind it waits for it."""
        while self._again or (self._queue and not self._committing):
            batch, self._again = self._again, []
            if not batch and self._sent(batch := self._take()):
                return
            self._committing, self._since = True, asyncio.get_running_loop().time()
            await self._commit(batch)
            self._committing = False

    async def _commit(self, batch: list[Queued]) -> None:
        operations = [operation for operation, _, _ in batch]
        try:
            answers = await self._try(operations)
        except Exception as error:  # noqa: BLE001  it is told to all who wait
            self._fail(error, batch)
        else:
            self._answer(batch, answers)

    def _answer(self, batch: list[Queued], answers: list[Any]) -> None:
        self.commits += 1
        for (_, future, refused), answer in zip(batch, answers, strict=True):
            if future is not None:
                if isinstance(answer, Exception):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)
            elif refused is not None and isinstance(answer, Exception):
                refused(answer)
        if self.on_written is not None:
            self.on_written(_written(batch, answers))

    async def _try(self, operations: list[Operation]) -> list[Any]:
        slow = getattr(self._store, "commit_seconds", 0.0) > SLOW_COMMIT_S
        for attempt in range(1, BUSY_TRIES + 1):
            try:
                return await self._store.commit(operations, threaded=slow and self.tools_in_flight > 0)
            except StoreBusy:
                if attempt == BUSY_TRIES:
                    raise
        raise AssertionError

    def _fail(self, error: Exception, batch: list[Any]) -> None:
        if isinstance(error, StoreFailed):
            self.failed = error
        else:
            self.failed = StoreFailed(str(error))
            self.failed.__cause__ = error
        waiting = [*batch, *self._queue]
        self._queue = []
        for _, future, refused in waiting:
            if future is not None and not future.done():
                future.set_exception(self.failed)
                future.exception()  # a caller that went away is no reason to complain at exit
            elif refused is not None:
                refused(self.failed)
        if self.on_failed is not None:
            self.on_failed(self.failed)


def _written(batch: list[Queued], answers: list[Any]) -> set[str]:
    """Return the runs to whose record a batch added something, or could not, since somebody else had added to it."""
    runs = set()
    for (operation, _, _), answer in zip(batch, answers, strict=True):
        if isinstance(answer, Exception) and not isinstance(answer, EpochLost):
            continue
        if type(operation) is Append:
            runs.add(operation.head.run_id)
        elif type(operation) is Create:
            runs.add(answer.id)
        elif type(operation) is Kill:
            runs.update(answer.runs)
    return runs
