"""Running a tool's code once, under its timeout."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import TYPE_CHECKING, Any

from milepost.definitions.call import CURRENT, Call, CallScope
from milepost.runtime import gates
from milepost.runtime.threads import Astray

if TYPE_CHECKING:
    from milepost.runtime.session import Session


_scope_of = cache(CallScope)


class TimedOut(Exception):
    """An attempt's time ended; what it did is not known."""


def call_for(session: Session, step: Any, key: str, number: int) -> Call | None:
    """Return the Call of an attempt, or None where neither the tool nor its record needs one."""
    engine = session.engine
    if step.tool.takes != "call" and (step.tool.is_async or not key):
        return None
    deadline = engine.moment(engine.clock.now() + step.tool.timeout_ms)
    return Call(
        key=key,
        attempt=number,
        deadline=deadline,
        secrets=gates.secrets_of(session, step.id),
        resources=engine.resource,
        of=(session.run_id, session.state.visit, step.id),
    )


async def attempt_call(session: Session, step: Any, call: Call | None) -> Any:
    """Run the tool's code once, under its timeout. Raises TimedOut, and whatever the tool raises."""
    tool, engine = step.tool, session.engine
    leading = (call,) if tool.takes == "call" else ()
    session.flying(1)
    deadline = engine.deadlines.set(tool.timeout_ms / 1000)
    cancels = deadline.task.cancelling()
    before = CURRENT.get()
    CURRENT.set(_scope_of(tool.name))
    try:
        if tool.is_async:
            return await step.bound.call(tool.fn, *leading)
        return await engine.in_thread(session, step, call, lambda: step.bound.call(tool.fn, *leading))
    except asyncio.CancelledError:
        if deadline.task.cancelling() > cancels + deadline.passed:
            raise  # by somebody else: also where its time had ended before, and it was slow to end
        if not deadline.passed:
            why = "it raised CancelledError, although nobody cancelled it"
            raise Astray(why) from None
        why = f"no answer within {tool.timeout_ms / 1000:g} s"
        raise TimedOut(why) from None
    finally:
        if deadline.passed:
            deadline.task.uncancel()  # also where the tool kept the cancellation to itself
        CURRENT.set(before)
        engine.deadlines.drop(deadline)
        session.flying(-1)
