"""What an App tells those who watch: which runs' records grew in this process, once that is durable.

It is a hint and no more: whoever is told reads the record. An observer can neither slow nor fail a run. It is called
between two turns of the event loop and must return at once; what it raises is logged.
"""

from __future__ import annotations

import logging
import uuid
from abc import ABC
from typing import Protocol

import msgspec

from milepost.errors import InvalidDeclaration
from milepost.operations.inspection import Inspector
from milepost.runtime.engine import Engine
from milepost.stores.api import Emit

log = logging.getLogger("milepost")


class Telling(msgspec.Struct):
    """The diagnostic event that says which process tells `what` of a run."""

    kind: str = ""
    what: str = ""
    by: str = ""


class Sight(Inspector):
    """What an observer reads by, and where it takes upon itself what only one process is to tell."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine.store)
        self._engine = engine
        self._name = uuid.uuid4().hex

    async def killed_within(self, milliseconds: int) -> list[str]:
        """Return the runs that were killed not longer ago than this, the latest first, a thousand at most."""
        return await self._store.killed_since(self._engine.clock.now() - milliseconds)

    async def teller(self, run_id: str, what: str) -> str | None:
        """Return the name of the process that has said first that it tells this of a run, None where none has."""
        events = await self._store.events(run_id, 0)
        while events:
            for _, _, body in events:
                said = _said(body)
                if (said.kind, said.what) == ("telling", what):
                    return said.by
            events = await self._store.events(run_id, events[-1][0])
        return None

    async def first_to_tell(self, run_id: str, what: str) -> bool:
        """Say that this process tells something of a run; return whether it is the first. Asked again it says the same.

        It is a diagnostic event like others: where it is deleted, something may be told again. On PostgreSQL two
        processes that say so in the same instant may both take themselves for the first.
        """
        if await self.teller(run_id, what) is None:
            body = msgspec.json.encode(Telling("telling", what, self._name))
            saying = Emit([(run_id, self._engine.clock.now(), body)])
            if self._engine.writer.closed:  # the app is being closed: nobody else writes any more
                await self._store.commit([saying])
            else:
                await self._engine.writer.durable(saying)
        return await self.teller(run_id, what) == self._name


def _said(body: bytes) -> Telling:
    try:
        return msgspec.json.decode(body, type=Telling)
    except msgspec.MsgspecError:
        return Telling()  # an event of the run's own, of any form


class Observer(Protocol):
    """Who watches what an App writes."""

    def opened(self, read: Sight, worker: str) -> None:
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

    def observe(self, observer: Observer, /) -> None:
        """Tell `observer` which runs' records grow in this process. Raises InvalidDeclaration once the app is open."""
        if self._engine is not None:
            why = "observe(…) comes too late: the app is open. Call it before 'async with app'."
            raise InvalidDeclaration(why)
        self._observers = (*self._observers, observer)

    def _observed(self, engine: Engine) -> None:
        if self._observers:
            for observer in self._observers:
                observer.opened(Sight(engine), engine.worker)
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
