"""Free reads: called and recorded, retried as declared, without a durable intent: calling one again changes nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from milepost.core import entries as e
from milepost.errors import Denied, InvalidValue, Rejected, StepFailed, Waiting
from milepost.runtime import gates, ruling, waits
from milepost.runtime.attempts import attempt_call, call_for

if TYPE_CHECKING:
    from milepost.core.breaker import Event
    from milepost.core.steps import Read
    from milepost.runtime.branch import Branch, ToolStep
    from milepost.runtime.session import Session


class PersonAsked(Exception):
    """The policy wants a person to approve this read: it takes the way of an effect."""


async def read(branch: Branch, step: ToolStep, record: Read | None) -> Any:
    """Call a free read, or answer from its record. Raises StepFailed once its tries are spent, Denied, PersonAsked."""
    session, tool = branch.session, step.tool
    while True:
        if record is not None:
            if record.status == "returned":
                return tool.result.read(await session.fetch(record.result))
            if record.status == "failed":
                raise (Denied if record.by else StepFailed)(step.path, record.why)
            if record.status == "cancelled" and not session.attached:  # a host gives an id again to have it done
                await _wait_to_be_cancelled(session)
            while record.retry_at is not None and session.engine.clock.now() < record.retry_at:
                await session.parked(step.id, Waiting("time"), branch.idle)
        attempt = 1 if record is None else record.attempt + 1
        if not await _may(branch, step, attempt):
            record = session.state.steps.get(step.id)  # type: ignore[assignment]
            continue
        branch.begin()
        if session.engine.halted or session.engine.stops.now():
            await waits.before_read(branch, step, attempt)
        said = (session, tool, step.id, attempt)
        try:
            value = await attempt_call(session, step, call_for(session, step, "", attempt))
            data = tool.result.write(value)
        except asyncio.CancelledError:
            if not session.unloading:
                session.put(_read_entry(e.ReadCancelled, session, step), tried=waits.says_nothing(*said))
            raise
        except InvalidValue as error:
            _read_failed(session, step, attempt, error, final=True, tried=waits.answered(*said))
        except Rejected as error:
            _read_failed(session, step, attempt, error, final=True, tried=waits.says_nothing(*said))
        except Exception as error:  # noqa: BLE001  in a read whatever is raised is a failure, retried as declared
            _read_failed(session, step, attempt, error, final=False, tried=waits.raised(*said, error))
        else:
            raw, chunks = session.stow(data)
            by = {"rule": step.verdict.rule, "policy": step.verdict.policy}
            returned = _read_entry(e.ReadReturned, session, step, result=raw, **by)
            session.put(returned, chunks=chunks, tried=waits.answered(*said))
            return tool.result.read(data)
        record = session.state.steps[step.id]  # type: ignore[assignment]


async def _may(branch: Branch, step: ToolStep, attempt: int) -> bool:
    """Say whether the policy lets the read be called now; else wait until it may be otherwise. Raises PersonAsked."""
    session = branch.session
    step.verdict = verdict = ruling.verdict_on(session, step)
    if verdict.answer == "allow":
        return True
    if verdict.answer == "ask":
        raise PersonAsked
    if verdict.waits:
        await session.parked(step.id, ruling.waiting_for(session, verdict, step.path), branch.idle)
        return False
    why, by = ruling.why_denied(verdict), f"policy {verdict.rule}"
    session.put(_read_entry(e.ReadFailed, session, step, attempt=attempt, why=why, by=by, policy=verdict.policy))
    return False


def _read_entry(kind: Any, session: Session, step: ToolStep, **more: Any) -> Any:
    now = session.engine.clock.now()
    return kind(at=now, step=step.id, path=step.path, tool=step.tool.name, digest=step.bound.digest, **more)


def _read_failed(
    session: Session, step: ToolStep, attempt: int, error: Exception, *, final: bool, tried: tuple[Event, ...]
) -> None:
    why = session.engine.why(error)
    delay = None if final else gates.retry_delay(session, step.tool, attempt, error)
    retry_at = None if delay is None else session.engine.clock.now() + delay
    session.put(_read_entry(e.ReadFailed, session, step, attempt=attempt, why=why, retry_at=retry_at), tried=tried)


async def _wait_to_be_cancelled(session: Session) -> None:
    session.flying(1)
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        session.flying(-1)
