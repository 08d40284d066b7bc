"""Branches: the lines of control inside a segment, and the identity of every call that they make.

A call takes its place, (branch, index), when it is made, not when it is awaited: so `asyncio.gather(charge(a),
charge(b))` is as good as `run.gather(…)`, and what decides the place is the code, never the timing. Each arm of
`gather` or `map` is a task with a branch of its own; a call made in any other task would depend on timing, and is
refused (StrayTask).

On re-entry the segment runs from its first line. A call at a recorded place must be the recorded call, else the run has
diverged. And no new effect is sent until every recorded effect has been claimed by a call: code that changed under a
half-done segment is found out before it does anything new.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import copy_context
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

from milepost.core import entries as e
from milepost.core.steps import Effect, Read
from milepost.definitions.call import CURRENT, Step
from milepost.errors import Diverged, EpochLost, RunBlocked, StoreError, StrayTask
from milepost.runtime.ruling import NO_POLICY
from milepost.runtime.session import Session, Unloading

if TYPE_CHECKING:
    from milepost.definitions.arguments import Bound
    from milepost.definitions.tools import Tool

NAME_OF = {"Value": "a recorded value", "Sleep": "a sleep", "Receive": "a wait for a signal"}


class ToolStep(Step[Any]):
    """One call of a tool that has its place."""

    __slots__ = ("approval", "asking", "awaited", "bound", "branch", "cost", "id", "path", "tool", "verdict")

    def __init__(self, branch: Branch, tool: Tool[..., Any], bound: Bound, id_: str, path: str) -> None:
        self.branch = branch
        self.tool = tool
        self.bound = bound
        self.id = id_
        self.path = path
        self.cost: dict[str, Decimal] = {}  # what its next attempt reserves, as the gate found that it may
        self.awaited = False
        self.approval: str | None = None  # what its next attempt consumes, as the gate found that it may
        self.asking: e.ApprovalAsked | None = None  # what a person is to be asked, where that is not recorded yet
        self.verdict = NO_POLICY  # the latest one; what is recorded of an attempt is what let it start

    def __await__(self) -> Generator[Any, None, Any]:
        if not self.awaited:
            self.awaited = True
            self.branch.made.pop(self.id, None)
        return self.branch.perform(self.branch, self).__await__()


class Branch:
    """One line of control. It is the caller that `CURRENT` names while its code runs."""

    __slots__ = ("_idle", "closed_by", "counts", "made", "name", "next", "perform", "prefix", "session", "task")

    def __init__(self, session: Session, name: str, perform: Callable[[Branch, ToolStep], Awaitable[Any]]) -> None:
        self.session = session
        self.name = name
        self.task: asyncio.Task[Any] | None = None
        self.next = 0
        self.counts: dict[str, int] = {}
        self.made: dict[str, str] = {}
        self.closed_by: str | None = None
        self.perform = perform  # awaits a call: from the record, or for real
        self.prefix = _prefix(session, name)
        self._idle = 0

    # ------------------------------------------------------------ taking places

    def call(self, tool: Tool[..., Any], bound: Bound, /) -> ToolStep:
        """Take the next place for a call of a tool. Raises StrayTask, or Unloading once the segment unloads."""
        id_ = self.take(tool.name)
        number = self.counts.get(tool.name, 0) + 1
        self.counts[tool.name] = number
        path = f"{self.prefix}{tool.name}#{number}"
        self.made[id_] = path
        return ToolStep(self, tool, bound, id_, path)

    def take(self, what: str) -> str:
        """Take the next place of this branch. Raises StrayTask from any other task."""
        if asyncio.current_task() is not self.task:
            raise StrayTask(what)
        session = self.session
        if session.unloading:
            raise Unloading
        index = self.next
        self.next = index + 1
        return f"{self.name}:{index}"

    # ------------------------------------------------------------ the record at a place

    def claim(self, step: ToolStep) -> Effect | Read | None:
        """Return what is recorded at the step's place. Raises Diverged where it is another call."""
        session = self.session
        record = session.state.steps.get(step.id)
        if record is None:
            return None
        if type(record) not in {Effect, Read}:
            kind = NAME_OF.get(type(record).__name__, "another call")
            raise self.diverged(step.path, kind, f"a call of {step.tool.name}")
        assert isinstance(record, Effect | Read)
        if record.tool != step.tool.name:
            raise self.diverged(step.path, f"a call of {record.tool}", f"a call of {step.tool.name}")
        if record.digest != step.bound.digest:
            raise self.diverged(
                step.path,
                f"{record.tool} with arguments of digest {record.digest[:12]}",
                f"the same tool with digest {step.bound.digest[:12]}",
            )
        self.claimed(step.id)
        return record

    def claimed(self, id_: str) -> None:
        """Note that the code has asked for a recorded effect again."""
        session = self.session
        if session.unclaimed:
            session.unclaimed.discard(id_)
            if not session.unclaimed and session.barriered:
                session.changed()

    def diverged(self, path: str, recorded: str, asked: str) -> Diverged:
        """Return the error for a record that the code no longer matches, and stop the segment with it."""
        error = Diverged(path, recorded, asked)
        self.session.stop(error)
        return error

    def recorded(self, id_: str, kind: type[Any], what: str) -> Any:
        """Return the record of a call that is no tool. Raises Diverged where it is of another kind."""
        record = self.session.state.steps.get(id_)
        if record is not None and type(record) is not kind:
            found = NAME_OF.get(type(record).__name__, getattr(record, "tool", "another call"))
            raise self.diverged(f"{self.prefix}{id_.rpartition(':')[2]}", found, what)
        return record

    async def barrier(self) -> None:
        """Wait until every recorded effect has been claimed."""
        session = self.session
        while session.unclaimed:
            session.barriered += 1
            try:
                await self.idle()
            finally:
                session.barriered -= 1

    # ------------------------------------------------------------ beginning and resting

    def answered(self, step: str) -> bool:  # noqa: ARG002  a segment that is about to be left goes on with nothing
        """Tell whether a call is answered from the record even where nothing may go on."""
        return False

    def begin(self) -> None:
        """Come to the point where an attempt of a call would begin. Whoever only looks stops here."""

    async def idle(self) -> None:
        """Rest until something of the run changes; the segment may be unloaded meanwhile.

        A call made in one branch may be awaited in an arm, as in `run.gather(charge(a), charge(b))`: then the arm
        rests.
        """
        line = self._line()
        line.rest()
        try:
            await self.session.nap()
        finally:
            line.unrest()

    def _line(self) -> Branch:
        """Return the branch whose task awaits now."""
        caller = CURRENT.get()
        return caller if isinstance(caller, Branch) and caller.task is asyncio.current_task() else self

    def rest(self) -> None:
        """Count this branch as unable to move."""
        self._idle += 1
        if self._idle == 1:
            self.session.enter_idle()

    def unrest(self) -> None:
        """Count this branch as moving again."""
        self._idle -= 1
        if self._idle == 0:
            self.session.leave_idle()

    # ------------------------------------------------------------ arms

    def arm(self, name: str) -> Branch:
        """Return a branch below this one."""
        full = f"{self.name}/{name}" if self.name else name
        return Branch(self.session, full, self.perform)

    def spawn(self, branch: Branch, work: Callable[[], Awaitable[Any]]) -> asyncio.Task[Any]:
        """Run `work` as an arm: a task whose calls take places in `branch`."""
        context = copy_context()
        context.run(CURRENT.set, branch)
        self.session.busy += 1
        task = asyncio.get_running_loop().create_task(branch.run(work), context=context)
        task.add_done_callback(self._ended)  # also for an arm that was cancelled before its first line
        return task

    def _ended(self, _: asyncio.Task[Any]) -> None:
        self.session.enter_idle()

    async def run(self, work: Callable[[], Awaitable[Any]]) -> Any:
        """Run the body of this branch. Set the task here: an eager task factory starts it before it is assigned."""
        self.task = asyncio.current_task()
        CURRENT.set(self)
        return await work()

    async def run_root(self, fn: Callable[..., Awaitable[Any]], run: Any, value: Any) -> Any:
        """Run a segment as this branch, in the current task, and leave the task as it was."""
        self.task = asyncio.current_task()
        before = CURRENT.set(self)
        try:
            return await fn(run, value)
        finally:
            CURRENT.reset(before)
            self.session.busy -= 1

    def join(self, arms: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any]:
        """Await arms, counting the branch that awaits them as resting while they run."""
        return self._join(arms)

    async def _join(self, arms: Coroutine[Any, Any, Any]) -> Any:
        line = self._line()
        line.rest()
        try:
            return await arms
        finally:
            line.unrest()


def _prefix(session: Session, branch: str) -> str:
    """Return what stands before the tool's name in a path: the segment, its visit if not the first, the arm."""
    state = session.state
    segment = state.segment or ""
    visits = state.visits.get(segment, 0)
    again = f"{segment}@{visits + 1}" if visits else segment
    return f"{again}/{branch}/" if branch else f"{again}/"


STOPPING = (Diverged, EpochLost, StoreError, RunBlocked)


def note_fatal(session: Session, error: BaseException) -> None:
    """Stop the whole segment for what no branch may swallow."""
    if isinstance(error, STOPPING):
        session.stop(error)


async def cancel_arms(tasks: list[asyncio.Task[Any]]) -> None:
    """Cancel arms and wait for their end; what one raises that kept its cancellation to itself is nobody's to hear."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()


async def settle_arms(branch: Branch, tasks: list[asyncio.Task[Any]]) -> list[Any]:
    """Wait until all arms settled; then raise the one failure as itself, or several as a group."""
    try:
        if tasks:
            await asyncio.wait(tasks)
    except asyncio.CancelledError:
        await cancel_arms(tasks)
        raise
    results: list[Any] = []
    errors: list[BaseException] = []
    for task in tasks:
        if task.cancelled():
            errors.append(asyncio.CancelledError())
            continue
        error = task.exception()
        if error is not None:
            note_fatal(branch.session, error)
            errors.append(error)
        else:
            results.append(task.result())
    if not errors:
        return results
    if len(errors) == 1:
        raise errors[0]
    if all(isinstance(error, Exception) for error in errors):
        raise ExceptionGroup("several arms failed", cast("list[Exception]", errors))
    raise BaseExceptionGroup("several arms failed", errors)


def value_entry(id_: str, kind: str, value: Any, now: int) -> e.ValueRecorded:
    """Return the entry of a recorded value."""
    return e.ValueRecorded(at=now, step=id_, kind=kind, value=value)
