"""Disks for the writer: busy, slow, far away or broken when a test says so."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from milepost.runtime.writer import Writer
from milepost.stores.api import Append, Head, Operation


class Disk:
    """Stands for a store: keeps the batches it was given, and fails as it was told, once for each error."""

    def __init__(self, *errors: Exception, slow: bool = False) -> None:
        self.errors = list(errors)
        self.slow = slow
        self.batches: list[list[Operation]] = []
        self.tries = 0
        self.threaded: list[bool] = []
        self.writes = asyncio.Event()
        self.writes.set()

    async def commit(self, operations: Sequence[Operation], *, threaded: bool = False) -> list[Any]:
        self.threaded.append(threaded)
        await self.writes.wait()
        return self._write(operations)

    def commit_now(self, operations: Sequence[Operation], *, must: bool = False) -> list[Any] | None:
        return None if self.slow and not must else self._write(operations)

    def depart(self, operations: Sequence[Operation], landed: Callable[[list[Any] | Exception], None]) -> bool:  # noqa: ARG002
        return False

    def _write(self, operations: Sequence[Operation]) -> list[Any]:
        self.tries += 1
        if self.errors:
            raise self.errors.pop(0)
        self.batches.append(list(operations))
        return [number for number, _ in enumerate(operations)]


class Far(Disk):
    """A store that is far away: a batch is under way until a test lets it land, written or with an error."""

    def __init__(self) -> None:
        super().__init__(slow=True)
        self.under_way: list[tuple[list[Operation], Callable[[list[Any] | Exception], None]]] = []

    def depart(self, operations: Sequence[Operation], landed: Callable[[list[Any] | Exception], None]) -> bool:
        self.under_way.append((list(operations), landed))
        return True

    @property
    def sizes(self) -> list[int]:
        return [len(operations) for operations, _ in self.under_way]

    def land(self, error: Exception | None = None) -> None:
        operations, landed = self.under_way.pop()
        landed(self._write(operations) if error is None else error)


class Answering(Disk):
    """A disk that answers as it was told."""

    def __init__(self, *answers: object) -> None:
        super().__init__()
        self.answers = answers

    def _write(self, operations: Sequence[Operation]) -> list[Any]:
        return [*self.answers][: len(operations)]


class Refusals(list[Exception]):
    """Collects what appends are refused with."""


def append(*bodies: bytes) -> Append:
    return Append(Head(1, "run-1", 1, 0, 0, b""), list(bodies), 0)


def writing(disk: Disk) -> Writer:
    writer = Writer(disk)  # type: ignore[arg-type]  # of a store it needs these three methods
    writer.open()
    return writer
