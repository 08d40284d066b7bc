"""Entering a segment and what may end it: a boundary, a rest, a failure, a stop.

A boundary is written only when the segment has returned, every recorded effect was claimed, every effect is settled,
what was sent again has been asked about once more, and the completion condition holds. It is one entry with everything
recovery needs; a crash before it re-enters the segment, a crash after it enters the next one.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import msgspec

from milepost.core import entries as e
from milepost.core import messages as m
from milepost.core.code_entries import Resumed
from milepost.core.duration import to_ms
from milepost.core.inbox import find_effect
from milepost.core.steps import Effect
from milepost.errors import (
    Damaged,
    Diverged,
    EpochLost,
    InvalidValue,
    MilepostError,
    NotAwaited,
    RunBlocked,
    StoreError,
    Waiting,
)
from milepost.runtime import checkpoints, children, compatibility, effects, ruling, starting, waits
from milepost.runtime.branch import Branch
from milepost.runtime.segment_run import SegmentRun
from milepost.runtime.session import Session, Unloading
from milepost.stores.api import Append, Head, Lift, Post, Status

if TYPE_CHECKING:
    from milepost.definitions.workflows import Next, Segment

_json = msgspec.json.Encoder(order="deterministic")
log = logging.getLogger("milepost")
NULL = msgspec.Raw(b"null")
MOVED_BY_TIME = frozenset({"time", "unknown", "breaker"})  # where neither a message nor a person is waited for
Placed = tuple[msgspec.Raw, str | None, dict[str, bytes]]  # see starting.place_state


class Rested(Exception):
    """The run was released; `due` is when it can move again."""

    def __init__(self, due: int | None) -> None:
        super().__init__()
        self.due = due


# ---------------------------------------------------------------- entering


async def enter(session: Session) -> bool:
    """Enter the segment; return whether a boundary was written. Raises Rested when the run was parked."""
    workflow, state = session.workflow, session.state
    assert workflow is not None
    assert state.segment is not None
    segment = workflow.segments[state.segment]
    try:
        value = segment.state.read(await _state(session))
    except InvalidValue as unfit:
        digest, data = session.engine.manifest_chunk(workflow)
        stopped = _blocked(session, "incompatible", f"the state of {segment.name} no longer fits: {unfit.why}")
        await stop(session, msgspec.structs.replace(stopped, manifest=digest), chunks={digest: data})
        raise Rested(None) from unfit
    if segment.requires is not None and not _holds(segment.requires, value):
        await stop(session, _blocked(session, "condition_failed", f"{segment.name}: requires= does not hold"))
        raise Rested(None)
    root, outcome, error = await inside(session, segment, value)
    for settler in list(session.settlers.values()):
        if session.dropped is None and session.fatal is None:
            await asyncio.wait([settler])
    return await _ended(session, segment, root, outcome, error, value)


async def _state(session: Session) -> bytes:
    """Return the state to enter with: what this session wrote last (it may not be readable yet), or the store's."""
    state = session.state
    if state.state_root is not None and session.placed is not None and session.placed[0] == state.state_root:
        return session.placed[1]
    data, known = await starting.state_bytes(session.engine, session.run_id, state.state, state.state_root)
    session.known_chunks = known
    return data


async def inside(session: Session, segment: Any, value: Any) -> tuple[Branch, Any, BaseException | None]:
    """Run the segment (any `fn`) in the driver's own task; return its root branch, and what it returned or raised.

    Unloading cancels this task from a callback, so that a cancellation that is ours is told from one that is not, and
    none is left behind to hit the driver at its next await.
    """
    session.unloading, session.fatal, session.rests_on = False, None, ()
    session.busy, session.barriered = 1, 0
    session.unclaimed = {step for step, record in session.state.steps.items() if type(record) is Effect}
    root = Branch(session, "", effects.perform)
    task = asyncio.current_task()
    assert task is not None
    session.segment_task = task
    session.engine.settle_due(session)
    outcome: Any = None
    error: BaseException | None = None
    try:
        outcome = await root.run_root(segment.fn, SegmentRun(session), value)
    except asyncio.CancelledError as cancelled:
        if session.unloading:
            task.uncancel()
        elif task.cancelling():
            session.unloading = True
            raise
        error = cancelled  # where nobody cancelled it, the segment has raised it like any other error
    except Exception as raised:  # noqa: BLE001  whatever a segment raises is recorded as its failure
        error = raised
    except BaseExceptionGroup as raised:
        error = raised
    except Unloading as unloading:
        error = unloading
    finally:
        session.segment_task = None
    if session.unloading and not isinstance(error, asyncio.CancelledError):
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            task.uncancel()
    return root, outcome, error


async def _ended(
    session: Session,
    segment: Segment[Any, Any],
    root: Branch,
    outcome: Any,
    error: BaseException | None,
    value: Any,
) -> bool:
    if session.dropped is not None:
        raise session.dropped
    if session.fatal is not None:
        await fatal(session, session.fatal)
    if session.unloading and (
        error is None or isinstance(error, asyncio.CancelledError | Unloading) or _unwinding(error)
    ):
        if session.closing or session.overtaken:
            return False
        raise Rested(await park(session, session.resting))
    if error is not None:
        await _failed(session, segment, error)
        return False
    unawaited = list(root.made.values())
    if unawaited:
        await _failed(session, segment, NotAwaited(unawaited))
        return False
    if session.unclaimed:
        await fatal(session, _unclaimed(session))
    if not await settled(session):
        raise Rested(await park(session, session.rest()))
    return await complete(session, segment, value, outcome)


def _unwinding(error: BaseException) -> bool:
    """Say whether an exception group holds nothing but the unloading itself."""
    if isinstance(error, BaseExceptionGroup):
        return all(_unwinding(inner) for inner in error.exceptions)
    return isinstance(error, asyncio.CancelledError | Unloading)


def _unclaimed(session: Session) -> Diverged:
    effect = session.state.steps[min(session.unclaimed)]
    return Diverged(
        getattr(effect, "path", "?"), f"a call of {getattr(effect, 'tool', '?')}", "nothing: the segment ended"
    )


async def fatal(session: Session, error: Exception) -> None:
    """Act on what stopped the segment as a whole. Raises Rested, or the error where the run is not ours any more."""
    if isinstance(error, EpochLost | StoreError) and not isinstance(error, Damaged):
        raise error
    settlers = list(session.settlers.values())
    for settler in settlers:
        settler.cancel()
    if settlers:
        await asyncio.wait(settlers)
    if session.state.status != "blocked":
        code = error.code if isinstance(error, MilepostError) else "error"
        await stop(session, _blocked(session, code, session.engine.why(error)))
    else:
        await release(session, None)
    raise Rested(None)


async def settled(session: Session) -> bool:
    """Settle what is open at the segment's end, and ask once more where something was sent again."""
    while True:
        session.engine.settle_due(session)
        tasks = list(session.settlers.values())
        if tasks:
            await asyncio.wait(tasks)
            if session.dropped is not None:
                raise session.dropped
            if session.fatal is not None:
                await fatal(session, session.fatal)
            continue
        open_ = [f for f in session.state.effects() if f.open or f.verify_from is not None]
        if not open_:
            return True
        due, now = session.due(), session.engine.clock.now()
        if due is None or due - now > session.engine.linger_ms or session.closing:
            return False
        await asyncio.sleep(max(0, due - now) / 1000 + 0.001)


def _holds(condition: Any, *args: Any) -> bool:
    try:
        return condition(*args) is True
    except Exception:  # noqa: BLE001  a condition that errs does not hold
        return False


# ---------------------------------------------------------------- how a segment ends


async def complete(session: Session, segment: Segment[Any, Any], value: Any, outcome: Next[Any]) -> bool:
    """Write the boundary that a segment's end makes, if its completion condition holds."""
    if not hasattr(outcome, "failure"):
        why = f"segment {segment.name} returned {type(outcome).__name__}, not mp.go(…), mp.done(…) or mp.fail(…)"
        await _failed(session, segment, TypeError(why))
        return False
    if outcome.failure is not None:
        await stop(session, _stopped(session, "failed", "failed", outcome.failure))
        raise Rested(None)
    if segment.ensures is not None and not _holds(segment.ensures, value, outcome):
        await _condition_failed(session, segment)
        return False
    try:
        if outcome.segment is None:
            await _done(session, segment, outcome.result)
        else:
            _checkpoint(session, segment, outcome)
    except InvalidValue as error:
        await _failed(session, segment, error)
        return False
    return True


def _checkpoint(session: Session, segment: Segment[Any, Any], outcome: Next[Any]) -> None:
    assert session.workflow is not None
    assert outcome.segment is not None
    following = session.workflow.segments.get(outcome.segment)
    if following is None:
        why = f"segment {outcome.segment!r} does not belong to workflow {session.workflow.name!r}"
        raise InvalidValue(f"go() of {segment.name}", why)
    data = following.state.write(outcome.state)
    state, root, chunks = starting.place_state(data)
    boundary = checkpoints.make_boundary(session, chunks, outcome.segment, state, root)
    new = {digest: body for digest, body in chunks.items() if digest not in session.known_chunks}
    session.head.segment = outcome.segment
    session.put(e.Checkpointed(at=session.engine.clock.now(), boundary=boundary), boundary=0, chunks=new)
    compatibility.settled(session)
    session.known_chunks = set(chunks)
    session.placed = None if root is None else (root, data)


async def _done(session: Session, segment: Segment[Any, Any], result: Any) -> None:
    assert session.workflow is not None
    data = session.workflow.result.write(result)
    await finish(session, data, segment.name)


async def finish(session: Session, data: bytes, finished: str | None, kept: Placed = (NULL, None, {})) -> None:
    """End the run with a result; whoever waits for it hears of it once it is durable.

    `kept` is the state that its last boundary holds: that of an attached run still answers what was asked before.
    """
    now = session.engine.clock.now()
    state, root, placed = kept
    chunks = dict(placed)
    boundary = checkpoints.make_boundary(session, chunks, None, state, root, finished=finished)
    raw, stowed = session.stow(data)
    chunks.update(stowed or {})
    done = e.RunDone(at=now, boundary=boundary, result=raw)
    session.head.segment = None
    session.engine.flush_events()
    await session.durable(
        done,
        boundary=0,
        chunks=chunks,
        status=Status("done", now),
        posts=parent_post(session, "done", raw, ""),
        release=(now, None),
    )


async def _condition_failed(session: Session, segment: Segment[Any, Any]) -> None:
    why = f"{segment.name}: ensures= does not hold"
    if not await _again(session, segment, why):
        await stop(session, _blocked(session, "condition_failed", why))
        raise Rested(None)


async def _failed(session: Session, segment: Segment[Any, Any], error: BaseException) -> None:
    """A segment raised: enter it again as declared, else the run has failed."""
    session.engine.trace(session.run_id, error)
    why = session.engine.why(error)
    if not await settled(session):
        raise Rested(await park(session, session.rest()))
    if not await _again(session, segment, why):
        await stop(session, _stopped(session, "failed", getattr(error, "code", "error"), why))
        raise Rested(None)


async def _again(session: Session, segment: Segment[Any, Any], why: str) -> bool:
    engine = session.engine
    attempt = session.state.segment_attempt + 1
    delay = None if segment.retry is None else segment.retry.delay_ms(attempt, engine.clock.chance())
    if delay is None:
        return False
    now = engine.clock.now()
    session.put(e.SegmentFailed(at=now, why=why, attempt=attempt, retry_at=now + delay))
    return True


# ---------------------------------------------------------------- stopping and resting


def _stopped(session: Session, status: str, code: str, why: str) -> e.RunStopped:
    clean = session.engine.redactor.clean(why)
    return e.RunStopped(at=session.engine.clock.now(), status=status, code=code, why=clean)


def _blocked(session: Session, code: str, why: str) -> e.RunStopped:
    return _stopped(session, "blocked", code, why)


async def refuse_migration(session: Session, why: str) -> int | None:
    """Block a run whose migration failed, as it is."""
    digest, data = session.engine.manifest_chunk(session.workflow)
    stopped = msgspec.structs.replace(_blocked(session, "migration_failed", why), manifest=digest)
    return await stop(session, stopped, chunks={digest: data})


async def stop(session: Session, stopped: e.RunStopped, chunks: dict[str, bytes] | None = None) -> int | None:
    """End the run without a result, or block it, and release it. `chunks` are written beside."""
    run = session.run_id
    asks = {
        "failed": f"milepost retry {run} --why …",
        "blocked": f"milepost show {run}, then milepost resume {run} --why …",
    }
    ask = asks.get(stopped.status)
    reason = "person" if stopped.status == "blocked" else None
    status = Status(stopped.status, stopped.at, reason, None, ask, f"{stopped.code}: {stopped.why}")
    posts = () if stopped.status == "blocked" else parent_post(session, stopped.status, NULL, stopped.why)
    if stopped.status == "cancelled":
        posts += await children.cancels(session, stopped)
    session.engine.flush_events()
    await session.durable(stopped, status=status, posts=posts, release=(stopped.at, None), chunks=chunks)
    return None


def parent_post(session: Session, status: str, result: msgspec.Raw, why: str) -> tuple[Post, ...]:
    """Return the message that tells the parent run how this one ended."""
    parent = session.about.parent
    if parent is None or (session.state.cancel or ("",))[0] == children.by_parent(parent):
        return ()  # a parent that cancels its children has ended, and waits for none of them
    now = session.engine.clock.now()
    message = m.Child(at=now, by=session.run_id, child=session.run_id, status=status, result=result, why=why)
    return (
        Post(parent, f"child:{session.run_id}:{status}:{session.head.epoch}", m.encode(message), now, patient=True),
    )


async def park(session: Session, waiting: Waiting) -> int | None:
    """Record what the run waits for and release it; return when it is due."""
    now = session.engine.clock.now()
    due = session.due()
    if (
        waiting.until is not None
    ):  # it may rest on what is no step: a segment's backoff, or a poll that ended with its call
        resting_until = to_ms(waiting.until)
        due = resting_until if due is None else min(due, resting_until)
    if session.state.ended or session.state.status == "blocked" or session.attached:
        return await release(session, due)
    until = None if waiting.until is None else due
    if due is None and not waiting.ask and waiting.reason in MOVED_BY_TIME:
        log.warning("run %s waits (%s) and nothing would move it: it looks again later", session.run_id, waiting.reason)
        due = until = now + waits.LATER_MS
    parked = e.RunParked(at=now, reason=waiting.reason, until=until, ask=waiting.ask)
    status = Status("parked", now, waiting.reason, until, waiting.ask or None)
    session.released, told = True, session.engine.policy_told
    await session.durable(
        parked, status=status, release=(now, due), waits=waits.resting_on(session), patience=children.patience(session)
    )
    ruling.parked(session, waiting, told)
    return due


async def release(session: Session, due: int | None) -> int | None:
    """Give the run back without changing what it is."""
    session.released = True
    await session.durable(release=(session.engine.clock.now(), due))
    return due


def bare_append(head: Head, entries: list[bytes], at: int, *, status: Status | None = None) -> Append:
    """Return an append for a run whose state is not loaded."""
    return Append(head, entries, at, status=status)


def stowed(session: Session, message: m.AnyMessage) -> tuple[m.AnyMessage, dict[str, bytes] | None]:
    """Return a message whose value stands as values do in entries, with the chunk of one that stands by reference."""
    if not isinstance(message, m.Send | m.Resolve | m.Evidence):
        return message, None
    raw, chunks = session.stow(bytes(message.value))
    return msgspec.structs.replace(message, value=raw), chunks


def take(
    session: Session, id_: int, message: m.AnyMessage, entries: list[e.Entry], chunks: dict[str, bytes] | None
) -> None:
    """Append what a message became, with what is written beside it."""
    beside: dict[str, Any] = {"taken": [id_], "chunks": chunks}
    now = session.engine.clock.now()
    for entry in entries:
        if isinstance(entry, e.RunStopped):
            ask = f"milepost show {session.run_id}"
            beside["status"] = Status(entry.status, now, "person", None, ask, f"{entry.code}: {entry.why}")
        elif isinstance(entry, e.Retried | Resumed):
            beside["status"] = Status("running", now)
        elif isinstance(entry, e.Contradicted) and isinstance(message, m.Evidence):
            why = f"contradicted at {message.path} of run {session.run_id}: {entry.evidence}"
            beside["holds"] = [waits.hold(session.run_id, message.path, _tool_of(session, message), why, now)]
    if isinstance(message, m.Resolve) and not any(isinstance(entry, e.MessageRefused) for entry in entries):
        beside["lifts"] = _lifts(session, message)
    session.put(*entries, **beside)
    stopped = next((entry for entry in entries if isinstance(entry, e.RunStopped)), None)
    if stopped is not None:  # nothing more is started on a record that is contradicted
        session.stop(RunBlocked(session.run_id, stopped.code, stopped.why))


def _tool_of(session: Session, message: m.Evidence) -> str:
    """Return the tool that evidence speaks of: from the record, or from its path where its segment has ended."""
    effect = session.state.steps.get(message.step)
    if type(effect) is Effect and message.visit == session.state.visit:
        return effect.tool
    return message.path.rpartition("/")[2].partition("#")[0]


def unfit(session: Session, message: m.AnyMessage) -> list[e.Entry]:
    """Return the refusal of a person's value that the tool's result cannot be, else nothing."""
    effect = find_effect(session.state, message.path) if isinstance(message, m.Resolve) else None
    tool = None if effect is None else session.tools.get(effect.tool)
    if tool is None or not isinstance(message, m.Resolve) or message.answer != "happened":
        return []
    try:
        tool.result.read(bytes(message.value))
    except InvalidValue as error:
        why = f"{message.path}: the value is no {error.what}: {error.why}"
        return [e.MessageRefused(at=session.engine.clock.now(), kind="resolve", why=why, by=message.by)]
    return []


def _lifts(session: Session, message: m.Resolve) -> list[Lift]:
    from_path = next((f for f in session.state.effects() if message.path in {f.path, f.step}), None)
    if from_path is None or not (from_path.contradicted or from_path.doubt.person.startswith("conflict:")):
        return []  # it holds nothing; what another effect holds stays held
    about = waits.hold_about(session.run_id, from_path.path)
    return [Lift(f"tool:{from_path.tool}", message.why, message.by, "hold", about)]
