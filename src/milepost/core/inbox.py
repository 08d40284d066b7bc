"""Messages to entries: what an operator, a signal, a child or a fenced worker may change, decided without I/O.

A message that cannot be applied is answered with MessageRefused, so that nothing that was said is lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from milepost.core import entries as e
from milepost.core import messages as m
from milepost.core.steps import Effect

if TYPE_CHECKING:
    from milepost.core.state import RunState


def journal(state: RunState, message: m.AnyMessage, now: int) -> list[e.Entry]:
    """Return the entries that a message becomes."""
    match message:
        case m.Send():
            if state.ended:
                return _refused(message, now, f"the run is {state.status}")
            return [e.SignalSent(at=now, signal=e.Signal(message.id, message.name, message.value))]
        case m.Cancel():
            if state.ended:
                return _refused(message, now, f"the run is {state.status}")
            return [e.CancelAsked(at=now, by=message.by, why=message.why)]
        case m.Grant():
            widened = e.Widened(at=now, by=message.by, scopes=message.scopes, budget=message.budget, why=message.why)
            return [widened]
        case m.Answer():
            return _answer(state, message, now)
        case m.Resolve():
            return _resolve(state, message, now)
        case m.Evidence():
            return _evidence(state, message, now)
        case m.Child():
            ended = e.ChildEnded(
                at=now, child=message.child, status=message.status, result=message.result, why=message.why
            )
            return [ended] if state.children.get(message.child) == "running" else []
        case m.Retry():
            if state.status not in {"failed", "blocked"}:
                return _refused(message, now, f"the run is {state.status}, only a failed or blocked one is retried")
            return [e.Retried(at=now, by=message.by, why=message.why)]


def _refused(message: m.Message, now: int, why: str) -> list[e.Entry]:
    kind = str(type(message).__struct_config__.tag).partition(".")[0]
    return [e.MessageRefused(at=now, kind=kind, why=why, by=message.by)]


def _answer(state: RunState, message: m.Answer, now: int) -> list[e.Entry]:
    approval = state.approvals.get(message.approval)
    if approval is None:
        return _refused(message, now, f"approval {message.approval} is not asked here")
    if approval.verdict != "asked":
        return _refused(message, now, f"approval {message.approval} is {approval.verdict} already")
    answered = e.ApprovalAnswered(
        at=now, id=message.approval, approved=message.approved, by=message.by, why=message.why
    )
    if message.approved:
        return [answered]
    why = f"denied by {message.by}: {message.why}"
    failed = e.EffectFailed(
        at=now, step=approval.step, attempt=0, why=why, reason="denied", final=True, by=f"person {message.by}"
    )
    return [answered, failed]


def find_effect(state: RunState, path: str) -> Effect | None:
    """Return the effect of the current visit with this path or step identity."""
    return next((effect for effect in state.effects() if path in {effect.path, effect.step}), None)


def _resolve(state: RunState, message: m.Resolve, now: int) -> list[e.Entry]:
    effect = find_effect(state, message.path)
    if effect is None:
        return _refused(message, now, f"there is no open effect {message.path}")
    by = f"person {message.by}"
    if effect.contradicted:
        return [e.Retried(at=now, by=message.by, why=f"{effect.path} was looked into: {message.why}")]
    if effect.outcome != "unknown":
        return _refused(message, now, f"{effect.path} is {effect.outcome}, only an unknown effect is resolved")
    if message.answer == "happened":
        confirmed = e.EffectConfirmed(
            at=now, step=effect.step, attempt=effect.attempt, result=message.value, by=by, why=message.why
        )
        return [confirmed]
    final = message.answer == "rejected" or state.ended
    reason = "rejected" if message.answer == "rejected" else "person"
    failed = e.EffectFailed(
        at=now, step=effect.step, attempt=effect.attempt, why=message.why, reason=reason, final=final, retry_at=now, by=by
    )
    return [failed]


def _evidence(state: RunState, message: m.Evidence, now: int) -> list[e.Entry]:
    effect = state.steps.get(message.step)
    if message.visit != state.visit or type(effect) is not Effect or message.attempt > effect.attempt:
        return _late(state, message, now)
    attempt = effect.doubt.attempts[message.attempt - 1]
    if effect.outcome == "unknown" and message.saw == "returned":
        confirmed = e.EffectConfirmed(
            at=now, step=effect.step, attempt=message.attempt, result=message.value, by="evidence", why=message.why
        )
        return [confirmed]
    if effect.outcome == "failed" and message.saw == "returned":
        return [_contradiction(state, message, now), *blocked(effect.path, message.why or "late evidence", now)]
    entries: list[e.Entry] = []
    if attempt.quiet_at is None and effect.outcome == "unknown":
        entries.append(e.AttemptQuieted(at=now, step=effect.step, attempt=message.attempt, quiet_at=message.at))
    if effect.outcome == "unknown" and message.saw in {"not_sent", "rejected"} and not attempt.settled:
        settled = e.AttemptSettled(
            at=now, step=effect.step, attempt=message.attempt, reason=message.saw, why=message.why
        )
        entries.append(settled)
        if all(a.settled for a in effect.doubt.attempts if a is not attempt):
            failed = e.EffectFailed(
                at=now,
                step=effect.step,
                attempt=message.attempt,
                why=message.why,
                reason=message.saw,
                final=message.saw == "rejected",
                retry_at=now,
                by="evidence",
            )
            entries.append(failed)
    return entries


def _contradiction(state: RunState, message: m.Evidence, now: int) -> e.Entry:
    seen = f"attempt {message.attempt} of {message.path} returned after all, under an earlier epoch than {state.epoch}"
    return e.Contradicted(at=now, step=message.step, evidence=seen, by=message.by)


def blocked(path: str, why: str, now: int) -> list[e.Entry]:
    """Return the entry that blocks a run whose record is contradicted."""
    return [e.RunStopped(at=now, status="blocked", code="contradicted", why=f"{path}: {why}")]


def _late(state: RunState, message: m.Evidence, now: int) -> list[e.Entry]:
    failed = {marker.path for marker in state.finished if marker.outcome == "failed"}
    if message.saw == "returned" and message.path in failed:
        entries = [_contradiction(state, message, now)]
        return entries if state.ended else [*entries, *blocked(message.path, "late evidence of success", now)]
    return _refused(message, now, f"evidence for {message.path}, which was settled before ({message.saw})")
