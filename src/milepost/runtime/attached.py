"""An attached run: its control flow lives in a host, and each effect is named by the host's own id.

The host says what to do and when; the record says what has been done. A recorded id gives its recorded outcome. A *new*
id whose tool and arguments equal an earlier effect parks: the host has probably forgotten, and only the tool's author
(`repeatable=True`) or a person may say otherwise. Every return is an output, so it is durable first.

A host may make calls from several tasks at once. Each is a branch of its own, and is told of its own waiting alone:

  siblings    go on, whatever a call waits for, and are recorded; and none keeps a call that waits from returning
  one id      is attempted by one task at a time: who asks meanwhile gets the outcome of that attempt
  cancelled   one task's call is unknown, or was not sent; the others never hear of it
  boundary    only where it covers nothing that is unsettled, and no outcome that its own call has not picked up yet: a
              call that found its record gone would send again
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import msgspec

from milepost.core import entries as e
from milepost.core.steps import Effect, Read
from milepost.definitions.call import Confirmed, Failed, Outcome, Step
from milepost.definitions.run import AttachedRun, Recorded
from milepost.definitions.values import Codec
from milepost.errors import (
    Diverged,
    EpochLost,
    InvalidDeclaration,
    MilepostError,
    Parked,
    RunBlocked,
    RunEnded,
    RunHeld,
    StepFailed,
    Waiting,
)
from milepost.runtime import boundaries, checkpoints, driver, effects, lingering, resting, starting
from milepost.runtime.branch import Branch, ToolStep
from milepost.runtime.segment_run import SegmentRun
from milepost.runtime.session import Unloading
from milepost.stores import marks
from milepost.stores.api import Create

if TYPE_CHECKING:
    from milepost.core.authority import Granted
    from milepost.core.budget import Amounts
    from milepost.definitions.tools import Tool
    from milepost.runtime.engine import Engine
    from milepost.runtime.session import Session

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
STEPS_A_BOUNDARY = 100
TRIES = 40
LOOK_S = 0.05
PLACE = re.compile(r"@[:/](\d+)")  # of what is no call under an id of the host's, or of an arm
_anything: Codec[Any] = Codec(Any, "state of an attached run")


class MustWait(BaseException):
    """A call of an attached run has to wait."""

    def __init__(self, waiting: Waiting) -> None:
        super().__init__()
        self.waiting = waiting


class MayBegin(BaseException):
    """A call that is only looked at may begin now."""


class HostBranch(Branch):
    """One call of an attached run, or what the host does that is no call of a tool.

    Where another branch would rest, it tells the host what to wait for.
    """

    __slots__ = ("_call", "_looks")

    def __init__(self, session: Session, call: str | None = None, *, looks: bool = False) -> None:
        super().__init__(session, "@", effects.perform)
        self._call = call
        self._looks = looks

    def answered(self, step: str) -> bool:
        """Tell whether the record answers a call. It does so also where the run is about to end."""
        record = self.session.state.steps.get(step)
        return record is not None and _how_far(record) != "open"

    def begin(self) -> None:
        """Stop here if this only looks."""
        if self._looks:
            raise MayBegin

    async def idle(self) -> None:
        """Rest only while the call's own effect is being settled right now; else unwind the call."""
        session = self.session
        if not self._looks:
            session.engine.settle_due(session)
        if self._call is None:
            raise Parked(session.run_id, session.rest())
        if self._call in session.settlers and not self._looks:
            await session.nap()
            return
        raise MustWait(resting.of_step(session, self._call))

    def diverged(self, path: str, recorded: str, asked: str) -> Diverged:
        """Return the error for a record that is another call's. It concerns this call: the host's others go on."""
        return Diverged(path, recorded, asked)


@dataclass(slots=True)
class UnderWay:
    """A call that a task makes right now."""

    tool: str
    digest: str
    done: asyncio.Future[None]


class HostRun(SegmentRun, AttachedRun):
    """What the host holds."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.branch = HostBranch(session)
        taken = [int(place[1]) for step in session.state.steps if (place := PLACE.match(step))]
        self.branch.next = max(taken, default=-1) + 1  # not their number: those before the latest boundary are gone
        self._calls: dict[str, list[Any]] = {}
        self._under_way: dict[str, UnderWay] = {}
        self._user_state: Any = None
        self._waiting: set[str] = set()
        self.held_since = asyncio.get_running_loop().time()

    @property
    def session(self) -> Session:
        """The session that holds it."""
        return self._session

    @property
    def is_quiet(self) -> bool:
        """Whether nothing of it is open: then it may linger for a next call."""
        session = self._session
        gone = session.dropped or session.fatal or session.unloading or session.closing or session.state.ended
        return not (gone or self._waiting or self._under_way or session.state.unsettled()) and session.due() is None

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

    async def look(self, id: str, tool: Tool[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Outcome[R] | None:
        """Return what `attempt` would return without beginning anything, None where it would begin an attempt now."""
        try:
            outcome: Outcome[R] = await self._attempt(id, tool, tool.arguments.bind(args, kwargs), looks=True)
        except MayBegin:
            return None
        return outcome

    async def _attempt(self, id_: str, tool: Tool[..., Any], bound: Any, *, looks: bool = False) -> Any:
        session = self._session
        while (other := self._under_way.get(id_)) is not None:
            await asyncio.wait([other.done])
        mine = UnderWay(tool.name, bound.digest, asyncio.get_running_loop().create_future())
        self._under_way[id_] = mine
        session.busy += 1  # so that calls which are under way together are written together
        try:
            outcome = await self._outcome(id_, tool, bound, looks=looks)
            if isinstance(outcome, Waiting):
                self._waiting.add(id_)
            else:
                self._waiting.discard(id_)
        finally:
            session.busy -= 1
            del self._under_way[id_]
            mine.done.set_result(None)
        if len(session.state.steps) >= STEPS_A_BOUNDARY:
            await self._boundary_if_quiet()
        return outcome

    async def _outcome(self, id_: str, tool: Tool[..., Any], bound: Any, *, looks: bool) -> Any:
        session, path = self._session, f"@{id_}"
        if session.dropped is not None:
            raise session.dropped
        if session.fatal is not None:
            raise session.fatal
        earlier = self._calls.get(id_)
        if earlier is not None:
            return await self._recorded(id_, tool, bound, earlier)
        record = session.state.steps.get(path)
        if record is None or (type(record) is Effect and not record.open and not _over(record)):
            self._may_begin()
        if record is None:
            again = self._same_as_before(id_, tool, bound)
            if again is not None:
                ask = f"it equals {again}; give the same id, or declare the tool repeatable=True"
                return Waiting("person", None, ask)
        outcome = await self._performed(ToolStep(HostBranch(session, path, looks=looks), tool, bound, path, path))
        await session.durable()
        return outcome

    async def _performed(self, step: ToolStep) -> Any:
        session = self._session
        while True:
            try:
                return Confirmed(await effects.perform(step.branch, step))
            except StepFailed as failed:
                return Failed(failed.why)
            except MustWait as wait:
                known = len(session.taken)
                await driver.take_inbox(session)
                if len(session.taken) == known:
                    return wait.waiting
            except Unloading:
                return Waiting("switch", None, "this process is ending: attach to the run again, and give the same id")

    def _may_begin(self) -> None:
        """Raise RunEnded, or RunBlocked, where nothing new may begin. What is recorded is answered all the same."""
        state = self._session.state
        if state.ended:
            raise RunEnded(self.id, state.status, "it begins nothing new. Attach under another key.")
        if state.status == "blocked":
            raise RunBlocked(self.id, state.code, state.why)

    async def _recorded(self, id_: str, tool: Tool[..., Any], bound: Any, call: list[Any]) -> Any:
        _, name, digest, outcome, output = call
        if (name, digest) != (tool.name, bound.digest):
            raise self.branch.diverged(f"@{id_}", f"{name} ({digest[:12]})", f"{tool.name} ({bound.digest[:12]})")
        if outcome == "confirmed":
            data = await self._session.fetch(msgspec.Raw(msgspec.json.encode(output)))
            return Confirmed(tool.result.read(data))
        return Failed(str(output))

    def _same_as_before(self, own: str, tool: Tool[..., Any], bound: Any) -> str | None:
        """Return the call that this one equals, and whose effect may be in the world, None where there is none."""
        if tool.repeatable or tool.effect == "read":
            return None
        for id_, call in self._under_way.items():
            if id_ != own and (call.tool, call.digest) == (tool.name, bound.digest):
                return f"@{id_}"
        for record in self._session.state.effects():
            gone = record.outcome == "failed" and record.final  # else it is tried again, under its own id
            if (record.tool, record.digest) == (tool.name, bound.digest) and not gone:
                return record.step
        for id_, name, digest, outcome, _ in self._calls.values():
            if (name, digest) == (tool.name, bound.digest) and outcome != "failed":
                return f"@{id_}"
        return None

    def recorded(self, id: str) -> Recorded | None:
        """Tell how far the call under this id came; None for an id that was not used."""
        step = self._session.state.steps.get(f"@{id}")
        if step is not None:
            return _how_far(step)
        kept = self._calls.get(id)
        return None if kept is None else kept[3]

    def earlier(self, tool: Tool[P, R], /, *args: P.args, **kwargs: P.kwargs) -> tuple[str, Recorded] | None:
        """Return the id of an effect of this tool with equal arguments that has not failed, and how far it came."""
        same = (tool.name, tool.arguments.bind(args, kwargs).digest)
        found: dict[str, Recorded] = {one[0]: one[3] for one in self._calls.values() if (one[1], one[2]) == same}
        for record in self._session.state.effects():
            if (record.tool, record.digest) == same:
                found[record.step.removeprefix("@")] = _how_far(record)
        standing = [(id_, far) for id_, far in found.items() if far != "failed"]
        return max(reversed(standing), key=lambda one: one[1] == "open", default=None)

    async def checkpoint(self, state: object = None) -> None:
        """Write a checkpoint with the host's own state. Raises InvalidValue for a state that cannot be read back."""
        self._user_state = _anything.read(_anything.write(state))
        await self._boundary_if_quiet()

    async def _boundary_if_quiet(self) -> None:
        session = self._session
        if not all(_over(effect) for effect in session.state.effects()):
            return  # a boundary never covers an effect that is not settled; the next one will
        if any(f"@{id_}" in session.state.steps for id_ in self._under_way):
            return  # nor what its call is about to read
        state, root, chunks = self._placed()
        boundary = checkpoints.make_boundary(session, chunks, None, state, root)
        new = {digest: body for digest, body in chunks.items() if digest not in session.known_chunks}
        session.known_chunks = set(chunks)
        now = session.engine.clock.now()
        await session.durable(e.Checkpointed(at=now, boundary=boundary), boundary=0, chunks=new)

    def _placed(self) -> tuple[msgspec.Raw, str | None, dict[str, bytes]]:
        """Return how all that is known stands in a boundary: the outcome of each call, and the host's own state."""
        for step, record in self._session.state.steps.items():
            if type(record) is Effect and _over(record):
                self._note(step, record.tool, record.digest, record.outcome, record.result, record.why)
            elif type(record) is Read and record.status in {"returned", "failed"}:
                outcome = "confirmed" if record.status == "returned" else "failed"
                self._note(step, record.tool, record.digest, outcome, record.result, record.why)
        return starting.place_state(_anything.write({"calls": list(self._calls.values()), "state": self._user_state}))

    def _note(self, step: str, tool: str, digest: str, outcome: str, result: msgspec.Raw | None, why: str) -> None:
        output = msgspec.json.decode(result) if result is not None else why
        id_ = step.removeprefix("@")
        self._calls[id_] = [id_, tool, digest, outcome, output]

    async def finish(self, result: object = None) -> None:
        """End the run with a result. Its calls keep their outcomes, and none begins any more.

        Raises Parked while one is under way, or its outcome is not known.
        """
        session, data = self._session, _anything.write(result)
        under_way = [f"@{id_}" for id_ in self._under_way]
        if under_way:
            raise Parked(self.id, Waiting("unknown", None, f"await what is under way first: {', '.join(under_way)}"))
        if session.state.unsettled():
            raise Parked(self.id, session.rest())
        await boundaries.finish(session, data, None, self._placed())

    def _branch(self, what: str) -> Branch:  # noqa: ARG002  whatever it is, it takes its place in the one order of them
        self.branch.task = asyncio.current_task()
        return self.branch


def _over(effect: Effect) -> bool:
    """Say whether an effect has its outcome for good."""
    return effect.outcome == "confirmed" or (effect.outcome == "failed" and effect.final)


def _how_far(step: Any) -> Recorded:
    """Say how far a recorded call came."""
    if type(step) is Read:
        return "confirmed" if step.status == "returned" else "failed" if step.status == "failed" else "open"
    return step.outcome if _over(step) else "open"


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

    One that lingers here is gone on with under the epoch that it has. A client must not attach: it has no name, no lock
    and no lease, so nobody could tell when it is dead, and it trusts nobody. That raises InvalidDeclaration.
    """
    if not engine.worker:
        raise InvalidDeclaration("a client drives nothing: attach() where the app is not open, or in 'async with app'")
    run = await _whole(_lingering(engine, key))
    if run is not None:
        return run
    new = starting.new_run(
        engine, None, b"null", run_id=uuid.uuid4().hex[:20], key=key, authority=authority, budget=budget
    )
    created = await engine.writer.durable(Create(new))
    return await _claimed(engine, created.id)


async def detach(run: HostRun, key: str, linger_s: float = 0.0) -> None:
    """Give an attached run back when its host leaves, or let it linger for so many seconds."""
    session = run.session
    if not (linger_s and run.is_quiet and session.engine.lingering.keep(key, run, session, linger_s)):
        await lingering.give_back(session)


async def _lingering(engine: Engine, key: str) -> HostRun | None:
    """Return the run that lingers under a key, if it is still held here, with what has arrived for it meanwhile."""
    run = engine.lingering.take(key)
    if run is None:
        return None
    session = run.session
    try:
        row = await engine.store.run(run.id)
        if session.dropped is None and (row.epoch, row.owner) != (session.head.epoch, engine.worker):
            session.drop(EpochLost(run.id, session.head.epoch))
        if session.dropped is None:
            await driver.take_inbox(session)
    except EpochLost as error:
        session.drop(error)
    except BaseException:
        await lingering.give_back(session)
        raise
    return run if session.dropped is None else None


async def _claimed(engine: Engine, run_id: str) -> HostRun:
    """Claim a run once nobody holds it. A worker that settles it lets go soon; a host does not. Raises RunHeld.

    One that lingers elsewhere on this machine is given back when it is asked for. Who comes later than somebody that
    waits lets them go first.
    """
    local, asked = engine.store.local, False
    if marks.wanted(local, run_id):
        await asyncio.sleep(2 * LOOK_S)
    try:
        for _ in range(TRIES):
            row = await engine.store.run(run_id)
            if row.owner is None or any(w.id == row.owner and engine.gone(w) for w in await engine.store.holders()):
                with suppress(EpochLost):  # a worker was quicker, perhaps our own
                    return await _whole(_taken(engine, run_id, row.owner))
            marks.want(local, run_id)
            asked = True
            await asyncio.sleep(LOOK_S)
    finally:
        if asked:
            marks.wanted_no_more(local, run_id)
    raise RunHeld(run_id, (await engine.store.run(run_id)).owner or "another process")


async def _taken(engine: Engine, run_id: str, owner: str | None) -> HostRun:
    session = await driver.claim(engine, run_id, owner)
    try:
        run, state = HostRun(session), session.state
        data, session.known_chunks = await starting.state_bytes(engine, run_id, state.state, state.state_root)
        run.load(data)
        await driver.take_inbox(session)
    except BaseException:
        with suppress(MilepostError):
            await lingering.give_back(session)
        raise
    return run


async def _whole(taking: Coroutine[Any, Any, T]) -> T:
    """Let a run be taken in one piece: who is cancelled meanwhile would hold it, and nobody would ever give it back."""
    task = asyncio.ensure_future(taking)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with suppress(asyncio.CancelledError):  # once more: it is a few commits, and ends
                await asyncio.wait([task])
        if not task.cancelled() and task.exception() is None and isinstance(run := task.result(), HostRun):
            with suppress(MilepostError):
                await lingering.give_back(run.session)
        raise
