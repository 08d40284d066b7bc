"""One held run whose engine commits when it is told to, and a branch of it that rests as often as it is told."""

import asyncio
from types import SimpleNamespace
from typing import Any

import milepost as mp
from milepost.core import codec
from milepost.core import entries as e
from milepost.errors import Waiting
from milepost.runtime.branch import ToolStep
from milepost.runtime.session import Session
from milepost.stores.api import Append
from tests.core import samples as s
from tests.runtime.sessions import STEP, Engine, engine_of, held


class Committing(Engine):
    """An engine that commits when it is told to: what waits for a commit waits for a future."""

    def __init__(self) -> None:
        super().__init__()
        task = SimpleNamespace(uncancel=lambda: 0, cancelling=lambda: 0)
        self.resource = None
        self.deadlines = SimpleNamespace(set=lambda _: SimpleNamespace(passed=False, task=task), drop=lambda _: None)
        self.answer: Any = None
        self.waiting: list[asyncio.Future[Any]] = []
        self.holds = False
        self.works: list[Any] = []

    def durable(self, append: Append, **said: bool) -> Any:
        self.alone.append(said["alone"])
        self.appends.append(append)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self.holds:
            self.waiting.append(future)
        elif append.work is not None and self.answer is None:
            try:
                self.works.append(append.work("tx"))
                future.set_result(None)
            except Exception as error:  # noqa: BLE001  as the store does: it refuses the append with what was raised
                future.set_exception(error)
        elif self.answer is None:
            future.set_result(None)
        else:
            answer, self.answer = self.answer, None
            future.set_exception(answer)
        return future


class Line:
    """A branch that rests for the last time when it has nothing left to do."""

    def __init__(self, session: Session, *meanwhile: Any) -> None:
        self.session = session
        self.meanwhile = list(meanwhile)
        self.closed_by: str | None = None
        self.seen: list[Waiting] = []
        self.begun = self.barriers = 0

    def begin(self) -> None:
        self.begun += 1

    def answered(self, _: str) -> bool:
        return False

    def claim(self, step: Any) -> Any:
        return self.session.state.steps.get(step.id)

    async def barrier(self) -> None:
        self.barriers += 1
        self.session.unclaimed.clear()

    async def idle(self) -> None:
        self.seen.append(self.session.waits[STEP])
        self.meanwhile.pop(0)()


def committing(*entries: e.Entry, tool: Any, **about: Any) -> Any:
    session = held(*entries, tool=tool, **about)
    engine: Any = Committing()
    engine.sessions = {s.RUN: session}
    engine.store.local = "place"
    session.engine = engine
    return session


def tool_of(answer: Any = "done", **options: Any) -> Any:
    @mp.tool(**{"name": "charge", "effect": "keyed", "key_ttl": "1h", "version": "7", **options})
    async def act(order: str = "o-1") -> str:
        if isinstance(answer, BaseException):
            raise answer
        return str(answer)

    return act


def booking(answer: Any = "done", **options: Any) -> Any:
    @mp.tool(**{"name": "charge", "effect": "transactional", "version": "7", **options})
    def act(tx: mp.Tx, order: str = "o-1") -> str:
        assert str(tx) == "tx"
        if isinstance(answer, BaseException):
            raise answer
        return answer  # type: ignore[no-any-return]

    return act


def step_of(tool: Any, id_: str = STEP) -> Any:
    no_branch: Any = None
    return ToolStep(no_branch, tool, tool.arguments.bind(("o-1",), {}), id_, s.PATH)


def recorded(session: Session) -> list[e.Entry]:
    return [codec.decode(body) for append in engine_of(session).appends for body in append.entries]


def kinds(session: Session) -> list[str]:
    return [type(entry).__name__ for entry in recorded(session)]
