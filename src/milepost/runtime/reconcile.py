"""Settling what nobody knows: asks, resends, and the moment when only a person helps.

One settler at a time works on an effect. It does what `next_move` allows now, and ends when nothing may be done before
a moment or an event; `settle_due` starts it again then. Every finding is recorded with its evidence before anything
follows from it. An exception in a reconciler is *still unknown*: it says nothing about the effect.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from milepost.core import entries as e
from milepost.core.authority import expired, missing_scopes
from milepost.core.decide import may_act, move_for
from milepost.core.inbox import blocked
from milepost.core.outcome import Ask, Move, Person, ProvenAbsent, Resend, ask_delay_ms
from milepost.core.policy import Verdict
from milepost.core.steps import Effect
from milepost.definitions.call import Finding
from milepost.errors import EpochLost, InvalidArguments, InvalidValue, MilepostError, RunBlocked
from milepost.runtime import effects, gates, ruling, waits
from milepost.runtime.attempts import attempt_call, call_for
from milepost.stores.api import Status, SwitchedOff

if TYPE_CHECKING:
    from milepost.definitions.arguments import Bound
    from milepost.definitions.tools import Reconciler, Tool
    from milepost.runtime.session import Session

EVIDENCE_CHARS = 2_000


@dataclass(slots=True)
class Asking:
    """A recorded effect with today's code for it: what a settler sends or asks with."""

    tool: Tool[..., Any]
    bound: Bound
    id: str
    path: str
    verdict: Verdict = ruling.NO_POLICY


@dataclass(slots=True)
class Question:
    """A reconciler dressed as a tool, to be called as one: its code, and whether it is async and takes the Call."""

    name: str
    fn: Any
    is_async: bool
    takes: str | None
    timeout_ms: int


def settle_due(session: Session) -> None:
    """Start a settler for each effect about which something may be done now."""
    if session.dropped is not None or session.draining:
        return
    doubtful = [effect for effect in session.state.effects() if _open(effect) and effect.step not in session.settlers]
    if not doubtful:
        return
    world = session.world()
    for effect in doubtful:
        move = move_for(effect, world)
        if may_act(effect, move):
            if isinstance(move, Ask | Resend) and waits.halted(session, effect.step):
                continue
            later = session.polls.get(effect.step, 0) > world.now or ruling.held_back(session, effect.step) is not None
            if later and isinstance(move, Resend):
                continue
            task = asyncio.get_running_loop().create_task(_settle(session, effect))
            session.settlers[effect.step] = task


def _open(effect: Effect) -> bool:
    return effect.outcome == "unknown" or (effect.outcome == "confirmed" and effect.verify_from is not None)


async def _settle(session: Session, effect: Effect) -> None:
    try:
        while session.dropped is None and not session.draining and _open(effect):
            if not await _act(session, effect, move_for(effect, session.world())):
                break
    except EpochLost as error:
        session.drop(error)
    except MilepostError as error:
        if session.dropped is None:
            session.stop(error)
    finally:
        session.settlers.pop(effect.step, None)
        if session.dropped is None:
            session.changed()
            session.check_soon()


async def _act(session: Session, effect: Effect, move: Move) -> bool:
    """Do what is allowed now; return whether to look again at once."""
    now = session.engine.clock.now()
    match move:
        case Ask() | Resend() if waits.halted(session, effect.step):
            return False
        case Ask():
            await _ask(session, effect)
            return True
        case Resend():
            return await _resend(session, effect)
        case ProvenAbsent(final=final, why=why):
            final = final or session.state.ended
            absent = e.EffectFailed(
                at=now,
                step=effect.step,
                attempt=effect.attempt,
                why=why,
                reason="absent",
                final=final,
                retry_at=None if final else now,
                by="finding",
            )
            session.put(absent)
            return False
        case Person(why=why, passing=False) if not effect.doubt.person:
            session.put(e.PersonNeeded(at=now, step=effect.step, why=why))
            return False
        case _:
            return False


def _asking(session: Session, effect: Effect) -> Asking | None:
    """Return the effect with today's code, or None (and a person) where its arguments no longer fit."""
    tool = session.tools[effect.tool]
    try:
        bound = tool.arguments.read(bytes(effect.args))
    except InvalidArguments as error:
        why = session.engine.told(f"its recorded arguments no longer fit the tool: {error.why}")
        session.put(e.PersonNeeded(at=session.engine.clock.now(), step=effect.step, why=why))
        return None
    return Asking(tool, bound, effect.step, effect.path)


async def _resend(session: Session, effect: Effect) -> bool:
    asking = _asking(session, effect)
    if asking is None:
        return False
    engine, now = session.engine, session.engine.clock.now()
    authority = session.state.held(session.about.authority)
    if missing_scopes(authority, asking.tool.scopes, now):
        session.put(e.PersonNeeded(at=now, step=effect.step, why="a resend needs scopes that the run no longer holds"))
        return False
    if expired(authority, now):
        session.put(e.PersonNeeded(at=now, step=effect.step, why="the authority to send it again has expired"))
        return False
    if not ruling.may_send_again(session, asking, effect):
        return False
    number = effect.attempt + 1
    entry = e.EffectStarted(
        at=now,
        step=effect.step,
        attempt=number,
        epoch=session.head.epoch,
        deadline=now + asking.tool.timeout_ms,
        resend=True,
        rule=asking.verdict.rule,
        policy=asking.verdict.policy,
    )
    undo = gates.before_start(session, effect.step)
    lease, lapses = engine.lease_for(engine.clock.now(), asking.tool.timeout_ms), engine.lapses
    try:
        await session.durable(
            entry,
            scopes=gates.scopes(session, asking.tool),
            probe=waits.probe(session, asking.tool, effect.step, number),
            lease=lease,
        )
    except SwitchedOff as refusal:
        undo()
        if effect.outcome != "unknown":
            return False
        if waits.opened_since(session, asking.tool, refusal.switch):
            return True
        waits.later(session, asking.tool, effect.step, refusal.switch)
        return False
    engine.leased(lease)
    waits.no_more(session, effect.step)
    if effect.outcome != "unknown":  # settled while its start was being written: nothing is sent any more
        session.put(tried=waits.says_nothing(session, asking.tool, effect.step, number))
        return False
    await effects.send(session, asking, effect, number, lapses=lapses)
    return True


async def _ask(session: Session, effect: Effect) -> None:
    asking = _asking(session, effect)
    if asking is None:
        return
    reconciler = asking.tool.reconciler
    assert reconciler is not None, "Ask is only decided for a tool that can be asked"
    asked_at = session.engine.clock.now()
    finding, evidence = await _question(session, effect, asking, reconciler)
    if session.dropped is not None or not _open(effect):
        return
    _record(session, effect, asking.tool, finding, evidence, asked_at)


async def _question(
    session: Session, effect: Effect, asking: Asking, reconciler: Reconciler
) -> tuple[Finding[Any], str]:
    takes = "call" if reconciler.takes_call else None
    question = Question(
        f"reconciler of {asking.tool.name}", reconciler.fn, reconciler.is_async, takes, asking.tool.timeout_ms
    )
    asked = Asking(question, asking.bound, asking.id, asking.path)  # type: ignore[arg-type]
    call = call_for(session, asked, effect.key, effect.attempt)
    try:
        finding = await attempt_call(session, asked, call)
    except asyncio.CancelledError:
        raise
    except Exception as error:  # noqa: BLE001  an exception in a reconciler says nothing about the effect
        return Finding("still_unknown"), session.engine.why(error)
    if not isinstance(finding, Finding):
        return Finding("still_unknown"), f"the reconciler returned {type(finding).__name__}, not a Finding"
    clean = session.engine.redactor.clean(finding.why)
    return replace(finding, why=clean), clean


def _record(
    session: Session, effect: Effect, tool: Tool[..., Any], finding: Finding[Any], evidence: str, asked_at: int
) -> None:
    now = session.engine.clock.now()
    data = b"null"
    if finding.answer == "happened":
        try:
            data = tool.result.write(finding.value)
        except InvalidValue as error:
            why = f"it happened, but its result cannot be stored: {error.why}"
            finding, evidence = Finding("still_unknown"), session.engine.told(why)
    again = finding.ask_again_ms if finding.ask_again_ms is not None else ask_delay_ms(effect.doubt.asks + 1)
    ask_at = now + again if finding.answer == "still_unknown" else 0
    noted = e.FindingRecorded(
        at=asked_at, step=effect.step, answer=finding.answer, evidence=evidence[:EVIDENCE_CHARS], ask_at=ask_at
    )
    if finding.answer == "conflict":
        _conflict(session, effect, noted, now)
        return
    if effect.outcome == "confirmed" or finding.answer in {"did_not_happen", "still_unknown"}:
        session.put(noted)
    elif finding.answer == "happened":
        raw, chunks = session.stow(data)
        confirmed = e.EffectConfirmed(
            at=now, step=effect.step, attempt=effect.attempt, result=raw, by="finding", why=evidence[:EVIDENCE_CHARS]
        )
        session.put(noted, confirmed, chunks=chunks)
    else:
        failed = e.EffectFailed(
            at=now,
            step=effect.step,
            attempt=effect.attempt,
            why=finding.why,
            reason="rejected",
            final=True,
            by="finding",
        )
        session.put(noted, failed)


def _conflict(session: Session, effect: Effect, noted: e.FindingRecorded, now: int) -> None:
    why = f"conflict at {effect.path} of run {session.run_id}: {noted.evidence}"
    if effect.outcome == "confirmed":
        session.put(noted)
        contradicted(session, effect, noted.evidence or "found more than once")
        return
    needed = e.PersonNeeded(at=now, step=effect.step, why=f"conflict: {noted.evidence}")
    session.put(noted, needed, holds=[waits.hold(session.run_id, effect.path, effect.tool, why, now)])


def contradicted(session: Session, effect: Effect, evidence: str) -> None:
    """Record evidence against a terminal outcome: the run blocks, the tool is held, a person is called."""
    now = session.engine.clock.now()
    entries: list[e.Entry] = [e.Contradicted(at=now, step=effect.step, evidence=evidence, by=session.engine.worker)]
    status = None
    if not session.state.ended:
        entries.extend(blocked(effect.path, evidence, now))
        ask = f"milepost resolve {session.run_id} {effect.path} --happened VALUE --why …"
        status = Status("blocked", now, "person", None, ask, f"contradicted: {effect.path}: {evidence}")
    why = f"contradicted at {effect.path} of run {session.run_id}: {evidence}"
    session.put(*entries, status=status, holds=[waits.hold(session.run_id, effect.path, effect.tool, why, now)])
    session.stop(RunBlocked(session.run_id, "contradicted", evidence))
