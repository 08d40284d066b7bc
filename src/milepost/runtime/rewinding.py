"""Going back to an earlier boundary of the same run: what was done since is undone by effects, and nothing is deleted.

  ask      a person's message. The run first comes to a place where nothing of it is under way: nothing new starts, what
           is in flight finishes. Then its whole record is read and verified.
  refuse   before anything is done, naming each effect that stands in the way: one that is not settled, that no tool
           undoes, or that today's code cannot undo. The refusal is an entry.
  write    `RewindAsked` holds the target and what is to be undone, newest first. From here on the run does nothing
           else, whoever drives it, until it is back, or is cancelled or killed.
  undo     each compensation is an effect of its own: planned with a key, under all gates, reconciled where its outcome
           is unknown. It parks where any effect would. One that fails for good blocks the run; `retry` tries it anew.
  return   once all are confirmed, `Rewound` writes the boundary anew, with the authority, the money and the signals
           that the run has *now*: what was spent, used up or taken away does not come back. Visits go on rising, so
           each step that is done again is another effect.

What may go wrong. A crash anywhere resumes: the list stands in the record, and the step of a compensation is made from
what it undoes, so that it is asked for once. What is undone is fixed when the list is written; nothing can add to it,
because nothing else of the run is done any more.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from milepost.core import codec, history
from milepost.core import entries as e
from milepost.core.chain import genesis, verify
from milepost.core.chunks import digest_of
from milepost.core.decide import given_up_read
from milepost.core.history import undoing
from milepost.core.manifest import Manifest, compare
from milepost.definitions.call import CURRENT
from milepost.definitions.tools import with_compensations
from milepost.errors import InvalidArguments, InvalidValue, MalformedEntry, StepFailed, UnknownBoundary, Waiting
from milepost.runtime import boundaries, checkpoints, compatibility, effects, starting
from milepost.runtime.branch import Branch, ToolStep
from milepost.runtime.session import Unloading
from milepost.stores.api import Status

if TYPE_CHECKING:
    from milepost.core.history import History, Stage
    from milepost.core.messages import Rewind
    from milepost.core.steps import Effect
    from milepost.definitions.arguments import Bound
    from milepost.definitions.tools import Tool
    from milepost.definitions.workflows import Workflow
    from milepost.runtime.engine import Engine
    from milepost.runtime.session import Session

IN_PLACE_BYTES = 1_024
ATTACHED = "its host holds its control flow: go back there, and fork the run"
_manifest = msgspec.json.Decoder(Manifest)
_about = msgspec.json.Decoder(e.About)


@dataclass(slots=True)
class Way:
    """The way back: what is undone, newest first, what is left as it is and why, and what forbids going at all."""

    target: Stage
    undo: list[e.Undo] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    chunks: dict[str, bytes] = field(default_factory=dict)


# ---------------------------------------------------------------- looking for the way back


async def find_way(engine: Engine, run_id: str, to: str, *, driven: bool = False) -> Way:
    """Read a run's whole record, verified, and return the way to one of its boundaries. Changes nothing.

    `driven` says that a living process holds the run, which first lets what is in flight end. Raises UnknownRun,
    UnknownBoundary, Damaged.
    """
    told, foreign = await _read(engine, run_id)
    target = told.find(to)
    if target is None:
        raise UnknownBoundary(run_id, to, [stage.name for stage in told.standing()])
    about = _about.decode(await engine.verified_chunk(run_id, told.state.about_digest))
    workflow = engine.workflows.get(about.workflow)
    way = Way(target, refused=history.refused(told, target, driven=driven))
    if foreign:
        way.refused.append("it began in another store, where it may have been taken back already: fork it")
    if about.attached:
        way.refused.append(ATTACHED)
    elif workflow is None:
        way.refused.append(f"workflow {about.workflow!r} is not registered by the code that runs now")
    else:
        way.refused.extend(_out_of_time(about, engine.clock.now()))
        if target.boundary.segment is not None:
            way.refused.extend(await _unfit(engine, run_id, target.boundary, workflow))
        for stage, effect in told.since(target):
            await _add(engine, run_id, about, workflow, way, stage, effect)
    if about.parent is not None and told.state.status in {"done", "cancelled"}:
        way.refused.append(f"its parent {about.parent} was told how it ended: rewind that one, or fork this one")
    ended = [(child, status) for child, status in told.children_since(target) if status != "running"]
    way.left.extend(f"child {child} is {status}: what it did stays done" for child, status in ended)
    return way


async def _read(engine: Engine, run_id: str) -> tuple[History, bool]:
    """Return a run's whole record, verified, and whether another store began it: its chain's genesis says so."""
    before, stored, head = await engine.store.chain(run_id)
    verify(run_id, before, 1, ((one.seq, one.body, one.hash) for one in stored), head.hash)
    told = history.read(run_id, (codec.decode(one.plain) for one in stored))
    return told, before != genesis(engine.store.id, run_id)


def _out_of_time(about: e.About, now: int) -> list[str]:
    """Return why nothing of the run may start any more, so that it could neither undo nor go on."""
    found = []
    if about.deadline is not None and now >= about.deadline:
        found.append("its deadline has passed: fork it")
    expires_at = about.authority.expires_at
    if expires_at is not None and now >= expires_at:
        found.append(f"the authority of {about.authority.principal!r} has expired: fork it")
    return found


async def _unfit(engine: Engine, run_id: str, boundary: e.Boundary, workflow: Workflow[Any, Any]) -> list[str]:
    """Return why today's code could not go on from a boundary: found out before anything is undone for it."""
    assert boundary.segment is not None
    recorded = _manifest.decode(await engine.verified_chunk(run_id, boundary.manifest))
    today = _manifest.decode(engine.manifest_bytes(workflow))
    promises = starting.promises_of(workflow, workflow.tools)
    found = compare(recorded, today, promises, segment=boundary.segment)
    data, _ = await starting.state_bytes(engine, run_id, boundary.state, boundary.state_root)
    if found.migrates:
        try:
            compatibility.lead(workflow, found.migrates, boundary.segment, data)
        except compatibility.MigrationFailed as failed:
            return [str(failed)]
        return []
    blocks = list(found.blocks)
    segment = workflow.segments.get(boundary.segment)
    if segment is not None:
        try:
            segment.state.read(data)
        except InvalidValue as error:
            blocks.append(f"the state of {segment.name} no longer fits: {error.why}")
    return blocks


async def _add(
    engine: Engine, run_id: str, about: e.About, workflow: Workflow[Any, Any], way: Way, stage: Stage, effect: Effect
) -> None:
    """Add one effect to what is undone, or to what stands in the way."""
    if effect.by == "once":
        way.left.append(f"{effect.path} was done by whoever claimed its identity first: it is theirs to undo")
        return
    tool = workflow.tools.get(effect.tool)
    why = _irreversible(tool, effect, workflow)
    if why:
        way.refused.append(f"{effect.path} ({effect.effect}) {why}")
        return
    assert tool is not None
    assert tool.compensation is not None
    data = await starting.value_of(engine, run_id, effect.result)
    try:
        bound = _arguments(tool, data)
    except (InvalidValue, InvalidArguments) as error:
        way.refused.append(f"{effect.path}: its result is nothing that {tool.compensation.name} takes: {error.why}")
        return
    why = await _claimed(engine, run_id, about.authority.tenant or "", tool.compensation, bound)
    if why:
        way.refused.append(f"{effect.path}: {why}")
        return
    undo = e.Undo(
        visit=stage.visit,
        step=effect.step,
        path=effect.path,
        tool=effect.tool,
        with_=tool.compensation.name,
        result=_placed(data, way.chunks),
        once=effect.once,
    )
    way.undo.append(undo)


async def _claimed(engine: Engine, run_id: str, tenant: str, tool: Tool[..., Any], bound: Bound) -> str:
    """Return why a compensation with an identity of its own would not be started for it again, "" where it would.

    What the run itself has claimed was for something else: an earlier effect with the same result that it undid, say.
    To take that outcome over would call an effect undone that stands.
    """
    value = tool.once_of(bound)
    held = None if value is None else await engine.store.once(tenant, tool.name, value)
    if held is None:
        return ""
    if held.run_id == run_id:
        return f"{tool.name} was started for {value} before, at step {held.step}, and its once= allows no second time"
    if held.digest != bound.digest:
        return f"{tool.name} was started for {value} by run {held.run_id}, with other arguments"
    return ""


def _irreversible(tool: Tool[..., Any] | None, effect: Effect, workflow: Workflow[Any, Any]) -> str:
    """Return why today's code cannot undo an effect, "" where it can."""
    if tool is None:
        return f"cannot be undone: {workflow.name!r} does not list {effect.tool} any more"
    if tool.version != effect.version:
        return f"was done by version {effect.version!r} of its tool, the code has {tool.version!r}"
    if tool.compensation is None:
        return f"cannot be undone: declare what undoes it with {tool.name}.compensate(…), or fork the run"
    if tool.compensation.effect == "read":
        return f"cannot be undone: {tool.compensation.name} is a read, which changes nothing"
    if with_compensations(workflow.tools).get(tool.compensation.name) is not tool.compensation:
        return f"cannot be undone: two tools of the workflow are named {tool.compensation.name}"
    return ""


def _arguments(tool: Tool[..., Any], data: bytes) -> Bound:
    """Return what a tool's compensation gets: the recorded result. Raises InvalidValue, InvalidArguments."""
    assert tool.compensation is not None
    return tool.compensation.arguments.bind((tool.result.read(data),), {})


def _placed(data: bytes, chunks: dict[str, bytes]) -> msgspec.Raw:
    """Return how a result stands in the list of what is undone: in place, or by reference where it is large."""
    if len(data) <= IN_PLACE_BYTES and not data.startswith(b'{"$ref":"'):
        return msgspec.Raw(data)
    chunks[digest_of(data)] = data
    return msgspec.Raw(b'{"$ref":"' + digest_of(data).encode() + b'"}')


# ---------------------------------------------------------------- taking the message


async def take(session: Session, id_: int, message: Rewind, *, at_rest: bool) -> bool:
    """Turn the message into its entries; return False where the run must first come to rest for it.

    `at_rest` says that the driver itself asks, between two things that it does: then nothing of the run is under way.
    """
    now, asked = session.engine.clock.now(), session.state.rewind
    if session.attached or asked is not None:
        why = ATTACHED if asked is None else f"it is being taken back to boundary {asked.to} already"
        session.put(e.MessageRefused(at=now, kind="rewind", why=why, by=message.by), taken=[id_])
        return True
    if not at_rest:
        session.returning = True  # nothing new starts now; once nothing is under way, the driver asks again
        session.changed()
        session.check_soon()
        return False
    try:
        way = await _way_now(session, message.to)
        why = session.engine.redactor.clean("; ".join(way.refused))
        if not why:
            await _ask(session, id_, message, way, now)
    except (UnknownBoundary, MalformedEntry) as error:  # there is none, or its list is more than an entry may hold
        why = str(error)
    if why:
        session.put(e.MessageRefused(at=now, kind="rewind", why=why, by=message.by), taken=[id_])
    return True


async def _way_now(session: Session, to: int) -> Way:
    """Return the way back from where the run is now: of all that this session has recorded, durable or not yet."""
    while True:
        await session.durable()
        seq = session.state.seq
        way = await find_way(session.engine, session.run_id, str(to))
        if session.state.seq == seq:  # else a thread that was given up has said what it saw meanwhile
            return way


async def _ask(session: Session, id_: int, message: Rewind, way: Way, now: int) -> None:
    given_up = [given_up_read(effect, now) for effect in session.state.effects() if effect.open]
    asked = e.RewindAsked(
        at=now, to=way.target.visit, by=message.by, why=message.why, boundary=way.target.boundary, undo=tuple(way.undo)
    )
    waiting = [one.id for one in session.state.approvals.values() if one.verdict in {"asked", "approved"}]
    await session.durable(
        *given_up,
        asked,
        answers=[(approval, "withdrawn", message.by) for approval in waiting],
        chunks=way.chunks,
        status=Status("running", now),
        taken=[id_],
    )


# ---------------------------------------------------------------- undoing


class Undoing:
    """What is entered in the place of a segment while a run goes back."""

    def __init__(self, session: Session, asked: e.RewindAsked) -> None:
        self._session = session
        self._asked = asked

    async def fn(self, _run: Any, _state: Any) -> None:
        """Undo one effect after the other. Raises StepFailed for one that cannot be undone."""
        branch = CURRENT.get()
        assert isinstance(branch, Branch)
        for undo in self._asked.undo:
            await self._undo(branch, undo)

    async def _undo(self, branch: Branch, undo: e.Undo) -> None:
        session = self._session
        tool = session.listed.get(undo.tool)
        path = f"undo/{undo.path}/{undo.with_}#1"
        if tool is None or tool.compensation is None or session.tools.get(undo.with_) is not tool.compensation:
            raise StepFailed(path, f"the code that runs now does not undo {undo.tool} with {undo.with_}")
        data = await starting.value_of(session.engine, session.run_id, undo.result)
        try:
            bound = _arguments(tool, data)
        except (InvalidValue, InvalidArguments) as error:
            raise StepFailed(path, f"its result is nothing that {undo.with_} takes any more: {error.why}") from error
        step = ToolStep(branch, tool.compensation, bound, undoing(undo.visit, undo.step), path)
        while session.closing:
            await session.parked(step.id, Waiting("switch"), branch.idle)
        branch.claim(step)
        await effects.act(branch, step)


async def go_back(session: Session) -> None:
    """Undo what is left to undo, then write the boundary. Raises Rested when the run was released."""
    asked = session.state.rewind
    assert asked is not None
    _, _, error = await boundaries.inside(session, Undoing(session, asked), None)
    for settler in list(session.settlers.values()):
        if session.dropped is None and session.fatal is None:
            await asyncio.wait([settler])
    if session.dropped is not None:
        raise session.dropped
    if session.fatal is not None:
        await boundaries.fatal(session, session.fatal)
    if session.unloading and (error is None or isinstance(error, asyncio.CancelledError | Unloading)):
        if session.closing or session.overtaken:
            return
        raise boundaries.Rested(await boundaries.park(session, session.resting))
    if error is not None and not isinstance(error, StepFailed):
        raise error
    if not await boundaries.settled(session):
        raise boundaries.Rested(await boundaries.park(session, session.rest()))
    now = session.engine.clock.now()
    if error is not None:
        why = f"{error}. What it undoes stands; look into it, then milepost retry {session.run_id}"
        blocked = e.RunStopped(at=now, status="blocked", code="not_undone", why=why)
        raise boundaries.Rested(await boundaries.stop(session, blocked))
    chunks: dict[str, bytes] = {}
    boundary = checkpoints.made_again(session, chunks, asked.boundary)
    session.head.segment = boundary.segment
    session.released = True
    await session.durable(
        e.Rewound(at=now, to=asked.to, by=asked.by, why=asked.why, boundary=boundary),
        boundary=0,
        chunks=chunks,
        status=Status("ready", now),
        release=(now, now),  # it is claimed anew, and all that recovery looks at is looked at again
    )
    raise boundaries.Rested(now)
