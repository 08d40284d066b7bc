"""Messages to entries: what an operator, a signal, a child or a fenced worker may change, decided without I/O.

A message that cannot be applied is answered with MessageRefused, so that nothing that was said is lost.

Late evidence is the subtle one. Where it speaks of an attempt that nobody has settled, it settles it. Where it says
that an attempt returned which was settled as *not* having happened, the record is contradicted, whatever came of the
effect since: the run blocks, and neither `retry` nor anything automatic starts that effect again. Only a person who
says what is true of exactly this effect (`resolve`) lifts it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from milepost.core import answers
from milepost.core import entries as e
from milepost.core import messages as m
from milepost.core.code_entries import Resumed
from milepost.core.limit_entries import Narrowed
from milepost.core.state import IMPORTED
from milepost.core.steps import Effect

if TYPE_CHECKING:
    from collections.abc import Callable

    from milepost.core.state import RunState


def journal(state: RunState, message: m.AnyMessage, now: int) -> list[e.Entry]:
    """Return the entries that a message becomes."""
    return _RULES[type(message)](state, message, now)


def _send(state: RunState, message: m.Send, now: int) -> list[e.Entry]:
    if state.ended:
        return _refused(message, now, f"the run is {state.status}")
    return [e.SignalSent(at=now, signal=e.Signal(message.id, message.name, message.value))]


def _cancel(state: RunState, message: m.Cancel, now: int) -> list[e.Entry]:
    if state.ended:
        return _refused(message, now, f"the run is {state.status}")
    return [e.CancelAsked(at=now, by=message.by, why=message.why)]


def _grant(_: RunState, message: m.Grant, now: int) -> list[e.Entry]:
    return [e.Widened(at=now, by=message.by, scopes=message.scopes, budget=message.budget, why=message.why)]


def _revoke(_: RunState, message: m.Revoke, now: int) -> list[e.Entry]:
    narrowed = Narrowed(at=now, by=message.by, scopes=message.scopes, ceilings=message.ceilings, why=message.why)
    return [narrowed]


def _child(state: RunState, message: m.Child, now: int) -> list[e.Entry]:
    if state.children.get(message.child, "running") != "running":
        return []  # told twice
    ended = e.ChildEnded(at=now, child=message.child, status=message.status, result=message.result, why=message.why)
    return [ended]


def _recheck(_: RunState, __: m.Recheck, ___: int) -> list[e.Entry]:
    return []  # that it was taken up is all


def _retry(state: RunState, message: m.Retry, now: int) -> list[e.Entry]:
    contradicted = _contradictions(state, message, now)
    if not contradicted and not may_retry(state.status, state.code):
        lifted = ": a block is lifted with milepost resume" if state.status == "blocked" else ""
        return _refused(message, now, f"the run is {state.status}, only a failed segment is entered again{lifted}")
    return contradicted or [e.Retried(at=now, by=message.by, why=message.why)]


def may_retry(status: str, code: str) -> bool:
    """Say whether what failed may be tried anew: a segment, its completion condition, or undoing an effect."""
    return status == "failed" or (status == "blocked" and code in {"condition_failed", "not_undone"})


def _resume(state: RunState, message: m.Resume, now: int) -> list[e.Entry]:
    if state.status != "blocked":
        return _refused(message, now, f"the run is {state.status}, only a blocked one is resumed")
    resumed = Resumed(at=now, by=message.by, why=message.why, was=state.code)
    return _contradictions(state, message, now) or [resumed]


def _contradictions(state: RunState, message: m.Message, now: int) -> list[e.Entry]:
    contradicted = [effect.path for effect in state.effects() if effect.contradicted]
    if not contradicted:
        return []
    why = f"{', '.join(contradicted)} may have happened: say what is true of it with milepost resolve"
    return _refused(message, now, why)


def _refused(message: m.Message, now: int, why: str) -> list[e.Entry]:
    kind = str(type(message).__struct_config__.tag).partition(".")[0]
    return [e.MessageRefused(at=now, kind=kind, why=why, by=message.by)]


def find_effect(state: RunState, path: str) -> Effect | None:
    """Return the effect of the current visit with this path or step identity."""
    return next((effect for effect in state.effects() if path in {effect.path, effect.step}), None)


def _resolve(state: RunState, message: m.Resolve, now: int) -> list[e.Entry]:
    effect = find_effect(state, message.path)
    if effect is None:
        return _refused(message, now, f"there is no open effect {message.path}")
    doubted = effect.contradicted or effect.verify_from is not None
    if effect.outcome == "started" or not (doubted or effect.outcome == "unknown"):
        return _refused(message, now, f"{effect.path} is {effect.outcome}, only an unknown effect is resolved")
    entries = [_settled_by_person(state, effect, message, now)]
    others = any(other.contradicted for other in state.effects() if other is not effect)
    lifts = state.status == "blocked" and state.code != IMPORTED  # to drive it here is another decision
    if effect.contradicted and lifts and not others:
        entries.append(e.Retried(at=now, by=message.by, why=f"{effect.path} was looked into: {message.why}"))
    return entries


def _settled_by_person(state: RunState, effect: Effect, message: m.Resolve, now: int) -> e.Entry:
    by, step, attempt = f"person {message.by}", effect.step, effect.attempt
    if message.answer == "happened" and effect.outcome != "confirmed":
        return e.EffectConfirmed(at=now, step=step, attempt=attempt, result=message.value, by=by, why=message.why)
    if effect.outcome != "unknown":  # the outcome stands: it was looked into, and that is written down
        return e.FindingRecorded(at=now, step=step, answer=message.answer, evidence=message.why, by=by)
    final = message.answer == "rejected" or state.ended
    return e.EffectFailed(
        at=now,
        step=step,
        attempt=attempt,
        why=message.why,
        reason="rejected" if message.answer == "rejected" else "person",
        final=final,
        retry_at=None if final else now,
        by=by,
    )


def _evidence(state: RunState, message: m.Evidence, now: int) -> list[e.Entry]:
    effect = state.steps.get(message.step)
    if message.visit != state.visit or type(effect) is not Effect or not 1 <= message.attempt <= effect.attempt:
        return _late(state, message, now)
    if message.key and message.key != effect.key:  # its segment was entered again, and made another effect of it
        return _late(state, message, now)
    attempt = effect.doubt.attempts[message.attempt - 1]
    if message.saw == "returned":
        if attempt.settled not in {"", "returned"}:
            return _contradiction(state, message, now, step=effect.step, tool=effect.tool)
        if effect.outcome != "unknown":
            return []  # it is known already that it happened
        confirmed = e.EffectConfirmed(
            at=now, step=effect.step, attempt=message.attempt, result=message.value, by="evidence", why=message.why
        )
        return [confirmed]
    entries: list[e.Entry] = []
    if attempt.quiet_at is None and effect.outcome == "unknown":
        entries.append(e.AttemptQuieted(at=now, step=effect.step, attempt=message.attempt, quiet_at=message.at))
    if effect.outcome == "unknown" and message.saw in {"not_sent", "rejected"} and not attempt.settled:
        settled = e.AttemptSettled(
            at=now, step=effect.step, attempt=message.attempt, reason=message.saw, why=message.why
        )
        entries.append(settled)
        if all(a.settled for a in effect.doubt.attempts if a is not attempt):
            final = message.saw == "rejected" or state.ended
            failed = e.EffectFailed(
                at=now,
                step=effect.step,
                attempt=message.attempt,
                why=message.why,
                reason=message.saw,
                final=final,
                retry_at=None if final else now,
                by="evidence",
            )
            entries.append(failed)
    return entries


def _contradiction(state: RunState, message: m.Evidence, now: int, *, step: str, tool: str) -> list[e.Entry]:
    seen = f"attempt {message.attempt} of {message.path} returned after all, under an earlier epoch than {state.epoch}"
    contradicted = e.Contradicted(at=now, step=step, evidence=seen, by=message.by, tool=tool)
    if state.ended:
        return [contradicted]
    return [contradicted, *blocked(message.path, message.why or "late evidence of success", now)]


def blocked(path: str, why: str, now: int) -> list[e.Entry]:
    """Return the entry that blocks a run whose record is contradicted."""
    return [e.RunStopped(at=now, status="blocked", code="contradicted", why=f"{path}: {why}")]


def _late(state: RunState, message: m.Evidence, now: int) -> list[e.Entry]:
    failed = [marker for marker in (*state.finished, *state.reopened) if marker.outcome == "failed"]
    keys = {marker.key for marker in failed if marker.path == message.path}
    if message.saw == "returned" and keys and (message.key in keys or "" in {message.key, *keys}):
        # Another effect may stand at that step by now, so the contradiction names none.
        tool = message.path.rpartition("/")[2].partition("#")[0]
        return _contradiction(state, message, now, step="", tool=tool)
    return _refused(message, now, f"evidence for {message.path}, which was settled before ({message.saw})")


_RULES: dict[type[m.AnyMessage], Callable[[RunState, Any, int], list[e.Entry]]] = {
    m.Send: _send,
    m.Cancel: _cancel,
    m.Grant: _grant,
    m.Revoke: _revoke,
    m.Answer: answers.journal,
    m.Resolve: _resolve,
    m.Evidence: _evidence,
    m.Child: _child,
    m.Retry: _retry,
    m.Recheck: _recheck,
    m.Resume: _resume,
}  # m.Rewind is decided on the whole record and on today's tools: see runtime/rewinding.py
