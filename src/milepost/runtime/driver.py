"""`advance(run)`: load, decide, append, perform; one bounded unit, safe to call again after a crash anywhere in it.

  claim     the next epoch, in one transaction with its entry; from here on no other process can write to the run
  load      the latest boundary and its tail; chain, run and manifest verified; a mismatch stops, it never means "again"
  recover   started is unknown; attempts of dead workers are quiet
  decide    a pure function of the record (core/decide.py)
  append    what was decided
  perform   enter the segment, settle effects, rest, or stop

A run is released when it rests: a parked run holds no memory and no owner. What ends a segment is written by
`boundaries`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from milepost.core import codec, messages
from milepost.core import entries as e
from milepost.core.decide import Enter, GoBack, Migrate, Release, Rest, Settle, decide, recover
from milepost.core.inbox import journal
from milepost.core.state import fold
from milepost.errors import Damaged, EpochLost, MilepostError, StoreFailed, Waiting
from milepost.runtime import approvals, boundaries, compatibility, rewinding, ruling, words
from milepost.runtime.session import Session
from milepost.stores.api import Claim, Status

if TYPE_CHECKING:
    from milepost.runtime.engine import Engine
    from milepost.stores.api import Head, Tail

_about = msgspec.json.Decoder(e.About)


@dataclass(frozen=True, slots=True)
class Advanced:
    """What a call of `advance` left: the run's status, and when it is due again (milliseconds since 1970)."""

    status: str
    due: int | None


async def advance(
    engine: Engine, run_id: str, owner_was: str | None = None, *, segments: int | None = None
) -> Advanced:
    """Drive a run until it rests, ends, or `segments` boundaries were written. Idempotent.

    Raises EpochLost when another process holds or takes it, LimitReached when it has to wait for its turn, Damaged when
    its record does not verify, StoreFailed.
    """
    session = await claim(engine, run_id, owner_was)
    try:
        due = await drive(session, segments)
    except (EpochLost, StoreFailed, asyncio.CancelledError):
        raise
    except Exception as error:
        await _block_defect(session, error)  # a run must never stay claimed by a process that no longer works on it
        raise
    finally:
        engine.sessions.pop(run_id, None)
        # A thread that outlives its attempt reports to the inbox from here on, whoever holds the run then.
        session.dropped = session.dropped or EpochLost(run_id, session.head.epoch)
        engine.rested(run_id)
    return Advanced(session.state.status, due)


async def claim(engine: Engine, run_id: str, owner_was: str | None) -> Session:
    """Take the run under the next epoch and load it."""
    now = engine.clock.now()
    dead = (owner_was,) if owner_was is not None and engine.is_dead(owner_was) else ()

    def entry(epoch: int) -> bytes:
        return codec.encode(e.Claimed(at=now, epoch=epoch, owner=engine.worker, dead=dead))

    head: Head = await engine.writer.durable(Claim(run_id, engine.worker, owner_was, now, entry, engine.serving.limits))
    try:
        return await load(engine, head)
    except Exception as error:
        await _block_unread(engine, head, error)
        raise


async def _block_defect(session: Session, error: Exception) -> None:
    if session.dropped is not None or session.released or session.attached:
        return
    session.engine.trace(session.run_id, error)
    code = error.code if isinstance(error, MilepostError) else "defect"
    now, why = session.engine.clock.now(), session.engine.why(error)
    try:
        await boundaries.stop(session, e.RunStopped(at=now, status="blocked", code=code, why=why))
    except MilepostError:
        return


async def _block_unread(engine: Engine, head: Head, error: Exception) -> None:
    """Leave a run that cannot be read where a person sees it, and claimed by nobody."""
    if isinstance(error, StoreFailed | EpochLost):
        return
    now = engine.clock.now()
    status = Status("blocked", now, "person", None, f"milepost verify {head.run_id}", engine.why(error))
    append = boundaries.bare_append(head, [], now, status=status)
    append.release = (None, None)  # nor do the messages that wait wake it: they could not be journalled
    try:
        await engine.writer.durable(append)
    except MilepostError:
        return


async def load(engine: Engine, head: Head) -> Session:
    """Rebuild a claimed run from its record."""
    tail = await engine.store.tail(head.run_id)
    if tail.head.epoch != head.epoch:
        raise EpochLost(head.run_id, head.epoch)  # killed, or taken, in the moment since: that is no damage
    session = await read(engine, tail)
    if tail.head.hash != head.hash:
        raise Damaged(head.run_id, "its head moved while it was being claimed")
    session.head = head
    session.dead = await engine.dead_owners(session)
    engine.sessions[head.run_id] = session  # from here on it is told what arrives, so nothing may be missing any more
    entries = recover(session.state, session.world())
    if entries:
        # Durable before anything is asked or sent: the moment of being quiet is fixed by the first claim that sees it.
        await session.durable(*entries)
    compatibility.note_change(session)
    return session


async def read(engine: Engine, tail: Tail) -> Session:
    """Verify a tail and fold it, without owning the run: what `plan` and `load` share."""
    run_id = tail.head.run_id
    engine.verify_tail(tail)
    entries = [codec.decode(stored.plain) for stored in tail.entries]
    first = entries[0]
    if not isinstance(first, e.BOUNDARIES):
        raise Damaged(run_id, "its latest boundary is no boundary", seq=tail.entries[0].seq)
    if isinstance(first, e.RunCreated) and first.run != run_id:
        raise Damaged(run_id, f"it is the record of run {first.run}")
    state = fold(run_id, entries)
    about = _about.decode(await engine.verified_chunk(run_id, state.about_digest))
    workflow = engine.workflows.get(about.workflow)
    tools = engine.tools if about.attached else workflow.tools if workflow is not None else {}
    session = Session(engine, tail.head, state, about, workflow, tools)
    await compatibility.judge(engine, session)
    return session


async def drive(session: Session, segments: int | None) -> int | None:
    """Work on a loaded run until it rests or ends; return when it is due again."""
    written = 0
    try:
        await take_inbox(session, at_rest=True)  # what arrives later, the worker brings
        while True:
            if session.returning:
                session.returning = False
                await take_inbox(session, at_rest=True)
            world = session.world()
            session.late = world.deadline is not None and world.now >= world.deadline
            decision = decide(session.state, world)
            stop = [entry for entry in decision.append if isinstance(entry, e.RunStopped)]
            if stop:
                before = [entry for entry in decision.append if entry is not stop[0]]
                if before:
                    session.put(*before)
                return await boundaries.stop(session, stop[0], chunks=compatibility.manifest_beside(session, stop))
            if session.draining or (segments is not None and written >= segments):
                return await hand_back(session)
            match decision.perform:
                case Enter():
                    if not await boundaries.enter(session):
                        continue
                    written += 1
                    if session.state.ended:
                        return None
                case Migrate(versions=versions):
                    try:
                        await compatibility.migrate(session, versions)
                    except compatibility.MigrationFailed as failed:
                        return await boundaries.refuse_migration(session, str(failed))
                case GoBack():
                    await rewinding.go_back(session)
                case Settle():
                    if not await settle_all(session):
                        held = ruling.resting(session)
                        reason, ask = ("switch", "") if held is None else (held.reason, held.ask)
                        return await rest(session, Rest(reason, session.due(), ask))
                case Rest() | Release() as resting:
                    if await linger(session, resting):
                        continue
                    return await rest(session, resting)
    except EpochLost as error:
        session.drop(error)
        raise
    except boundaries.Rested as rested:
        return rested.due


async def take_inbox(session: Session, *, at_rest: bool = False) -> None:
    """Turn what is in the inbox into entries, in the transaction that marks it taken.

    `at_rest` says that the run's own driver asks, while nothing of the run is under way.

    The worker asks as well, and both wait for the store: one after the other, and neither for a run that was let go of
    or given back meanwhile.
    """
    async with session.mail:
        await _take_inbox(session, at_rest=at_rest)


async def _take_inbox(session: Session, *, at_rest: bool) -> None:
    waiting = await session.engine.store.inbox(session.run_id)
    for id_, body in waiting:
        if _left(session):
            return
        if id_ in session.taken:
            continue  # read before the append that takes it was durable
        session.taken.add(id_)
        try:
            message = messages.decode(body)
        except msgspec.DecodeError as error:
            refused = e.MessageRefused(at=session.engine.clock.now(), kind="unreadable", why=str(error))
            session.put(refused, taken=[id_])
            continue
        if isinstance(message, messages.Rewind):
            if not await rewinding.take(session, id_, message, at_rest=at_rest):
                session.taken.discard(id_)
                return  # it is asked again when nothing is under way; what came later waits behind it
            if at_rest:
                await compatibility.judge(session.engine, session)
            continue
        await approvals.decided(session, message)
        if _left(session):  # while that start was being written: the message is for whoever is next
            session.taken.discard(id_)
            return
        entries = (
            boundaries.unfit(session, message) or approvals.unfit(session, message) or words.unfit(session, message)
        )
        said = words.statement_of(session, message)
        message, chunks = boundaries.stowed(session, message)
        entries = entries or words.beside(said, message, journal(session.state, message, session.engine.clock.now()))
        entries = compatibility.resuming(session, message, entries)
        chunks = {**(chunks or {}), **compatibility.manifest_beside(session, entries)} or None
        was = session.state.status
        boundaries.take(session, id_, message, entries, chunks)
        if session.state.status != was:  # it may go on: under the code that runs now
            await compatibility.judge(session.engine, session)
            compatibility.note_change(session)
    if waiting:
        session.held.clear()  # what arrived may be what a rule looks at
        session.changed()


def _left(session: Session) -> bool:
    """Say whether this process writes nothing more to the run: it has lost it, or given it back."""
    return session.dropped is not None or session.released


async def settle_all(session: Session) -> bool:
    """Settle what may be settled now, without entering the segment; return False where a switch refuses all of it."""
    session.engine.settle_due(session)
    tasks = list(session.settlers.values())
    if tasks:
        await asyncio.wait(tasks)
    if session.dropped is not None:
        raise session.dropped
    return bool(tasks) or session.draining


async def linger(session: Session, resting: Rest | Release) -> bool:
    """Wait in place for something that is due within a moment; return whether to look again."""
    until = getattr(resting, "until", None)
    now = session.engine.clock.now()
    if until is None or until - now > session.engine.linger_ms or session.draining:
        return False
    await asyncio.sleep(max(0, until - now) / 1000 + 0.001)
    return True


async def rest(session: Session, resting: Rest | Release) -> int | None:
    """Release a run that cannot move now."""
    if isinstance(resting, Rest):
        waiting = Waiting(
            resting.reason,  # type: ignore[arg-type]
            None if resting.until is None else session.engine.moment(resting.until),
            resting.ask,
        )
        return await boundaries.park(session, waiting)
    return await boundaries.release(session, None)


async def hand_back(session: Session) -> int | None:
    """Release a run that could go on, for whoever is next."""
    now = session.engine.clock.now()
    status = None if session.state.ended or session.attached else Status("ready", now)
    await session.durable(status=status, release=(now, now))
    return now
