"""One held run without a worker around it: a session over a record, with an engine that queues and never commits."""

from typing import Any

import milepost as mp
from milepost.core import entries as e
from milepost.core.authority import Granted
from milepost.runtime.session import Session
from milepost.stores.api import Append, Head
from tests.core import samples as s
from tests.model.desk import Answer, Desk, Seat

NOW = 10_000
STEP, OTHER = s.STEP, ":1"


class Engine(Desk):
    """The engine of one session, which notes what it is asked for."""

    def __init__(self) -> None:
        super().__init__(Seat("worker-1", s.RUN, 1, NOW, NOW + 60_000, frozenset(), False), 60_000, None)
        self.linger_ms = 1_000
        self.settled = self.diverged = self.more_entries = 0
        self.alone: list[bool] = []
        self.told_of: list[Exception] = []

    def manifest_chunk(self, workflow: Any) -> tuple[str, bytes]:
        return f"manifest of {workflow}", b"{}"

    def settle_due(self, _: Session) -> None:
        self.settled += 1

    def diverged_waiting(self, _: Session) -> None:
        self.diverged += 1

    def more(self, entries: int) -> None:
        self.more_entries += entries

    def durable(self, append: Append, **said: bool) -> Answer:
        self.alone.append(said["alone"])
        return super().durable(append)

    def dropped(self, _: Session, error: Exception) -> None:
        self.told_of.append(error)


@mp.tool(effect="keyed", key_ttl="1h", version="1")
async def charge() -> str:
    return "ok"


@mp.tool(name="charge", effect="queryable", version="1")
async def asked() -> str:
    return "ok"


def held(*entries: e.Entry, tool: Any = charge, **about: Any) -> Session:
    """Return a session over a run that saw these entries."""
    engine: Any = Engine()
    session = Session(
        engine,
        Head(1, s.RUN, 1, 0, 0, b""),
        s.run(*entries),
        e.About("flow", "1", authority=Granted("bot", tenant="acme"), **about),
        None,
        {"charge": tool},
    )
    engine.sessions[s.RUN] = session
    return session


def engine_of(session: Session) -> Engine:
    engine: Any = session.engine
    assert isinstance(engine, Engine)
    return engine
