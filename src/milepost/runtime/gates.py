"""What must hold before an attempt, asked at the edge; and how a step waits where it does not.

Deny by default. What is missing is never raised into the step's siblings: the step is recorded as not started, the
branch rests, and the waiting says what to type. Listing, scopes, policy, approval and money are looked at here;
switches, the epoch and identities inside the transaction that writes `started`.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec

from milepost.core import entries as e
from milepost.core.authority import expired, missing_scopes
from milepost.core.chain import step_key
from milepost.core.duration import parse_ms
from milepost.core.policy import Verdict
from milepost.core.steps import Effect
from milepost.definitions.http import classify
from milepost.errors import MilepostError, NotSent, Rejected, Waiting
from milepost.runtime import approvals, pools, ruling, starting, waits
from milepost.stores import marks
from milepost.stores.api import OnceTaken, SwitchedOff
from milepost.stores.pools import PoolShort
from milepost.stores.waits import once_scope

if TYPE_CHECKING:
    from milepost.core.state import RunState
    from milepost.definitions.tools import Tool
    from milepost.runtime.branch import Branch, ToolStep
    from milepost.runtime.session import Session


class CredentialChanged(NotSent):
    """A resend would use another secret than the first attempt: nothing was sent, and no provider is to blame."""

    code = "credential_changed"


class WorkFailed(MilepostError):
    """A transactional tool raised; its transaction was rolled back."""

    code = "work_failed"

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Halted(MilepostError):
    """The stop file came while a transactional tool was at work; its transaction was rolled back."""

    code = "halted"


def unless_halted(place: str, work: Callable[[Any], list[bytes]]) -> Callable[[Any], list[bytes]]:
    """Wrap a tool's work so that the stop file refuses its append: looked at before the work, and when it is done."""

    def guarded(tx: Any) -> list[bytes]:
        if marks.stopped(place):
            raise Halted
        done = work(tx)
        if marks.stopped(place):
            raise Halted
        return done

    return guarded


def certain(work: Callable[[Any], list[bytes]]) -> Callable[[Any], list[bytes]]:
    """Wrap a tool's work so that whatever it raises refuses its own append and no other."""

    def guarded(tx: Any) -> list[bytes]:
        try:
            return work(tx)
        except Exception as error:
            raise WorkFailed(error) from error

    return guarded


def planned(session: Session, step: ToolStep, now: int) -> e.EffectPlanned:
    """Return the plan of an effect: what will be sent, under which key, fixed before the first attempt."""
    tool, state = step.tool, session.state
    return e.EffectPlanned(
        at=now,
        step=step.id,
        path=step.path,
        tool=tool.name,
        version=tool.version,
        effect=tool.effect,
        digest=step.bound.digest,
        args=msgspec.Raw(step.bound.data),
        key=step_key(session.engine.store.id, session.run_id, state.visit, step.id, state.generation),
        once=tool.once_of(step.bound),
    )


def scopes(session: Session, tool: Tool[..., Any]) -> tuple[str, ...]:
    """Return the scopes whose switches stop this tool in this run."""
    known = session.scopes.get(tool.name)
    if known is None:
        known = ("all", f"tool:{tool.name}", f"workflow:{session.about.workflow}", f"tenant:{session.tenant}")
        session.scopes[tool.name] = known
    return known


def gate(session: Session, step: ToolStep, effect: Effect | None) -> Waiting | Verdict | None:
    """Return what an attempt of this step must wait for, the verdict that denies it, or None when it may start."""
    tool = step.tool
    if session.closing:
        return Waiting("switch")
    waiting = _without_authority(session, tool)
    if waiting is not None:
        return waiting
    worst = ruling.WorstCase(tool, step.bound)
    step.verdict = verdict = ruling.verdict_on(session, step, worst)
    if verdict.answer == "deny":
        return ruling.waiting_for(session, verdict, step.path) if verdict.waits else verdict
    waiting = approvals.waiting_for(session, step, effect)
    if waiting is not None:
        return waiting
    step.cost = worst.amounts() if tool.costed and pays(session, step, effect) else {}
    if step.cost:
        short = session.state.ledger.short(step.cost)
        if short:
            needs = " ".join(f"--budget {unit}={gap.normalize():f}" for unit, gap in short.items())
            return Waiting("budget", None, f"milepost grant {session.run_id} {needs}")
    return None


def _without_authority(session: Session, tool: Tool[..., Any]) -> Waiting | None:
    held = session.about.authority
    if session.state.scopes or session.state.revoked:
        held = session.state.held(held)
    if not tool.scopes and held.expires_at is None:
        return None  # as most are
    now = session.engine.clock.now() if held.expires_at is not None else 0  # where nothing expires it is not asked for
    missing = missing_scopes(held, tool.scopes, now)
    if missing:
        return Waiting("authority", None, f"milepost grant {session.run_id} {' '.join(missing)}")
    if expired(held, now):
        ask = f"the authority of {held.principal!r} expired: start a new run, or milepost cancel {session.run_id}"
        return Waiting("authority", None, ask)
    return None


def pays(session: Session, step: ToolStep, effect: Effect | None) -> bool:
    """Say whether an attempt reserves: an effect once, a costed read for each attempt, since each may be charged."""
    if step.id not in session.state.ledger.reserved:
        return True
    return effect is not None and effect.outcome == "unknown" and step.tool.effect == "read"


def plan(session: Session, step: ToolStep, effect: Effect | None, waiting: Waiting) -> None:
    """Record that the effect is known and not started, and what a person is asked."""
    entries: list[e.Entry] = []
    if effect is None:
        entries.append(planned(session, step, session.engine.clock.now()))
    if waiting.reason == "approval" and step.asking is not None:
        entries += [*approvals.stale(session, step, None), step.asking]
    if entries:
        session.put(*entries)


def deny(session: Session, step: ToolStep, effect: Effect | None, verdict: Verdict) -> None:
    """Record that a rule denies an effect, for good."""
    before: list[e.Entry] = [] if effect is not None else [planned(session, step, session.engine.clock.now())]
    ruling.deny(session, effect or _as_effect(before[0]), before, verdict)


def _as_effect(planned_: e.Entry) -> Effect:
    assert isinstance(planned_, e.EffectPlanned)
    p = planned_
    return Effect(p.step, p.path, p.tool, p.version, p.effect, p.digest, p.args, p.key)


def before_start(session: Session, step: str) -> Callable[[], None]:
    """Return what takes an optimistic `started` back out of the state, for when its append is refused."""
    state = session.state
    effect = state.steps.get(step)
    unuse = approvals.before_use(state, step)
    if type(effect) is not Effect:
        return partial(_forget, state, step, unuse)
    return _restoring(state, effect, unuse)


def _forget(state: RunState, step: str, unuse: Callable[[], None]) -> None:
    del state.steps[step]
    unuse()
    state.ledger.release(step)


def _restoring(state: RunState, effect: Effect, unuse: Callable[[], None]) -> Callable[[], None]:
    step, ledger = effect.step, state.ledger
    outcome, retry_at, approval = effect.outcome, effect.retry_at, effect.approval
    doubt = effect.doubt
    known = (doubt.absences, doubt.asks, doubt.person, doubt.ask_at)
    held, since = ledger.reserved.get(step, {}), ledger.since.get(step, 0)
    booked = held if effect.effect == "read" and outcome == "unknown" else {}  # by the `started`, in full

    def restore() -> None:
        doubt.attempts.pop()
        if not effect.open:
            return  # settled meanwhile, by a person's word perhaps: that is on record, and this start is not
        effect.outcome, effect.retry_at, effect.approval = outcome, retry_at, approval
        doubt.absences, doubt.asks, doubt.person, doubt.ask_at = known
        unuse()
        ledger.release(step)
        ledger.reserve(step, held, since)
        spent = ledger.spent  # what other effects have spent meanwhile stays spent
        spent.update({unit: spent[unit] - amount for unit, amount in booked.items() if amount})

    return restore


async def wait_unknown(branch: Branch, step: ToolStep) -> None:
    """Rest until an unknown effect is settled; what can be done about it is under way."""
    session = branch.session
    session.engine.settle_due(session)
    await session.parked(step.id, Waiting("unknown"), branch.idle)


async def wait_switch(branch: Branch, step: ToolStep, effect: Effect | None, refusal: SwitchedOff) -> None:
    """Record that the effect is not started, and rest while a switch stands."""
    if waits.opened_since(branch.session, step.tool, refusal.switch):
        return  # it is due for a probe already: this call may be it
    plan(branch.session, step, effect, waits.waiting_for(branch.session, step.tool, refusal.switch))
    await waits.wait_switch(branch, step, refusal.switch)


async def wait_pool(
    branch: Branch, step: ToolStep, effect: Effect | None, refusal: PoolShort, beside: frozenset[str]
) -> None:
    """Rest while a shared budget does not suffice; `beside` held some of it when it was asked."""
    plan(branch.session, step, effect, Waiting("budget"))
    await pools.wait(branch, step, refusal.short, beside)


async def wait_refused(
    branch: Branch,
    step: ToolStep,
    effect: Effect | None,
    refusal: SwitchedOff | PoolShort | OnceTaken | Halted,
    beside: frozenset[str],
) -> None:
    """Rest on what refused an append that is taken back; `beside` held reservations when it was asked for."""
    if isinstance(refusal, SwitchedOff):
        await wait_switch(branch, step, effect, refusal)
    elif isinstance(refusal, PoolShort):
        await wait_pool(branch, step, effect, refusal, beside)
    elif isinstance(refusal, OnceTaken):
        await wait_once(branch, step, effect, refusal)
    else:
        await waits.wait_halt(branch, step)


async def wait_once(branch: Branch, step: ToolStep, effect: Effect | None, refusal: OnceTaken) -> None:
    """Take over the outcome of whoever claimed the identity first, or rest until there is one."""
    session, row = branch.session, refusal.row
    plan(session, step, effect, Waiting("unknown"))
    now = session.engine.clock.now()
    first = f"run {row.run_id} claimed the same identity"
    if row.digest != step.bound.digest:
        why = f"{first} with other arguments (step {row.step})"
        failed = e.EffectFailed(at=now, step=step.id, attempt=0, why=why, reason="conflict", final=True)
        session.put(failed, once_settled=())
    elif row.outcome == "confirmed" and effect is not None and effect.attempt:  # tried before it was taken in here
        why = f"{first}, and has done it here (step {row.step})"
        failed = e.EffectFailed(
            at=now, step=step.id, attempt=effect.attempt, why=why, reason="conflict", final=True, by="once"
        )
        session.put(failed, once_settled=())
    elif row.outcome == "confirmed":
        stored = msgspec.Raw(row.result or b"null")
        result, chunks = session.stow(await starting.value_of(session.engine, row.run_id, stored))
        confirmed = e.EffectConfirmed(at=now, step=step.id, attempt=0, result=result, by="once", why=first, spent={})
        session.put(confirmed, once_settled=session.undone(step.id), chunks=chunks)
    else:
        value = step.tool.once_of(step.bound) or ""
        await waits.wait_once(branch, step, once_scope(session.tenant, step.tool.name, value))


def earlier_unsettled(effect: Effect, number: int) -> bool:
    """Say whether an attempt before this one may have happened, so that this one's failure settles only itself.

    Never of a read: it changes nothing, so the latest attempt alone says how it stands, and is counted.
    """
    return effect.effect != "read" and any(
        attempt.settled in {"", "absent"} for attempt in effect.doubt.attempts if attempt.number < number
    )


def still_open(session: Session, step: str) -> bool:
    """Say whether the effect that closed a branch is still unsettled."""
    effect = session.state.steps.get(step)
    return type(effect) is Effect and effect.open


def asked_delay(error: NotSent) -> int:
    """Return the delay that a provider asked for, in milliseconds; one that is malformed asks for nothing."""
    try:
        return 0 if error.retry_after is None else parse_ms(error.retry_after)
    except (ValueError, TypeError):
        return 0


def retry_delay(session: Session, tool: Tool[..., Any], attempt: int, error: Exception) -> int | None:
    """Return how long to wait before a failed read is tried again, None when it is not."""
    known = error if isinstance(error, NotSent) else classify(error)
    if isinstance(known, Rejected):
        return None
    floor = asked_delay(known) if isinstance(known, NotSent) else 0
    return tool.retry.delay_ms(attempt, session.engine.clock.chance(), floor_ms=floor)


def secrets_of(session: Session, step: str) -> Callable[[str], str]:
    """Return how an attempt reads secrets: each one's fingerprint is recorded before a byte can leave with it."""

    def read(name: str) -> str:
        value = session.engine.secrets(name)
        effect = session.state.steps.get(step)
        if type(effect) is not Effect:
            return value
        # Keyed with the store's id, so that equal secrets of two stores do not show.
        mark = hmac.new(session.engine.store.id.encode(), value.encode(), sha256).hexdigest()[:16]
        known = effect.credentials.get(name)
        if known is None:
            used = e.CredentialUsed(at=session.engine.clock.now(), step=effect.step, name=name, fingerprint=mark)
            session.engine.before_bytes(session, used)
        elif known != mark:
            why = f"secret {name!r} changed since the first attempt; a resend must use the same credential"
            raise CredentialChanged(why)
        return value

    return read
