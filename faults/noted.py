"""A worker that notes which attempts its store has acknowledged: nothing else may have been sent.

What is in the file after a failed sync says nothing of that, since a doubtful record may have come through. So each
acknowledgement is noted beside the store, by a plain write, before anybody hears of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import milepost as mp
from milepost.core import codec
from milepost.core import entries as e
from milepost.runtime.engine import Engine
from milepost.stores.api import Append, Operation, Store

NOTES = "acknowledged"


class Sent(Protocol):
    """What left: one request, by the key and the number of its attempt."""

    @property
    def key(self) -> str:
        """The key of its effect."""
        ...

    @property
    def attempt(self) -> int:
        """The number of its attempt."""
        ...


class NotedStore:
    """A store that notes the attempts whose `started` it has acknowledged."""

    def __init__(self, store: Store, notes: Path) -> None:
        self._store = store
        self._notes = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._keys: dict[tuple[str, str], str] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, operations: Sequence[Operation], *, threaded: bool = False) -> list[Any]:
        """Commit a batch, and note what was acknowledged."""
        answers = await self._store.commit(operations, threaded=threaded)
        self._note(operations, answers)
        return answers

    def commit_now(self, operations: Sequence[Operation], *, must: bool = False) -> list[Any] | None:
        """Commit a batch at once, if the store does, and note what was acknowledged."""
        answers = self._store.commit_now(operations, must=must)
        if answers is not None:
            self._note(operations, answers)
        return answers

    def depart(self, operations: Sequence[Operation], landed: Callable[[list[Any] | Exception], None]) -> bool:
        """Send a batch off, if the store does, and note what was acknowledged."""

        def noted(found: list[Any] | Exception) -> None:
            if isinstance(found, list):
                self._note(operations, found)
            landed(found)

        return self._store.depart(operations, noted)

    def _note(self, operations: Sequence[Operation], answers: Sequence[Any]) -> None:
        for operation, answer in zip(operations, answers, strict=True):
            if isinstance(operation, Append) and not isinstance(answer, Exception):
                for body in operation.entries:
                    self._note_entry(operation.head.run_id, codec.decode(body))

    def _note_entry(self, run_id: str, entry: e.Entry) -> None:
        plan = entry.plan if isinstance(entry, e.EffectStarted) else entry
        if isinstance(plan, e.EffectPlanned):
            self._keys[run_id, plan.step] = plan.key
        if isinstance(entry, e.EffectStarted):
            os.write(self._notes, f"{self._keys[run_id, entry.step]} {entry.attempt}\n".encode())


class NotedApp(mp.App):
    """An app over such a store."""

    def _engine_over(self, store: Store, *, drives: bool) -> Engine:
        noted: Any = NotedStore(store, Path(store.place).with_name(NOTES))
        return super()._engine_over(noted, drives=drives)


def unacknowledged(folder: Path, sent: Iterable[Sent]) -> list[str]:
    """Return what was sent though no store had acknowledged that it began, by key and attempt."""
    notes = folder / NOTES
    known = set(notes.read_text().splitlines()) if notes.exists() else set()
    return sorted({f"{one.key} {one.attempt}" for one in sent} - known)
