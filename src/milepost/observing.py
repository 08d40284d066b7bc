"""What an App tells those who watch: which runs' records grew in this process, once that is durable.

It is a hint and no more: whoever is told reads the record. An observer can neither slow nor fail a run. It is called
between two turns of the event loop and must return at once; what it raises is logged.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import Protocol

from milepost.errors import InvalidDeclaration
from milepost.operations.inspection import Inspector
from milepost.runtime.engine import Engine

log = logging.getLogger("milepost")


class Observer(Protocol):
    """Who watches what an App writes."""

    def opened(self, read: Inspector, worker: str) -> None:
        """The app is open. Its store is read by `read` until `closing` has returned; a client's `worker` is empty."""
        ...

    def appended(self, run_ids: set[str]) -> None:
        """The records of these runs grew. Return at once."""
        ...

    async def closing(self) -> None:
        """Nothing more is written; what was not looked at yet can be read for the last time."""
        ...


class Observing(ABC):
    """How an App is watched."""

    _observers: tuple[Observer, ...] = ()
    _engine: Engine | None

    @property
    @abstractmethod
    def inspect(self) -> Inspector:
        """The read API over this app's store."""

    def observe(self, observer: Observer, /) -> None:
        """Tell `observer` which runs' records grow in this process. Raises InvalidDeclaration once the app is open."""
        if self._engine is not None:
            why = "observe(…) comes too late: the app is open. Call it before 'async with app'."
            raise InvalidDeclaration(why)
        self._observers = (*self._observers, observer)

    def _observed(self, engine: Engine) -> None:
        if self._observers:
            for observer in self._observers:
                observer.opened(self.inspect, engine.worker)
            engine.writer.on_written = self._appended

    def _appended(self, run_ids: set[str]) -> None:
        for observer in self._observers if run_ids else ():
            try:
                observer.appended(run_ids)
            except Exception:
                log.exception("an observer failed; runs go on")

    async def _unobserved(self) -> None:
        for observer in self._observers:
            try:
                await observer.closing()
            except Exception:
                log.exception("an observer failed while the app was closed")
