"""Child runs: created under an identity derived from the parent's step, so that a crash makes no second one.

A run may have ten thousand children. So what is kept of them at a boundary is bounded (the store knows them by their
parent), a child that is our own is not asked for but tells us, and their ends wake a parent that waits for many of them
now and then, and at the last of them at once: each time it is entered, it goes over all of them.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any

from milepost.core import entries as e
from milepost.core import messages
from milepost.core.provenance import heard
from milepost.core.steps import ChildWait
from milepost.errors import StartConflict
from milepost.runtime import starting
from milepost.stores.api import Create, Post

if TYPE_CHECKING:
    from milepost.core.queues import Place
    from milepost.definitions.workflows import Workflow
    from milepost.runtime.session import Session

POLL_MS = 30_000  # only for a child that another run started: our own tell us
OWN_POLL_MS = 3_600_000
PATIENT_FROM = 20
PATIENCE_MOST_MS = 10_000
CANCELLED_MOST = 1_000_000


def identity(session: Session, step: str) -> str:
    """Return the id of the child that a step of the present visit starts."""
    place = f"{session.run_id}\0{session.state.visit}\0{step}\0{session.state.generation}"
    return sha256(place.encode()).hexdigest()[:20]


def patience(session: Session) -> int:
    """Return how long a run that parks lets ends of children gather, in milliseconds: the longer, the more it awaits.

    Entering a segment takes about a tenth of a millisecond for each; so an eighth of a core is spent on it at most.
    """
    results = session.state.child_results
    awaited = sum(type(step) is ChildWait and step.child not in results for step in session.state.steps.values())
    return 0 if awaited < PATIENT_FROM else min(PATIENCE_MOST_MS, awaited)


def by_parent(parent: str) -> str:
    """Return who cancels a child together with its parent."""
    return f"run {parent}"


async def cancels(session: Session, stopped: e.RunStopped) -> tuple[Post, ...]:
    """Return the messages that cancel the children of a run that is cancelled: written with its own end."""
    by, why = by_parent(session.run_id), f"its parent was cancelled: {stopped.why}"
    body = messages.encode(messages.Cancel(at=stopped.at, by=by, why=why))
    live = await session.engine.store.children(session.run_id, CANCELLED_MOST, live=True)
    return tuple(Post(child, f"cancel:{session.run_id}:{session.head.epoch}", body, stopped.at) for child, _ in live)


async def create(
    session: Session, step: str, workflow: Workflow[Any, Any], data: bytes, key: str | None, stands: Place
) -> str:
    """Create the child of a step, or find it; return its run id. Raises StartConflict for a key with another input."""
    run_id = identity(session, step)
    new = starting.new_run(
        session.engine,
        workflow,
        data,
        run_id=run_id,
        key=key,
        authority=session.state.held(session.about.authority),
        parent=session.run_id,
        parent_step=step,
        parent_epoch=session.head.epoch,
        heard=heard(session.state),
        place=stands,
    )
    created = await session.engine.writer.durable(Create(new))
    if (created.workflow, created.digest) != (new.workflow, new.digest):
        raise StartConflict(key or run_id, created.id, "started with another workflow or input")
    session.engine.adopt(created.id)
    return str(created.id)


async def look(session: Session, child: str) -> None:
    """Record a child's end when it has ended and its message has not arrived (or was not meant for us)."""
    row = await session.engine.store.run(child)
    if row.status not in {"done", "failed", "cancelled", "killed"} or child in session.state.child_results:
        return
    stored = await starting.ended(session.engine, child)
    if child in session.state.child_results:
        return  # its message came while we looked
    now = session.engine.clock.now()
    session.put(e.ChildEnded(at=now, child=child, status=row.status, result=stored, why=row.why or ""))


async def result(session: Session, child: str, ended: e.ChildEnded) -> bytes:
    """Return the bytes of a child's result, verified."""
    return await starting.value_of(session.engine, child, ended.result)
