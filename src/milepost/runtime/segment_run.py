"""What a segment sees of its run. Each recorded call takes its place when it is made."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import msgspec

from milepost.core import entries as e
from milepost.core.duration import Duration, from_ms, parse_ms, to_ms
from milepost.core.steps import ChildStart, ChildWait, Receive, Sleep, Value
from milepost.definitions.call import CURRENT
from milepost.definitions.queues import place
from milepost.definitions.run import Handle, Run
from milepost.definitions.values import Codec
from milepost.errors import InvalidValue, NestedStep, RunEnded, StepFailed, StrayTask, Waiting
from milepost.runtime import children
from milepost.runtime.branch import Branch, cancel_arms, settle_arms

if TYPE_CHECKING:
    from milepost.core.queues import Place
    from milepost.definitions.workflows import Workflow
    from milepost.runtime.session import Session

T = TypeVar("T")
R = TypeVar("R")

_instant: Codec[datetime] = Codec(datetime, "now()")
_number: Codec[float] = Codec(float, "random()")
_uuid: Codec[UUID] = Codec(UUID, "uuid()")
_anything: Codec[Any] = Codec(Any, "an event")


def _discard(given: Iterable[Awaitable[Any]]) -> None:
    """Close what was never begun because its arm was cancelled first: Python would warn about a forgotten await."""
    for one in given:
        if inspect.iscoroutine(one) and inspect.getcoroutinestate(one) == inspect.CORO_CREATED:
            one.close()


class SegmentRun(Run):
    """The run as its segments hold it."""

    def __init__(self, session: Session) -> None:
        self.id = session.run_id
        self.key = session.about.key
        self._session = session

    # ------------------------------------------------------------ recorded values

    def now(self) -> datetime:
        """Return the time (aware, UTC), recorded: the same again on re-entry."""
        return self._value("now", _instant, lambda: from_ms(self._session.engine.clock.now()))

    def random(self) -> float:
        """Return a random number in [0, 1), recorded."""
        return self._value("random", _number, self._session.engine.clock.chance)

    def uuid(self) -> UUID:
        """Return a random UUID, recorded."""
        return self._value("uuid", _uuid, self._session.engine.clock.uuid)

    def _value(self, kind: str, codec: Codec[T], make: Callable[[], T]) -> T:
        branch = self._branch(f"run.{kind}()")
        id_ = branch.take(f"run.{kind}()")
        record = branch.recorded(id_, Value, f"run.{kind}()")
        if record is not None:
            if record.kind != kind:
                raise branch.diverged(f"{branch.prefix}{id_}", f"run.{record.kind}()", f"run.{kind}()")
            return codec.read(bytes(record.value))
        data = codec.write(make())
        session = self._session
        session.put(e.ValueRecorded(at=session.engine.clock.now(), step=id_, kind=kind, value=msgspec.Raw(data)))
        return codec.read(data)

    # ------------------------------------------------------------ waiting

    def sleep(self, how_long: Duration | datetime) -> Awaitable[None]:
        """Wait for a span, or until a moment, across any restart."""
        branch = self._branch("run.sleep()")
        moment = isinstance(how_long, datetime)
        span = to_ms(how_long) if isinstance(how_long, datetime) else parse_ms(how_long)
        return self._sleep(branch, branch.take("run.sleep()"), span, moment=moment)

    async def _sleep(self, branch: Branch, id_: str, span: int, *, moment: bool) -> None:
        session = self._session
        record = branch.recorded(id_, Sleep, "run.sleep()")
        now = session.engine.clock.now()
        if record is None:
            session.put(e.SleepStarted(at=now, step=id_, until=span if moment else now + span))
            record = session.state.steps[id_]
        while not record.ended:
            now = session.engine.clock.now()
            if now >= record.until:
                session.put(e.SleepEnded(at=now, step=id_))
                return
            await session.parked(id_, Waiting("time"), branch.idle)

    def receive(self, name: str, kind: type[T], *, timeout: Duration | None = None) -> Awaitable[T | None]:  # type: ignore[override]
        """Wait for a signal of this name and return its value; None where `timeout` ends first."""
        branch = self._branch("run.receive()")
        codec: Codec[T] = Codec(kind, f"signal {name}")
        span = None if timeout is None else parse_ms(timeout)
        return self._receive(branch, branch.take("run.receive()"), name, codec, span)

    async def _receive(self, branch: Branch, id_: str, name: str, codec: Codec[T], span: int | None) -> T | None:
        session = self._session
        record: Receive | None = branch.recorded(id_, Receive, f"run.receive({name!r})")
        if record is None:
            now = session.engine.clock.now()
            until = None if span is None else now + span
            session.put(e.SignalAwaited(at=now, step=id_, name=name, until=until))
            record = session.state.steps[id_]  # type: ignore[assignment]
        assert record is not None
        if record.name != name:
            raise branch.diverged(f"{branch.prefix}{id_}", f"a wait for signal {record.name!r}", f"for {name!r}")
        while not record.taken:
            now = session.engine.clock.now()
            found = next((signal for signal in session.state.signals if signal.name == name), None)
            if found is not None:
                session.put(e.SignalReceived(at=now, step=id_, name=name, id=found.id, value=found.value))
            elif record.until is not None and now >= record.until:
                session.put(e.SignalReceived(at=now, step=id_, name=name, id=None, value=msgspec.Raw(b"null")))
            else:
                ask = f"milepost send {self.id} {name} VALUE"
                waiting = Waiting("signal", None, "" if record.until is not None else ask)
                await session.parked(id_, waiting, branch.idle)
        if record.id is None:
            return None
        try:
            return codec.read(await session.fetch(record.value))
        except InvalidValue as error:
            raise StepFailed(f"{branch.prefix}{name}", f"the signal does not fit: {error.why}") from error

    # ------------------------------------------------------------ arms

    def gather(self, *all: Awaitable[Any]) -> Awaitable[Any]:
        """Run several at once, each in a branch of its own, and return their results in order."""
        branch = self._branch("run.gather()")
        index = branch.take("run.gather()").rpartition(":")[2]
        return branch.join(self._gather(branch, index, all))

    async def _gather(self, branch: Branch, index: str, given: tuple[Awaitable[Any], ...]) -> Any:
        async def wait_for(one: Awaitable[Any]) -> Any:
            return await one

        tasks = [
            branch.spawn(branch.arm(f"{index}.{number}"), lambda one=one: wait_for(one))  # type: ignore[misc]
            for number, one in enumerate(given)
        ]
        try:
            results = await settle_arms(branch, tasks)
        finally:
            _discard(given)
        return tuple(results) if len(given) in {2, 3} else results

    def map(self, fn: Callable[[T], Awaitable[R]], items: Iterable[T], *, limit: int = 20) -> Awaitable[list[R]]:
        """Call `fn` on each item, `limit` at once, each in a branch of its own; settles as `gather` does."""
        branch = self._branch("run.map()")
        if limit < 1:
            msg = f"run.map(limit={limit}) could start nothing: give it one or more"
            raise ValueError(msg)
        index = branch.take("run.map()").rpartition(":")[2]
        return branch.join(self._map(branch, index, fn, list(items), limit))

    async def _map(
        self, branch: Branch, index: str, fn: Callable[[T], Awaitable[R]], items: list[T], limit: int
    ) -> list[R]:
        slots = asyncio.Semaphore(limit)
        tasks: list[asyncio.Task[Any]] = []

        async def one(item: T) -> R:
            try:
                return await fn(item)
            finally:
                slots.release()

        try:
            for number, item in enumerate(items):
                await slots.acquire()
                tasks.append(branch.spawn(branch.arm(f"{index}.{number}"), lambda item=item: one(item)))  # type: ignore[misc]
        except asyncio.CancelledError:
            await cancel_arms(tasks)
            raise
        return await settle_arms(branch, tasks)

    # ------------------------------------------------------------ children

    def start(
        self,
        workflow: Workflow[Any, R],
        input: Any = None,
        /,
        *,
        key: str | None = None,
        queue: str | None = None,
        priority: int = 0,
        group: str | None = None,
    ) -> Awaitable[Handle[R]]:
        """Start a child run. Awaiting its `result()` parks this run until the child ends."""
        branch = self._branch("run.start()")
        stands = place(queue or workflow.queue, priority, group, None)
        id_ = branch.take("run.start()")
        return self._start(branch, id_, workflow, input, key, stands)

    async def _start(
        self, branch: Branch, id_: str, workflow: Workflow[Any, R], given: Any, key: str | None, stands: Place
    ) -> Handle[R]:
        session = self._session
        data = workflow.input.write(given)
        digest = sha256(workflow.name.encode() + b"\0" + data).hexdigest()
        record: ChildStart | None = branch.recorded(id_, ChildStart, f"run.start({workflow.name})")
        if record is not None and (record.workflow, record.digest) != (workflow.name, digest):
            raise branch.diverged(
                f"{branch.prefix}{id_}",
                f"a child {record.workflow} ({record.digest[:12]})",
                f"{workflow.name} ({digest[:12]})",
            )
        if record is None:
            child = await children.create(session, id_, workflow, data, key, stands)
            now = session.engine.clock.now()
            session.put(e.ChildStarted(at=now, step=id_, child=child, workflow=workflow.name, digest=digest))
            record = session.state.steps[id_]  # type: ignore[assignment]
        assert record is not None
        return ChildHandle(self, record.child, workflow, own=record.child == children.identity(session, id_))

    def wait_child(self, child: str, workflow: Workflow[Any, R], *, own: bool) -> Coroutine[Any, Any, R]:
        """Wait for a child's result, as a recorded call."""
        branch = self._branch("handle.result()")
        return self._wait_child(branch, branch.take("handle.result()"), child, workflow, own=own)

    async def _wait_child(self, branch: Branch, id_: str, child: str, workflow: Workflow[Any, R], *, own: bool) -> R:
        session, look_at = self._session, 0
        if own:
            look_at = session.engine.clock.now() + children.OWN_POLL_MS
        record = branch.recorded(id_, ChildWait, "a wait for a child run")
        if record is None:
            session.put(e.ChildAwaited(at=session.engine.clock.now(), step=id_, child=child))
        elif record.child != child:
            raise branch.diverged(f"{branch.prefix}{id_}", f"a wait for run {record.child}", f"for run {child}")
        while child not in session.state.child_results:
            now = session.engine.clock.now()
            if now >= look_at:
                await children.look(session, child)
                look_at = now + (children.OWN_POLL_MS if own else children.POLL_MS)
            if child not in session.state.child_results:
                session.polls[id_] = look_at
                try:
                    await session.parked(id_, Waiting("child"), branch.idle)
                finally:
                    session.polls.pop(id_, None)
        ended = session.state.child_results[child]
        if ended.status != "done":
            raise StepFailed(f"{branch.prefix}{child}", f"child run {child} {ended.status}: {ended.why}")
        return workflow.result.read(await children.result(session, child, ended))

    # ------------------------------------------------------------ diagnostic

    def emit(self, event: object) -> None:
        """Send a diagnostic event to whoever follows the run. It decides nothing and may be lost."""
        self._session.engine.emit(self.id, {"kind": "event", "event": event})

    def progress(self, done: int, total: int | None = None, note: str = "") -> None:
        """Show how far the run is. Diagnostic, as `emit` is."""
        self._session.engine.emit(self.id, {"kind": "progress", "done": done, "total": total, "note": note})

    def _branch(self, what: str) -> Branch:
        caller = CURRENT.get()
        if isinstance(caller, Branch):
            if caller.session is not self._session:
                raise StrayTask(what)
            return caller
        inside = getattr(caller, "tool_name", None)
        if inside is not None:
            raise NestedStep(what, inside)
        raise StrayTask(what)


class ChildHandle(Handle[R]):
    """A child run, from its parent's segment: waiting for its result is a recorded call."""

    def __init__(self, run: SegmentRun, id_: str, workflow: Workflow[Any, R], *, own: bool) -> None:
        self.id = id_
        self._own = own
        self._run = run
        self._workflow = workflow

    def result(self, *, timeout: Duration | None = None) -> Coroutine[Any, Any, R]:
        """Wait for the child and return its result. Raises StepFailed where it ended without one."""
        if timeout is not None:
            msg = "inside a run a child is awaited without a timeout: give it a deadline, or race it with run.sleep()"
            raise ValueError(msg)
        return self._run.wait_child(self.id, self._workflow, own=self._own)

    async def status(self) -> Any:
        """Not recorded, and therefore refused inside a run."""
        msg = "a child's status is not recorded, so a segment must not depend on it: await result()"
        raise RunEnded(self.id, "status", msg)

    def events(self) -> Any:
        """Not recorded, and therefore refused inside a run."""
        msg = "a child's events are not recorded, so a segment must not depend on them: await result()"
        raise RunEnded(self.id, "events", msg)
