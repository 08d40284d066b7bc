"""What stands between a worker and its store while it is watched: it passes kill points, and it lets time pass.

Time passes in a leap: as soon as every run of the store rests and the first of them is due at a moment to come, the
clock is set to that moment. So a run that sleeps for a month, or a tool whose effects may show after a minute, costs a
test no time. The runtime's own short waits (it stays with what is due within a second) become rests too, and leap.

A worker that is watched is a process of its own that was forked for it and ends with it. Its store is the real one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from milepost.app import App
from milepost.errors import MilepostError
from milepost.runtime.engine import Engine
from milepost.stores.api import Append, Claim, Create, Deliver, Operation, Query, Store
from milepost.testing.crashing.points import Fuse, Labels

# What a leap cannot end: somebody has to do something.
FOR_SOMEBODY = frozenset({"approval", "authority", "budget", "person"})
EVERY_RUN = 10_000
# What a run writes that waits for an answer and does not get any.
STANDING = ("finding recorded", "run parked", "claimed")


class Leaps:
    """Knows which runs of a store rest, and until when; sets the clock forward once all of them do.

    `rested` is set when nothing moves any more without somebody, or when the clock leapt `most` times in a row and no
    run did anything but ask and rest.
    """

    def __init__(self, now: Callable[[], int], advance: Callable[[int], None], most: int) -> None:
        self.rested = asyncio.Event()
        self.worn_out = False
        self._now = now
        self._advance = advance
        self._most = self._left = most
        self._held: set[str] = set()
        self._due: dict[str, int | None] = {}
        self._for_somebody: set[str] = set()

    async def look(self, store: Store) -> None:
        """Read how every run stands: what a worker before this one left."""
        for row in await store.runs(Query(limit=EVERY_RUN)):
            (self._held.add if row.owner is not None else self._held.discard)(row.id)
            self._due[row.id] = row.due
            self._wait(row.id, row.reason if row.status == "parked" else None, row.ask)

    def follow(self, operations: Sequence[Operation], answers: Sequence[Any]) -> None:
        """Take note of what was written."""
        for operation, answer in zip(operations, answers, strict=True):
            if isinstance(answer, Exception):
                continue
            match operation:
                case Create(run=run) if answer.fresh:
                    self._due[run.id] = self._now()
                case Claim(run_id=run_id):
                    self._held.add(run_id)
                case Deliver(post=post) if answer:  # one that was known before moves nothing
                    self._due[post.run_id] = self._now()
                case Append(head=head, posts=posts, release=release, status=status):
                    for post in posts:
                        self._due[post.run_id] = self._now()
                    if release is not None:
                        self._held.discard(head.run_id)
                        self._due[head.run_id] = release[1]
                        if status is not None:
                            self._wait(head.run_id, status.reason, status.ask)
                case _:
                    pass

    def moved(self) -> None:
        """Take note that a run came further."""
        self._left = self._most

    def _wait(self, run_id: str, reason: str | None, ask: str | None) -> None:
        for_somebody = reason in FOR_SOMEBODY or (reason == "unknown" and bool(ask))
        (self._for_somebody.add if for_somebody else self._for_somebody.discard)(run_id)

    def leap(self, *, serve: bool = True) -> None:
        """Set the clock to the moment when the first run is due, if all of them rest until a moment to come.

        Where somebody could help now, they are asked first; `serve` is False when they could not.
        """
        now = self._now()
        due = [at for at in self._due.values() if at is not None]
        if self._held or any(at <= now for at in due):
            return
        if not due or (serve and self._for_somebody):
            self.rested.set()
        elif self._left:
            self._left -= 1
            self._advance(min(due) - now)
        else:
            self.worn_out = True
            self.rested.set()


class WatchedStore:
    """A store, every transaction of which is a kill point before and after it."""

    def __init__(self, store: Store, fuse: Fuse, leaps: Leaps) -> None:
        self._store = store
        self._fuse = fuse
        self._leaps = leaps
        self._labels = Labels()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, operations: Sequence[Operation], *, threaded: bool = False) -> list[Any]:
        """Commit a batch between its two kill points."""
        labels = self._labels.of(operations)
        self._fuse.before(labels)
        answers = await self._store.commit(operations, threaded=threaded)
        self._written(labels, operations, answers)
        if any(isinstance(operation, Create) for operation in operations):
            await self._leaps.look(self._store)
        self._leaps.leap()
        return answers

    def commit_now(self, operations: Sequence[Operation], *, must: bool = False) -> list[Any] | None:
        """Commit a batch at once, if the store does, between its two kill points."""
        labels = self._labels.of(operations)
        self._fuse.before(labels)
        answers = self._store.commit_now(operations, must=must)
        if answers is not None:
            self._written(labels, operations, answers)
            self._leaps.leap()
        return answers

    def depart(self, operations: Sequence[Operation], landed: Callable[[list[Any] | Exception], None]) -> bool:
        """Send a batch off, if the store does, between its two kill points."""
        labels = self._labels.of(operations)
        self._fuse.before(labels)

        def seen(found: list[Any] | Exception) -> None:
            if isinstance(found, list):
                self._written(labels, operations, found)
                self._leaps.leap()
            landed(found)

        return self._store.depart(operations, seen)

    def _written(self, labels: list[str], operations: Sequence[Operation], answers: Sequence[Any]) -> None:
        if not any(isinstance(answer, MilepostError) for answer in answers):
            self._fuse.after(labels)
            if any(not label.startswith(STANDING) for label in labels):
                self._leaps.moved()
        self._leaps.follow(operations, answers)


class WatchedApp(App):
    """An app whose store is watched, and whose runs rest also for what is due within a moment: only these can leap."""

    def __init__(self, store: str, fuse: Fuse, leaps: Leaps, **options: Any) -> None:
        super().__init__(store, **options)
        self._fuse = fuse
        self._leaps = leaps

    def _engine_over(self, store: Store, *, drives: bool) -> Engine:
        engine = super()._engine_over(WatchedStore(store, self._fuse, self._leaps), drives=drives)
        engine.linger_ms = -1
        return engine
