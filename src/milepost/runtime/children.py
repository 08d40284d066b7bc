"""Child runs: created under an identity derived from the parent's step, so that a crash makes no second one."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any

from milepost.core import entries as e
from milepost.core.provenance import heard
from milepost.errors import StartConflict
from milepost.runtime import starting
from milepost.stores.api import Create

if TYPE_CHECKING:
    from milepost.definitions.workflows import Workflow
    from milepost.runtime.session import Session

POLL_MS = 30_000  # only for a child that another run started: our own tell us


async def create(session: Session, step: str, workflow: Workflow[Any, Any], data: bytes, key: str | None) -> str:
    """Create the child of a step, or find it; return its run id. Raises StartConflict for a key with another input."""
    place = f"{session.run_id}\0{session.state.visit}\0{step}\0{session.state.generation}"
    run_id = sha256(place.encode()).hexdigest()[:20]
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
    now = session.engine.clock.now()
    session.put(e.ChildEnded(at=now, child=child, status=row.status, result=stored, why=row.why or ""))


async def result(session: Session, child: str, ended: e.ChildEnded) -> bytes:
    """Return the bytes of a child's result, verified."""
    return await starting.value_of(session.engine, child, ended.result)
