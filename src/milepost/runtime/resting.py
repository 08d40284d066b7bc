"""What one call waits for, told apart from all else of its run.

`Session.rest` answers for a run as a whole: that is what its row says, and what a person sees. A host that made one of
several calls has to know of this one: what it waits for, when it may look again, what a person may type for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from milepost.core.decide import move_for, rest_on
from milepost.core.steps import Effect, Read
from milepost.errors import Waiting
from milepost.runtime import approvals, ruling

if TYPE_CHECKING:
    from milepost.runtime.session import Session


def of_step(session: Session, step: str) -> Waiting:
    """Return what a step waits for that is parked now, and when it can move by itself."""
    said, record, world = session.waits[step], session.state.steps.get(step), session.world()
    moments = [at for id_, at in session.polls.items() if id_ == step]
    moments.extend(at for _, at in approvals.lapses({step: said}))
    if type(record) is Effect:
        moments.extend(session.effect_due(record, world))
    elif type(record) is Read and record.retry_at is not None:
        moments.append(record.retry_at)
    until = session.engine.moment(min(moments)) if moments else None
    if type(record) is Effect and record.open and record.effect != "read":
        settled_by = rest_on(session.run_id, [(record, move_for(record, world))])
        if settled_by.ask:
            return Waiting("unknown", until, settled_by.ask)
        held = ruling.held_back(session, step)
        if held is not None:
            return Waiting(held.reason, until, held.ask)
    return Waiting(said.reason, until, said.ask)
