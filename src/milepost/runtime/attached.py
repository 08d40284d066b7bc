"""An attached run: its control flow lives in a host, and each effect is named by the host's own id.

The host says what to do and when; the record says what has been done. A recorded id gives its recorded outcome. A *new*
id whose tool and arguments equal an earlier effect parks: the host has probably forgotten, and only the tool's author
(`repeatable=True`) or a person may say otherwise. Every return is an output, so it is durable first.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import msgspec

from milepost.core import entries as e
from milepost.core.steps import Effect, Read
from milepost.definitions.call import Confirmed, Failed, Outcome, Step
from milepost.definitions.run import AttachedRun
from milepost.definitions.values import Codec
from milepost.errors import EpochLost, InvalidDeclaration, Parked, RunHeld, StepFailed, Waiting
from milepost.runtime import boundaries, checkpoints, driver, effects, starting
from milepost.runtime.branch import Branch, ToolStep
from milepost.runtime.segment_run import SegmentRun
from milepost.stores.api import Create

if TYPE_CHECKING:
    from milepost.core.authority import Granted
    from milepost.core.budget import Amounts
    from milepost.definitions.tools import Tool
    from milepost.runtime.engine import Engine
    from milepost.runtime.session import Session
    from milepost.stores.api import RunRow

P = ParamSpec("P")
R = TypeVar("R")
STEPS_A_BOUNDARY = 100
TRIES = 40
LOOK_S = 0.05
_anything: Codec[Any] = Codec(Any, "state of an attached run")


class MustWait(BaseException):
    """A call of an attached run has to wait."""

    def __init__(self, waiting: Waiting) -> None:
        super().__init__()
        self.waiting = waiting


class HostBranch(Branch):
    """The one branch of an attached run. Where another branch would rest, it tells the host what to wait for."""

    __slots__ = ()

    async def idle(self) -> None:
        """Rest only while something is being settled right now; else unwind the call."""
        session = self.session
        session.engine.settle_due(session)
        if session.settlers:
            await session.nap()
            return
        raise MustWait(session.rest())


class HostRun(SegmentRun, AttachedRun):
    """What the host holds."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.branch = HostBranch(session, "@", effects.perform)
        self.branch.next = sum(1 for step in session.state.steps if step.startswith("@:"))
        self._calls: dict[str, list[Any]] = {}
        self._user_state: Any = None

    def load(self, data: bytes) -> None:
        """Take over what earlier boundaries recorded: the outcomes of finished calls by id."""
        kept = _anything.read(data)
        if isinstance(kept, dict) and "calls" in kept:
            self._calls = {call[0]: call for call in kept["calls"]}
            self._user_state = kept.get("state")

    def call(self, id: str, tool: Tool[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Step[R]:
        """Call a tool under an id of the host; a recorded id gives its outcome. Raises Parked where it must wait."""
        bound = tool.arguments.bind(args, kwargs)
        return _Call(lambda: self._call(id, tool, bound), f"@{id}")

    async def _call(self, id_: str, tool: Tool[..., Any], bound: Any) -> Any:
        outcome = await self._attempt(id_, tool, bound)
        if isinstance(outcome, Confirmed):
            return outcome.value
        if isinstance(outcome, Failed):
            raise StepFailed(f"@{id_}", outcome.why)
        raise Parked(self.id, outcome)

    async def attempt(self, id: str, tool: Tool[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Outcome[R]:
        """Call a tool and return Confirmed, Failed or Waiting; never raises for waiting."""
        outcome: Outcome[R] = await self._attempt(id, tool, tool.arguments.bind(args, kwargs))
        return outcome

    async def _attempt(self, id_: str, tool: Tool[..., Any], bound: Any) -> Any:
        session = self._session
        if session.dropped is not None:
            raise session.dropped
        if session.fatal is not None:
            raise session.fatal
        earlier = self._calls.get(id_)
        if earlier is not None:
            return await self._recorded(id_, tool, bound, earlier)
        step = ToolStep(self.branch, tool, bound, f"@{id_}", f"@{id_}")
        if step.id not in session.state.steps:
            again = self._same_as_before(tool, bound)
            if again is not None:
                ask = f"it equals {again}; give the same id, or declare the tool repeatable=True"
                return Waiting("person", None, ask)
        return await self._perform(step)

    async def _perform(self, step: ToolStep) -> Any:
        session = self._session
        try:
            value = await self.branch.perform(self.branch, step)
        except MustWait as wait:
            await session.durable()
            return wait.waiting
        except StepFailed as failed:
            await session.durable()
            return Failed(failed.why)
        await session.durable()
        if len(session.state.steps) >= STEPS_A_BOUNDARY:
            await self._boundary_if_quiet()
        return Confirmed(value)

    async def _recorded(self, id_: str, tool: Tool[..., Any], bound: Any, call: list[Any]) -> Any:
        _, name, digest, outcome, output = call
        if (name, digest) != (tool.name, bound.digest):
            path = f"@{id_}"
            raise self.branch.diverged(path, f"{name} ({digest[:12]})", f"{tool.name} ({bound.digest[:12]})")
        if outcome == "confirmed":
            data = await self._session.fetch(msgspec.Raw(msgspec.json.encode(output)))
            return Confirmed(tool.result.read(data))
        return Failed(str(output))

    def _same_as_before(self, tool: Tool[..., Any], bound: Any) -> str | None:
        if tool.repeatable or tool.effect == "read":
            return None
        for record in self._session.state.effects():
            if (record.tool, record.digest) == (tool.name, bound.digest) and record.outcome != "failed":
                return record.step
        for id_, name, digest, outcome, _ in self._calls.values():
            if (name, digest) == (tool.name, bound.digest) and outcome != "failed":
                return f"@{id_}"
        return None

    async def checkpoint(self, state: object = None) -> None:
        """Write a checkpoint with the host's own state. Raises InvalidValue for a state that cannot be read back."""
        self._user_state = _anything.read(_anything.write(state))
        await self._boundary_if_quiet()

    async def _boundary_if_quiet(self) -> None:
        session = self._session
        if session.state.unsettled() or any(f.outcome == "not_started" for f in session.state.effects()):
            return  # a boundary never covers an effect that is not settled; the next one will
        for step, record in session.state.steps.items():
            if type(record) is Effect:
                self._note(step, record.tool, record.digest, record.outcome, record.result, record.why)
            elif type(record) is Read and record.status in {"returned", "failed"}:
                outcome = "confirmed" if record.status == "returned" else "failed"
                self._note(step, record.tool, record.digest, outcome, record.result, record.why)
        data = _anything.write({"calls": list(self._calls.values()), "state": self._user_state})
        state, root, chunks = starting.place_state(data)
        boundary = checkpoints.make_boundary(session, chunks, None, state, root)
        new = {digest: body for digest, body in chunks.items() if digest not in session.known_chunks}
        now = session.engine.clock.now()
        await session.durable(e.Checkpointed(at=now, boundary=boundary), boundary=0, chunks=new)
        session.known_chunks = set(chunks)

    def _note(self, step: str, tool: str, digest: str, outcome: str, result: msgspec.Raw | None, why: str) -> None:
        output = msgspec.json.decode(result) if result is not None else why
        id_ = step.removeprefix("@")
        self._calls[id_] = [id_, tool, digest, outcome, output]

    async def finish(self, result: object = None) -> None:
        """End the run with a result."""
        await boundaries.finish(self._session, _anything.write(result), None)

    def _branch(self, what: str) -> Branch:  # noqa: ARG002  an attached run has one branch, whatever is called
        self.branch.task = asyncio.current_task()
        return self.branch


class _Call(Step[Any]):
    """An awaitable call of an attached run."""

    __slots__ = ("_make", "path")

    def __init__(self, make: Callable[[], Coroutine[Any, Any, Any]], path: str) -> None:
        self._make = make
        self.path = path

    def __await__(self) -> Any:
        return self._make().__await__()


async def attach(engine: Engine, key: str, authority: Granted, budget: Amounts) -> HostRun:
    """Begin the attached run that `key` names, or take it up, under the next epoch. Raises RunHeld, Damaged.

    A client must not: it has no name, no lock and no lease, so nobody could tell when it is dead, and it trusts nobody.
    That raises InvalidDeclaration.
    """
    if not engine.worker:
        raise InvalidDeclaration("a client drives nothing: attach() where the app is not open, or in 'async with app'")
    new = starting.new_run(
        engine, None, b"null", run_id=uuid.uuid4().hex[:20], key=key, authority=authority, budget=budget
    )
    created = await engine.writer.durable(Create(new))
    row = await _unheld(engine, created.id)
    try:
        session = await driver.claim(engine, created.id, row.owner)
    except EpochLost as error:
        row = await engine.store.run(created.id)
        raise RunHeld(created.id, row.owner or "another process") from error
    run = HostRun(session)
    state = session.state
    data, session.known_chunks = await starting.state_bytes(engine, created.id, state.state, state.state_root)
    run.load(data)
    await driver.take_inbox(session)
    return run


async def detach(engine: Engine, run: HostRun) -> None:
    """Give an attached run back when its host leaves; a worker settles what is still unknown."""
    session = engine.sessions.pop(run.id, None)
    if session is None or session.dropped is not None:
        return
    due = engine.clock.now() if session.state.unsettled() else session.due()
    await boundaries.release(session, due)


async def _unheld(engine: Engine, run_id: str) -> RunRow:
    """Return a run's row once nobody holds it. A worker that settles it lets go soon; a host does not."""
    row = await engine.store.run(run_id)
    for _ in range(TRIES):
        if row.owner is None or any(w.id == row.owner and engine.gone(w) for w in await engine.store.holders()):
            return row
        await asyncio.sleep(LOOK_S)
        row = await engine.store.run(run_id)
    raise RunHeld(run_id, row.owner or "")
