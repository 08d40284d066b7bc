"""What is held while a guarded agent runs: the attached run, its calls under way, and what it keeps in the record."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any
from weakref import WeakValueDictionary

import milepost as mp
from milepost.adapters import holding
from milepost.adapters.calls import sending
from milepost.adapters.foreign import foreign, through
from milepost.adapters.holding import Place
from milepost.adapters.saying import to_person
from milepost.adapters.threads import Threads

KEPT = "openai_agents.kept"
_NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


class Attached(holding.Attached):
    """What guarded agents work through; those who hold one key in one process share it.

    `waits` says by call id what a person is told of each call that waits.
    """

    def __init__(self, threads: Threads, key: str, run: mp.AttachedRun) -> None:
        super().__init__(threads, key, run)
        self.waits: dict[str, str] = {}
        self.sessions: dict[str, Any] = {}
        self.resuming: set[str] = set()

    def tool(self, name: str) -> mp.Tool[..., Any]:
        """Return a tool that the app lists. Raises InvalidDeclaration for another one."""
        tool = self.tools.get(name)
        if tool is None:
            raise mp.InvalidDeclaration(f"{name} is not listed by this app: make it with App(tools=listed(agent, …)).")
        return tool

    def waiting(self, call_id: str, outcome: mp.Waiting) -> mp.Parked:
        """Note that a call waits, and return the error that says so."""
        self.waits[call_id] = to_person(self.run.id, outcome)
        return mp.Parked(self.run.id, outcome)

    async def halt(self, error: mp.MilepostError) -> None:
        """Prepare to raise what a call cannot be made for: the SDK cancels what is under way beside one that raises."""
        await self.calls.others()
        if (turn := TURN.get()) is not None:
            turn.halted = error

    # ------------------------------------------------------------ runs of the SDK's own runner

    def begun_again(self) -> None:
        """Let what was asked outside `run` be asked in the same way again: nobody else tells how that came out."""
        if TURN.get() is None:
            self.questions.forget("")

    @contextmanager
    def told_again(self) -> Iterator[None]:
        """Do so where the block raises."""
        try:
            yield
        except BaseException:
            self.begun_again()
            raise

    # ------------------------------------------------------------ what is kept

    async def keep(self, name: str, value: Any) -> Any:
        """Keep a JSON value in the record under a name, once and for all; return what is kept."""

        async def value_of() -> Any:
            return value

        tool, arguments = self.tool(KEPT), {"name": name}
        with through(tool, sending(value_of), arguments):
            outcome = await self.run.attempt(name, tool, **arguments)
        if isinstance(outcome, mp.Confirmed):
            return outcome.value
        if isinstance(outcome, mp.Failed):
            raise mp.StepFailed(f"@{name}", outcome.why)
        raise mp.Parked(self.run.id, outcome)

    async def kept(self, name: str) -> Any:
        """Return what is kept under a name, None where nothing is."""
        outcome = await self.run.look(name, self.tool(KEPT), name=name)
        return outcome.value if isinstance(outcome, mp.Confirmed) else None


def keeping() -> mp.Tool[..., Any]:
    """Return the tool that what a host keeps is recorded as."""
    return foreign(KEPT, _NAME, effect="read", retry=mp.Retry(1))


_HELD: WeakValueDictionary[int, Attached] = WeakValueDictionary()  # each lives as long as somebody holds its run
_PLACE: Place[Attached] = Place("milepost_openai_agents")
attached = _PLACE.held
inside = _PLACE.inside


class Turn:
    """One run of a guarded agent, the call of it that could not go on, and what one could not be made for."""

    def __init__(self) -> None:
        self.id = uuid.uuid4().hex
        self.parked: mp.Parked | None = None
        self.halted: mp.MilepostError | None = None


TURN: ContextVar[Turn | None] = ContextVar("milepost_openai_agents_turn", default=None)


@asynccontextmanager
async def durable(threads: Threads, key: str) -> AsyncIterator[Attached]:
    """Run guarded agents durably, under `key`; elsewhere they run as they always do.

    After a kill or a pause, do the same under the same key: what is recorded is not done again. Raises RunHeld while
    another living process holds the key.
    """
    async with threads.attached(key) as run:
        held = _HELD.get(id(run)) or _HELD.setdefault(id(run), Attached(threads, key, run))
        with _PLACE.holding(held):
            yield held
