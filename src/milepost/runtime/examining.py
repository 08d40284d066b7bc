"""What today's code would do with a run that waits, found out without taking it: the look before a deploy.

It reads what recovery would read and asks what recovery would ask, on copies: a migration is really applied to the
state, a state is really read by its segment. Nothing is written, claimed or sent.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import msgspec

from milepost.core.manifest import Manifest, half_done
from milepost.errors import InvalidValue, MilepostError, StoreFailed
from milepost.runtime import compatibility, driver, starting
from milepost.stores.api import Query

if TYPE_CHECKING:
    from milepost.runtime.engine import Engine
    from milepost.runtime.session import Session

Finding = Literal["goes_on", "warns", "migrates", "blocks", "needs_resume", "elsewhere"]
NOTHING = Manifest()
WAITING = ("ready", "running", "parked", "blocked")


@dataclass(frozen=True, slots=True)
class Examined:
    """One run under today's code.

    `verdict` is goes_on, warns (it goes on, and `reasons` differ), migrates (`path` are the versions), blocks,
    needs_resume (it is half done with a segment that changed: a person may let it go on), or elsewhere (the code does
    not have its workflow).
    """

    run: str
    workflow: str
    version: str
    status: str
    segment: str | None
    inside: bool
    verdict: Finding
    reasons: tuple[str, ...]
    path: tuple[str, ...] = ()
    recorded: Manifest = NOTHING
    today: Manifest = NOTHING


async def examine_all(engine: Engine) -> list[Examined]:
    """Examine every run that has not ended."""
    waiting = [await engine.store.runs(Query(status=status, limit=sys.maxsize)) for status in WAITING]
    return [await examine(engine, row.id) for rows in waiting for row in rows]


async def examine(engine: Engine, run_id: str) -> Examined:
    """Say what today's code would do with one run. Raises UnknownRun; a damaged record is a verdict."""
    row = await engine.store.run(run_id)
    try:
        session = await driver.read(engine, await engine.store.tail(run_id))
        recorded = await compatibility.recorded(session, session.state.manifest_digest)
    except StoreFailed:
        raise
    except (MilepostError, msgspec.DecodeError) as error:
        why = (str(error),)
        return Examined(row.id, row.workflow, row.version, row.status, row.segment, False, "blocks", why)
    verdict, reasons = await _verdict(session)
    return Examined(
        run=row.id,
        workflow=row.workflow,
        version=recorded.version,
        status=row.status,
        segment=session.state.segment,
        inside=half_done(session.state),
        verdict=verdict,
        reasons=reasons,
        path=session.migrates,
        recorded=recorded,
        today=msgspec.json.decode(engine.manifest_bytes(session.workflow), type=Manifest),
    )


async def _verdict(session: Session) -> tuple[Finding, tuple[str, ...]]:
    found = session.compatibility
    if session.workflow is None and not session.attached:
        return "elsewhere", found.blocks
    if found.blocks:
        return "blocks", found.blocks
    unfit = await _unfit(session)
    if unfit:
        return "blocks", (unfit,)
    if session.blocks:
        return "needs_resume", session.blocks
    if session.migrates:
        return "migrates", found.warns
    return ("warns" if found.warns else "goes_on"), found.warns


async def _unfit(session: Session) -> str:
    """Return why the state cannot be entered with, as it stands or as a migration makes it; '' where it can."""
    state, workflow = session.state, session.workflow
    if workflow is None or state.segment is None or state.ended:
        return ""
    data, _ = await starting.state_bytes(session.engine, session.run_id, state.state, state.state_root)
    try:
        if session.migrates:
            compatibility.lead(workflow, session.migrates, state.segment, data)
        else:
            workflow.segments[state.segment].state.read(data)
    except compatibility.MigrationFailed as failed:
        return str(failed)
    except InvalidValue as unfit:
        return f"the state of {state.segment} no longer fits: {unfit.why}"
    return ""
