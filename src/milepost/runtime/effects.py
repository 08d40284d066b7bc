"""The one place that sends.

A call of a tool becomes a step here. A free read is called and recorded. Everything else goes through the outcome
protocol:

  gate     what must hold before an attempt: listed, in scope, approved, paid for, not held. Where it does not, the step
           parks; it never raises into its siblings.
  start    `started` is appended with the epoch, the switches, the reservation, the approval and the identity in one
           transaction, and awaited. No byte leaves before. Then the lease is looked at once more.
  send     the tool's code runs, under its deadline.
  settle   what it did is recorded: confirmed, failed on positive evidence, else unknown. Never guessed.

What may go wrong here is listed in core/outcome.py. An attempt that outlives its run (another process took it, or it
was killed) writes nothing: it leaves what it saw in the inbox.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from milepost.core import entries as e
from milepost.core.codec import encode
from milepost.core.lease import may_send
from milepost.core.outcome import may_resend
from milepost.core.policy import Verdict
from milepost.core.steps import Effect, Read
from milepost.definitions.call import Call
from milepost.definitions.http import classify
from milepost.errors import Denied, EpochLost, InvalidValue, NotSent, Rejected, StepFailed, Waiting
from milepost.runtime import approvals, gates, pools, reads, waits
from milepost.runtime.attempts import TimedOut, attempt_call, call_for
from milepost.runtime.branch import Branch, ToolStep
from milepost.runtime.session import Session, Unloading
from milepost.stores.api import Once, OnceSettled, OnceTaken, SwitchedOff
from milepost.stores.pools import PoolShort, PoolSpent

if TYPE_CHECKING:
    from milepost.core.breaker import Event
    from milepost.core.messages import Sight
    from milepost.definitions.tools import Tool
    from milepost.runtime.session import Saw

    Tried = tuple[Event, ...]


def perform(branch: Branch, step: ToolStep) -> Coroutine[Any, Any, Any]:
    """Return what awaits a call: from the record, or for real. Raises Unloading, StepFailed, Denied or Diverged."""
    session, tool = branch.session, step.tool
    if session.unloading:
        raise Unloading
    if session.listed.get(tool.name) is not tool:
        raise StepFailed(step.path, f"tool {tool.name} is not listed by this workflow: add it to tools=[…]")
    if session.engine.writer.crowded or session.closing or branch.closed_by is not None:
        return _perform_later(branch, step)
    return _perform(branch, step)


async def _perform_later(branch: Branch, step: ToolStep) -> Any:
    session = branch.session
    if session.engine.writer.crowded:
        await session.engine.writer.room()
    while session.closing and not branch.answered(step.id):
        await session.parked(step.id, Waiting("switch"), branch.idle)
    while branch.closed_by is not None and gates.still_open(session, branch.closed_by):
        await session.parked(step.id, Waiting("unknown"), branch.idle)
    return await _perform(branch, step)


def _perform(branch: Branch, step: ToolStep) -> Coroutine[Any, Any, Any]:
    # No coroutine of its own: each level is gone through whenever the call is woken.
    record, tool = branch.claim(step), step.tool
    if tool.effect == "read" and not tool.costed and tool.approval is False and not isinstance(record, Effect):
        return _read(branch, step, record)
    return act(branch, step)


async def _read(branch: Branch, step: ToolStep, record: Read | None) -> Any:
    try:
        return await reads.read(branch, step, record)
    except reads.PersonAsked:  # by a rule of the policy: the question needs an effect to be about
        return await act(branch, step)


async def act(branch: Branch, step: ToolStep) -> Any:
    """Await an effect that took its place: from the record, or for real. Raises StepFailed, Denied."""
    session, tool = branch.session, step.tool
    while True:
        record = session.state.steps.get(step.id)
        effect = record if type(record) is Effect else None
        if effect is not None:
            if effect.outcome == "confirmed":
                return tool.result.read(await session.fetch(effect.result))
            if effect.outcome == "failed" and effect.final:
                raise (Denied if effect.reason == "denied" else StepFailed)(step.path, effect.why)
            if effect.outcome == "unknown" and tool.effect != "read":
                await gates.wait_unknown(branch, step)
                continue
            if effect.outcome == "started":
                await session.parked(step.id, Waiting("unknown"), branch.idle)
                continue
            if effect.retry_at is not None and session.engine.clock.now() < effect.retry_at:
                await session.parked(step.id, Waiting("time"), branch.idle)
                continue
        if session.unclaimed:
            await branch.barrier()
            continue
        if session.engine.halted:
            await waits.wait_halt(branch, step)
            continue
        waiting = gates.gate(session, step, effect)
        if isinstance(waiting, Verdict):
            gates.deny(session, step, effect, waiting)
            continue
        if waiting is not None:
            gates.plan(session, step, effect, waiting)
            await session.parked(step.id, waiting, branch.idle)
            continue
        branch.begin()
        await (transact if tool.effect == "transactional" else attempt_effect)(branch, step, effect)


async def attempt_effect(branch: Branch, step: ToolStep, effect: Effect | None) -> None:
    """Make one attempt of an effect that may start now, and record what is known of it."""
    session, tool = branch.session, step.tool
    number = 1 if effect is None else effect.attempt + 1
    undo = gates.before_start(session, step.id)
    entry = _started(session, step, effect, number)
    once = _identity(session, step, entry)
    lease, lapses = session.engine.lease_for(entry.at, tool.timeout_ms), session.engine.lapses
    closed, probe = approvals.stale(session, step, step.approval), waits.probe(session, tool, step.id, number)
    started = session.queue(*closed, entry, once=once, scopes=gates.scopes(session, tool), probe=probe, lease=lease)
    approvals.note_use(session, step, started)
    beside = pools.held_beside(session, step)
    try:
        await started
    except asyncio.CancelledError:
        _cancelled_before_send(session, step, number, started, undo)
        raise
    except EpochLost as lost:
        session.drop(lost)
        raise
    except (SwitchedOff, PoolShort, OnceTaken) as refusal:
        undo()
        await gates.wait_refused(branch, step, effect, refusal, beside)
        return
    session.engine.leased(lease)
    recorded = session.state.steps[step.id]
    assert type(recorded) is Effect
    await send(session, step, recorded, number, inside=branch, lapses=lapses)
    if tool.effect == "read" and recorded.outcome == "confirmed":
        await session.durable()  # an answer that was paid for is kept before anything is chosen by it


def _identity(session: Session, step: ToolStep, started: e.EffectStarted) -> Once | None:
    """Return the business identity to claim: with the first attempt, and again where that may have left no claim.

    So it is where the run was made elsewhere, and where a transactional tool was rolled back, its claim with it.
    """
    again = session.state.imported or step.tool.effect == "transactional"
    if not step.tool.once or (started.attempt > 1 and not again):
        return None
    value = step.tool.once_of(step.bound) or ""
    return Once(session.tenant, step.tool.name, value, step.id, step.bound.digest, started.attempt > 1)


def _started(session: Session, step: ToolStep, effect: Effect | None, number: int) -> e.EffectStarted:
    now = session.engine.clock.now()
    return e.EffectStarted(
        at=now,
        step=step.id,
        attempt=number,
        epoch=session.head.epoch,
        deadline=now + step.tool.timeout_ms,
        plan=gates.planned(session, step, now) if effect is None else None,
        resend=effect is not None and effect.outcome == "unknown",
        reserve=step.cost,
        approval=step.approval,
        rule=step.verdict.rule,
        policy=step.verdict.policy,
    )


def _cancelled_before_send(
    session: Session, step: ToolStep, number: int, started: asyncio.Future[Any], undo: Callable[[], None]
) -> None:
    """Record that nothing was sent: the segment was cancelled while `started` was being committed."""
    if session.dropped is not None:
        return
    if started.exception() is not None:
        _cancelled_and_refused(session, started, undo)
        return
    effect = session.state.steps[step.id]
    assert type(effect) is Effect
    _unsent(session, effect, number, "cancelled before it was sent")


def _cancelled_and_refused(session: Session, started: asyncio.Future[Any], undo: Callable[[], None]) -> None:
    """Take back what was never written: else the run would wait for an attempt that nobody made."""
    refusal = started.exception()
    if isinstance(refusal, EpochLost):
        session.drop(refusal)
    elif refusal is not None:
        undo()


def _unsent(
    session: Session, effect: Effect, number: int, why: str, again_ms: int | None = 0, tried: Tried = ()
) -> None:
    """Record that an attempt was never sent. It is made again after `again_ms`; None: not any more."""
    now = session.engine.clock.now()
    saw: Saw = (effect, number, "not_sent", b"null", why)
    if gates.earlier_unsettled(effect, number):
        settled = e.AttemptSettled(at=now, step=effect.step, attempt=number, reason="not_sent", why=why)
        session.put(settled, saw=saw, tried=tried)
        return
    failed = e.EffectFailed(
        at=now,
        step=effect.step,
        attempt=number,
        why=why,
        reason="not_sent",
        final=again_ms is None,
        retry_at=None if again_ms is None else now + again_ms,
    )
    session.put(failed, saw=saw, tried=tried)


def _held_back(session: Session, tool: Tool[..., Any], effect: Effect, number: int, lapses: int | None) -> str:
    """Return why an attempt whose `started` is durable is not sent after all, empty where it is."""
    engine = session.engine
    now = engine.clock.now()
    if (lapses is not None and lapses != engine.lapses) or not may_send(engine.lease_until, now):
        # Where somebody took the run, this append is refused, and what it says goes to the inbox. Where nobody did, the
        # run is still ours: to let go of it here would leave it with an owner who lives and does nothing.
        return "the lease had lapsed before it was sent"
    if engine.halted:
        return "everything was stopped before it was sent"
    again = number > 1 and any(not attempt.settled for attempt in effect.doubt.attempts[: number - 1])
    return "its key may have expired by now" if again and not may_resend(tool.facts, effect.doubt.attempts, now) else ""


async def send(
    session: Session,
    step: Any,
    effect: Effect,
    number: int,
    *,
    inside: Branch | None = None,
    lapses: int | None = None,
) -> None:
    """Run the tool's code for an attempt whose `started` is durable, and settle it.

    `lapses` is how often the lease had lapsed when `started` was queued. If it has lapsed since then, somebody may have
    taken the run after its epoch was checked, and nothing is sent, though the lease was renewed. None: it has not.
    """
    tool = step.tool
    engine = session.engine
    if session.dropped is not None:
        session.evidence(effect, number, "not_sent", why="the run was lost before it was sent")
        raise session.dropped
    why = _held_back(session, tool, effect, number, lapses)
    if why:
        _unsent(session, effect, number, why, tried=waits.says_nothing(session, tool, effect.step, number))
        return
    call = call_for(session, step, effect.key, number)
    try:
        value = await attempt_call(session, step, call)
    except asyncio.CancelledError:
        tried = waits.says_nothing(session, tool, effect.step, number)
        lose(session, effect, number, "it was cancelled while it was in flight", quiet=tool.is_async, tried=tried)
        if inside is not None:
            inside.closed_by = step.id
        raise
    except NotSent as error:
        _not_sent(session, step, effect, number, error)
    except Rejected as error:
        _rejected(session, tool, effect, number, engine.why(error), call)
    except TimedOut as error:
        if tool.effect == "read":
            _read_raised(session, step, effect, number, error, call)
        else:
            tried = waits.raised(session, tool, effect.step, number, error)
            lose(session, effect, number, str(error), quiet=tool.is_async, tried=tried)
    except Exception as error:  # noqa: BLE001  in a read whatever is raised is a failure, retried as declared
        known = classify(error)
        if tool.effect == "read":
            _read_raised(session, step, effect, number, error, call)
            return
        if isinstance(known, NotSent):
            _not_sent(session, step, effect, number, known)
        elif isinstance(known, Rejected):
            _rejected(session, tool, effect, number, engine.why(known), call)
        else:
            tried = waits.raised(session, tool, effect.step, number, error)
            lose(session, effect, number, engine.why(error), quiet=True, tried=tried)
    else:
        returned(session, tool, effect, number, value, call)


def returned(
    session: Session, tool: Tool[..., Any], effect: Effect, number: int, value: Any, call: Call | None
) -> None:
    """Record that an attempt returned: confirmed, or unknown where its result cannot be stored (a read has failed)."""
    tried = waits.answered(session, tool, effect.step, number)
    try:
        data = tool.result.write(value)
    except InvalidValue as error:
        if effect.effect == "read":
            _read_failed(session, effect, number, session.engine.why(error), None, call, tried)
            return
        lose(session, effect, number, f"it returned what cannot be stored: {error.why}", quiet=True, tried=tried)
        return
    if session.dropped is not None:
        session.evidence(effect, number, "returned", data)
        return
    settled = effect.doubt.attempts[number - 1].settled
    if settled not in {"", "returned"} and effect.effect != "read":  # a read changes nothing, so it contradicts nothing
        session.engine.contradicted(session, effect, f"attempt {number} returned after it was settled as {settled}")
        return
    raw, chunks = session.stow(data)
    spent = {**call.spending} if call is not None and call.spending else None
    now = session.engine.clock.now()
    if effect.outcome in {"started", "unknown"}:
        confirmed = e.EffectConfirmed(
            at=now,
            step=effect.step,
            attempt=number,
            result=raw,
            external=call.noted if call is not None else None,
            spent=spent,
        )
        alarm = pools.overspent(session, effect, number, spent)
        saw: Saw = (effect, number, "returned", data, "")
        session.put(confirmed, *alarm, chunks=chunks, saw=saw, tried=tried)


def raised_late(session: Session, effect: Effect, number: int, error: BaseException) -> None:
    """Keep what an exception proves of its attempt as evidence, where the run is lost."""
    known = error if isinstance(error, NotSent | Rejected) else classify(error)
    saw: Sight = "unknown"
    if known is not None:
        saw = "not_sent" if isinstance(known, NotSent) else "rejected"
    session.evidence(effect, number, saw, why=session.engine.why(known or error))


def lose(session: Session, effect: Effect, number: int, why: str, *, quiet: bool, tried: Tried = ()) -> None:
    """Record that nobody knows what an attempt did. `quiet` says that its code has returned."""
    why = session.engine.told(why)
    if session.dropped is not None:
        if quiet:  # evidence also says that the code has returned; a thread that still runs says so when it does
            session.evidence(effect, number, "unknown", why=why)
        return
    if effect.outcome not in {"started", "unknown"}:
        return
    now = session.engine.clock.now()
    unknown = e.EffectUnknown(at=now, step=effect.step, attempt=number, why=why, quiet_at=now if quiet else None)
    session.put(unknown, saw=(effect, number, "unknown", b"null", why) if quiet else None, tried=tried)


def _not_sent(session: Session, step: Any, effect: Effect, number: int, error: NotSent) -> None:
    if session.dropped is not None:
        session.evidence(effect, number, "not_sent", why=session.engine.why(error))
        return
    delay = step.tool.retry.delay_ms(number, session.engine.clock.chance(), floor_ms=gates.asked_delay(error))
    tried = waits.raised(session, step.tool, effect.step, number, error)
    _unsent(session, effect, number, session.engine.why(error), delay, tried)


def _rejected(session: Session, tool: Tool[..., Any], effect: Effect, number: int, why: str, call: Call | None) -> None:
    if session.dropped is not None:
        session.evidence(effect, number, "rejected", why=why)
        return
    tried = waits.says_nothing(session, tool, effect.step, number)
    now = session.engine.clock.now()
    saw: Saw = (effect, number, "rejected", b"null", why)
    if gates.earlier_unsettled(effect, number):
        settled = e.AttemptSettled(at=now, step=effect.step, attempt=number, reason="rejected", why=why)
        session.put(settled, saw=saw, tried=tried)
        return
    spent = {**call.spending} if call is not None and call.spending else None
    failed = e.EffectFailed(
        at=now, step=effect.step, attempt=number, why=why, reason="rejected", final=True, spent=spent
    )
    session.put(failed, *pools.overspent(session, effect, number, spent), saw=saw, tried=tried)


def _read_raised(session: Session, step: Any, effect: Effect, number: int, error: Exception, call: Call | None) -> None:
    """Record a failed try of a read that costs: a read is never in doubt, and its tries are bounded by `retry=`.

    Each try is paid for by itself: this one is settled, and the next one reserves anew.
    """
    why, delay = session.engine.why(error), gates.retry_delay(session, step.tool, number, error)
    tried = waits.raised(session, step.tool, effect.step, number, error)
    _read_failed(session, effect, number, why, delay, call, tried)


def _read_failed(
    session: Session, effect: Effect, number: int, why: str, delay: int | None, call: Call | None, tried: Tried
) -> None:
    if session.dropped is not None:
        return
    spent = {**call.spending} if call is not None and call.spending else None
    if spent is None:  # what it really cost is not known: the worst case
        spent = dict(session.state.ledger.reserved.get(effect.step, {}))
    now = session.engine.clock.now()
    failed = e.EffectFailed(
        at=now,
        step=effect.step,
        attempt=number,
        why=why,
        reason="raised",
        final=delay is None,
        retry_at=None if delay is None else now + delay,
        spent=spent,
    )
    session.put(failed, *pools.overspent(session, effect, number, spent), tried=tried)


# ---------------------------------------------------------------- transactional tools


async def transact(branch: Branch, step: ToolStep, effect: Effect | None) -> None:
    """Run a transactional tool inside the append: its effect and its outcome commit together, or not at all."""
    session, tool = branch.session, step.tool
    number = 1 if effect is None else effect.attempt + 1
    undo = gates.before_start(session, step.id)
    settled: list[OnceSettled] = []
    spent: list[PoolSpent] = []
    done: list[e.Entry] = []
    chunks: dict[str, bytes] = {}
    started = _started(session, step, effect, number)
    once = _identity(session, step, started)

    def work(tx: Any) -> list[bytes]:
        raw, chunk = session.stow(tool.result.write(step.bound.call(tool.fn, tx)))
        chunks.update(chunk or {})
        confirmed = e.EffectConfirmed(at=session.engine.clock.now(), step=step.id, attempt=number, result=raw)
        done.append(confirmed)
        spent[:] = pools.settled_at_once(session, step)
        if once is not None:
            settled.append(OnceSettled(once.tenant, once.tool, once.value, "confirmed", bytes(raw), step.id))
        settled.extend(session.undone(step.id))
        return [encode(confirmed)]

    future = session.queue(
        *approvals.stale(session, step, step.approval),
        started,
        once=once,
        scopes=gates.scopes(session, tool),
        work=gates.unless_halted(session.engine.store.local, gates.certain(work)),
        once_settled=settled,
        spent=spent,
        chunks=chunks,
    )
    approvals.note_use(session, step, future)
    beside = pools.held_beside(session, step)
    try:
        await future
    except asyncio.CancelledError:
        _cancelled_and_refused(session, future, undo)
        raise
    except EpochLost as lost:
        session.drop(lost)
        raise
    except (SwitchedOff, PoolShort, OnceTaken, gates.Halted) as refusal:
        undo()
        await gates.wait_refused(branch, step, effect, refusal, beside)
    except gates.WorkFailed as failure:
        undo()
        _rolled_back(session, step, effect, number, failure.error)
    except Rejected as refusal:  # by the store: a statement of the tool took more back than its own
        undo()
        _rolled_back(session, step, effect, number, refusal)
    finally:
        if future.done() and not future.cancelled() and future.exception() is None and done:
            session.applied(done[-1])


def _rolled_back(session: Session, step: ToolStep, effect: Effect | None, number: int, error: Exception) -> None:
    """Record a transactional failure: rolled back together with its `started`, so certainly nothing of it happened."""
    engine = session.engine
    final = isinstance(error, Rejected | InvalidValue)
    delay = None if final else step.tool.retry.delay_ms(number, engine.clock.chance())
    now = engine.clock.now()
    failed = e.EffectFailed(
        at=now,
        step=step.id,
        attempt=number,
        why=engine.why(error),
        reason="rejected",
        final=delay is None,
        retry_at=None if delay is None else now + delay,
    )
    # Its reservation was rolled back as well: the next attempt makes it anew.
    started = msgspec.structs.replace(_started(session, step, effect, number), reserve={})
    session.put(*approvals.stale(session, step, step.approval), started, failed)
