"""May today's code go on with a run that other code recorded? Asked at each claim, and before a deploy.

Three moments matter, and each leaves an entry:

  it goes on        under code that differs: `CodeChanged` names what differs, once for each code that is new to the run
  it is migrated    at a boundary: `Migrated` for each version it passes, and the new boundary, in one append
  it is blocked     `RunStopped` names the code that may not go on; `Resumed` is a person's word that lifts it, written
                    only after the question was asked again

What a run is compared with depends on where it stands. At a boundary nothing but the boundary's own manifest counts.
Inside a half-done segment the recorded steps count too: they may have been made by later code than the boundary, so
both are compared, and the segment's code with what made the last step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from milepost.core import entries as e
from milepost.core import messages as m
from milepost.core.chunks import digest_of
from milepost.core.code_entries import CodeChanged, Migrated, Resumed
from milepost.core.manifest import EQUAL, Compatibility, Manifest, compare, half_done
from milepost.definitions.values import encode
from milepost.definitions.workflows import Next, Workflow
from milepost.errors import InvalidValue
from milepost.runtime import checkpoints, starting

if TYPE_CHECKING:
    from milepost.runtime.engine import Engine
    from milepost.runtime.session import Session

_manifest = msgspec.json.Decoder(Manifest)


class MigrationFailed(Exception):
    """A migration raised, or said something that cannot be entered. `args[0]` is the reason for people."""


@dataclass(frozen=True, slots=True)
class Led:
    """Where a chain of migrations led: the segment and its state's bytes, and each step on the way."""

    segment: str
    data: bytes
    steps: tuple[tuple[str, str, str, str, str, str], ...]


# ---------------------------------------------------------------- judging


async def judge(engine: Engine, session: Session) -> None:
    """Compare a run that was just read with today's code, and leave the verdict on the session."""
    session.compatibility = await _verdict(engine, session)
    apply(session)


def apply(session: Session) -> None:
    """Let the next decision know the verdict, as far as no person has accepted it already."""
    found = session.compatibility
    accepted = session.state.code_digest == session.engine.manifest_chunk(session.workflow)[0]
    session.blocks = found.blocks if accepted else (*found.blocks, *_needs_resume(session, found))
    session.migrates = found.migrates


def settled(session: Session) -> None:
    """Forget the verdict: a new boundary carries today's manifest."""
    session.compatibility, session.blocks, session.migrates = EQUAL, (), ()


def _needs_resume(session: Session, found: Compatibility) -> tuple[str, ...]:
    how = f"if its calls are still the same up to there: milepost resume {session.run_id} --why …"
    return tuple(f"{changed}. Deploy the code that it is half done with, or, {how}" for changed in found.changed)


async def _verdict(engine: Engine, session: Session) -> Compatibility:
    state, workflow = session.state, session.workflow
    if state.ended:
        return EQUAL
    if workflow is None and not session.attached:
        why = f"workflow {session.about.workflow!r} is not registered by the code that runs now"
        return Compatibility(blocks=(why,))
    digest, data = engine.manifest_chunk(workflow)
    if state.rewind is not None:  # what matters is where it goes on, and a migration may lead on from there
        target = state.rewind.boundary
        at = await recorded(session, target.manifest)
        today, promises = _manifest.decode(data), starting.promises_of(workflow, session.tools)
        found = compare(at, today, promises, segment=target.segment)
        return msgspec.structs.replace(found, migrates=())
    inside = half_done(state)
    if digest == state.manifest_digest and (digest == state.code_digest or not inside):
        return EQUAL
    today = _manifest.decode(data)
    promises = starting.promises_of(workflow, session.tools)
    last = state.code_digest if inside else state.manifest_digest
    found = compare(await recorded(session, last), today, promises, segment=state.segment, inside=inside)
    if last != state.manifest_digest:
        first = compare(await recorded(session, state.manifest_digest), today, promises, segment=state.segment)
        blocks = tuple(dict.fromkeys((*found.blocks, *first.blocks)))
        found = msgspec.structs.replace(found, blocks=blocks, migrates=() if blocks else found.migrates)
    if session.attached:  # its control flow is its host's: what differs is told, and its host goes on
        return Compatibility(warns=(*found.blocks, *found.changed, *found.warns))
    return found


async def recorded(session: Session, digest: str) -> Manifest:
    """Return a manifest of the run's record. Raises Damaged."""
    return _manifest.decode(await session.engine.verified_chunk(session.run_id, digest))


def note_change(session: Session) -> None:
    """Record, once, that the run goes on under other code than before."""
    found, state = session.compatibility, session.state
    digest, data = session.engine.manifest_chunk(session.workflow)
    if digest == state.code_digest or session.blocks or session.migrates or state.status == "blocked":
        return
    if found.warns:
        at = session.engine.clock.now()
        changed = CodeChanged(at=at, manifest=digest, changes=found.warns, by=session.engine.worker)
        session.put(changed, chunks={digest: data})


# ---------------------------------------------------------------- lifting a block


def resuming(session: Session, message: m.AnyMessage, entries: list[e.Entry]) -> list[e.Entry]:
    """Check again what a person wants to lift: refuse it with the difference, or say what was accepted with it."""
    if not isinstance(message, m.Resume) or not isinstance(entries[0], Resumed):
        return entries
    found = session.compatibility
    if found.blocks:
        now = session.engine.clock.now()
        return [e.MessageRefused(at=now, kind="resume", why="; ".join(found.blocks), by=message.by)]
    if not found.changed:
        return entries
    digest, _ = session.engine.manifest_chunk(session.workflow)
    return [msgspec.structs.replace(entries[0], manifest=digest, accepted=(*found.changed, *found.warns))]


def manifest_beside(session: Session, entries: Sequence[e.Entry]) -> dict[str, bytes]:
    """Return the chunk of today's manifest where an entry names it."""
    digest, data = session.engine.manifest_chunk(session.workflow)
    return {digest: data} if any(getattr(entry, "manifest", "") == digest for entry in entries) else {}


# ---------------------------------------------------------------- migrating


def lead(workflow: Workflow[Any, Any], versions: tuple[str, ...], segment: str, data: bytes) -> Led:
    """Apply the migrations of a chain, one after the other. Raises MigrationFailed.

    What stands between two of them is plain data; only what the last one says must fit today's types.
    """
    steps = []
    for version, to in pairwise(versions):
        where, before = segment, data
        answer = _called(workflow, version, segment, msgspec.json.decode(data))
        assert answer.segment is not None
        segment, last = answer.segment, to == versions[-1]
        following = workflow.segments.get(segment)
        if last and following is None:
            raise MigrationFailed(f"the migration from {version!r} goes to segment {segment!r}, which is not declared")
        try:
            data = following.state.write(answer.state) if last and following is not None else encode(answer.state)
        except (InvalidValue, TypeError, ValueError) as error:
            raise MigrationFailed(f"the migration from {version!r} made a state that does not fit: {error}") from error
        steps.append((version, to, where, segment, digest_of(before), digest_of(data)))
    return Led(segment, data, tuple(steps))


def _called(workflow: Workflow[Any, Any], version: str, segment: str, state: Any) -> Next[Any]:
    try:
        answer: Any = workflow.migrations[version](segment, state)
    except Exception as error:  # a migration is a user's code: whatever it raises is why the run stays as it is
        why = f"the migration from {version!r} raised {type(error).__name__}: {error}"
        raise MigrationFailed(why[:1_000]) from error
    if isinstance(answer, Next) and answer.failure is not None:  # kept as it is, for a person: nothing of it is lost
        raise MigrationFailed(f"the migration from {version!r} says that it cannot be carried over: {answer.failure}")
    if not isinstance(answer, Next) or answer.segment is None:
        raise MigrationFailed(f"the migration from {version!r} returned {answer!r:.200}, not mp.go(segment, state)")
    return answer


async def migrate(session: Session, versions: tuple[str, ...]) -> None:
    """Lead a run that rests at a boundary to today's version, and write its new boundary. Raises MigrationFailed."""
    state, workflow = session.state, session.workflow
    assert workflow is not None
    assert state.segment is not None
    data, _ = await starting.state_bytes(session.engine, session.run_id, state.state, state.state_root)
    led = lead(workflow, versions, state.segment, data)
    placed, root, chunks = starting.place_state(led.data)
    boundary = checkpoints.migrated_boundary(session, chunks, led.segment, placed, root)
    now = session.engine.clock.now()
    entries: list[e.Entry] = [
        Migrated(
            at=now, version=version, to=to, segment=left, to_segment=entered, before=before, after=after,
            by=workflow.version,
        )
        for version, to, left, entered, before, after in led.steps
    ]  # fmt: skip
    entries.append(e.Checkpointed(at=now, boundary=boundary))
    session.head.segment = led.segment
    session.put(*entries, boundary=len(entries) - 1, chunks=chunks)
    session.known_chunks = set(chunks)
    session.placed = None if root is None else (root, led.data)
    settled(session)
