"""What is true of a run: `fold(boundary, entries)`, one entry at a time through `apply`.

`RunState` is changed by `apply` and by nothing else, so that a run in memory and a run just loaded are the same thing.
Entries that contradict what is already known are a defect or a forgery, and are refused (IllegalOutcome, Damaged).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from milepost.core import awaiting, limits
from milepost.core import code_entries as c
from milepost.core import entries as e
from milepost.core import limit_entries as n
from milepost.core.approval import Approval, Approvals
from milepost.core.approval_entries import ApprovalClosed
from milepost.core.budget import Ledger
from milepost.core.outcome import Attempt, change
from milepost.core.pools import failed_for, settles
from milepost.core.provenance import heard
from milepost.core.steps import Effect, Read, Step
from milepost.core.word_entries import WordSigned
from milepost.errors import Damaged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from milepost.core.authority import Granted

ENDED = frozenset({"done", "failed", "cancelled", "killed"})
IMPORTED = "imported"


@dataclass(slots=True)
class RunState:
    """A run as its record says it is."""

    run: str
    status: str = "ready"
    about_digest: str = ""
    manifest_digest: str = ""
    code_digest: str = ""  # the manifest of the code that went on last: the boundary's own, or what came after it
    code_changes: tuple[str, ...] = ()
    refused_digest: str = ""
    epoch: int = 0
    owner: str = ""
    owners: dict[int, str] = field(default_factory=dict)
    visit: int = 0
    segment: str | None = None
    state: msgspec.Raw = field(default_factory=msgspec.Raw)
    state_root: str | None = None
    visits: dict[str, int] = field(default_factory=dict)
    finished_segment: str | None = None
    finished: tuple[e.Marker, ...] = ()
    finished_root: str | None = None
    reopened: tuple[e.Marker, ...] = ()  # what failed in this visit and was given up, kept against late evidence
    steps: dict[str, Step] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=Ledger)
    overspent: e.Amounts = field(default_factory=dict)
    scopes: tuple[str, ...] = ()
    revoked: tuple[str, ...] = ()
    approvals: Approvals = field(default_factory=Approvals)
    words: tuple[str, ...] = ()
    signals: list[e.Signal] = field(default_factory=list)
    children: dict[str, str] = field(default_factory=dict)
    heard: tuple[str, ...] = ()
    child_results: dict[str, e.ChildEnded] = field(default_factory=dict)
    cancel: tuple[str, str] | None = None
    rewind: e.RewindAsked | None = None
    imported: bool = False  # in this visit: what its effects claimed elsewhere may be another run's here
    segment_attempt: int = 0
    generation: int = 0
    retry_at: int | None = None
    code: str = ""
    why: str = ""
    result: msgspec.Raw | None = None
    result_root: str | None = None
    waits_for: str = ""
    short: int = 0  # how often it parked for money since it last got some
    until: int | None = None
    ask: str = ""
    seq: int = 0

    @property
    def ended(self) -> bool:
        """Whether the run will start nothing more by itself."""
        return self.status in ENDED

    def held(self, authority: Granted) -> Granted:
        """Return the authority that the run has by now, where this is what its latest boundary says."""
        return authority.widened(self.scopes).narrowed(self.revoked)

    def effects(self) -> Iterable[Effect]:
        """Yield the effects of the current visit, in the order they were recorded."""
        return (step for step in self.steps.values() if type(step) is Effect)

    def unsettled(self) -> list[Effect]:
        """Return the effects whose outcome is started or unknown."""
        return [step for step in self.effects() if step.open]

    def apply(self, entry: e.Entry) -> None:
        """Change the state as the entry says.

        Raises IllegalOutcome for a transition that is not in the table, Damaged for an entry about what is not there.
        """
        self.seq += 1
        rule = _RULES.get(type(entry))
        if rule is not None:
            rule(self, entry)


def fold(run: str, entries: Iterable[e.Entry]) -> RunState:
    """Return the state of a run from its latest boundary and what follows it."""
    state = RunState(run)
    for entry in entries:
        state.apply(entry)
    return state


def _boundary(s: RunState, boundary: e.Boundary) -> None:
    s.about_digest, s.manifest_digest = boundary.about, boundary.manifest
    s.code_digest, s.code_changes, s.refused_digest = boundary.manifest, (), ""
    s.visit, s.segment = boundary.visit, boundary.segment
    s.state, s.state_root = boundary.state, boundary.state_root
    s.visits = dict(boundary.visits)
    s.finished_segment, s.finished = boundary.finished_segment, boundary.finished
    s.finished_root = boundary.finished_root
    s.reopened, s.imported = (), False
    s.steps = {}
    s.approvals = Approvals()
    s.ledger = Ledger(dict(boundary.granted), dict(boundary.spent))
    s.overspent = dict(boundary.overspent)
    s.words = boundary.words
    s.signals = list(boundary.signals)
    s.children = dict(boundary.children)
    s.heard = boundary.heard
    s.cancel = boundary.cancel
    s.epoch = max(s.epoch, boundary.epoch)
    s.owner = boundary.owner or s.owner
    s.segment_attempt = s.generation = s.short = 0
    s.retry_at = None


def _created(s: RunState, entry: e.RunCreated) -> None:
    _boundary(s, entry.boundary)
    s.status = "ready"


def _checkpointed(s: RunState, entry: e.Checkpointed) -> None:
    results = s.child_results
    _boundary(s, entry.boundary)
    s.child_results = {child: ended for child, ended in results.items() if child in s.children}
    if s.status in {"ready", "parked"}:
        s.status = "running"


def _rewind_asked(s: RunState, entry: e.RewindAsked) -> None:
    # The segment is left as it is: what it planned is void, and what failed in it is kept against late evidence.
    s.finished = (*s.finished, *s.reopened, *(_failed_marker(one) for one in s.effects() if one.outcome == "failed"))
    s.reopened = ()
    s.heard = heard(s)  # what answered in the half-done segment was heard, whatever becomes of it
    s.steps, s.approvals = {}, Approvals()
    s.ledger = Ledger(s.ledger.granted, s.ledger.spent)
    s.generation += 1  # a compensation that failed in an earlier try is another effect now
    s.status, s.code, s.why, s.cancel = "ready", "", "", None
    s.result, s.result_root = None, None
    s.segment_attempt, s.retry_at = 0, None
    s.rewind = entry


def _failed_marker(effect: Effect) -> e.Marker:
    return e.Marker(effect.path, "failed", effect.digest, msgspec.Raw(msgspec.json.encode(effect.why)), effect.key)


def _rewound(s: RunState, entry: e.Rewound) -> None:
    _boundary(s, entry.boundary)
    s.status, s.rewind = "ready", None


def _claimed(s: RunState, entry: e.Claimed) -> None:
    s.epoch, s.owner = entry.epoch, entry.owner
    s.owners[entry.epoch] = entry.owner
    if s.status in {"ready", "parked", "running"}:
        s.status = "running"


def _plan(s: RunState, plan: e.EffectPlanned) -> Effect:
    effect = Effect(
        plan.step, plan.path, plan.tool, plan.version, plan.effect, plan.digest, plan.args, plan.key, plan.once
    )
    s.steps[plan.step] = effect
    return effect


def _effect(s: RunState, step: str) -> Effect:
    found = s.steps.get(step)
    if type(found) is not Effect:
        raise Damaged(s.run, f"an entry speaks of effect {step}, which is not recorded")
    return found


def _attempt(s: RunState, effect: Effect, number: int) -> Attempt:
    if not 1 <= number <= effect.attempt:
        raise Damaged(s.run, f"an entry speaks of attempt {number} of {effect.path}, which has {effect.attempt}")
    return effect.doubt.attempts[number - 1]


def _approval(s: RunState, id_: str) -> Approval:
    found = s.approvals.get(id_)
    if found is None:
        raise Damaged(s.run, f"an entry speaks of approval {id_}, which was not asked here")
    return found


def _by_person(by: str) -> bool:
    return by.startswith("person ")


def _started(s: RunState, entry: e.EffectStarted) -> None:
    effect = _plan(s, entry.plan) if entry.plan is not None else _effect(s, entry.step)
    if entry.resend:
        effect.outcome = change(effect.outcome, "resend")
    elif effect.outcome == "failed":
        effect.outcome = change(effect.outcome, "retry", final=effect.final)
        effect.doubt.absences, effect.doubt.asks, effect.doubt.person = [], 0, ""
    else:
        effect.outcome = change(effect.outcome, "start")
    owner = s.owners.get(entry.epoch, s.owner)
    effect.doubt.attempts.append(Attempt(entry.attempt, entry.at, entry.epoch, owner))
    effect.doubt.ask_at = 0
    effect.retry_at = None
    if entry.reserve:
        s.ledger.begin(entry.step, entry.reserve, entry.at)
    if entry.approval is not None:
        effect.approval = entry.approval
        _approval(s, entry.approval).verdict = "used"


def _confirmed(s: RunState, entry: e.EffectConfirmed) -> None:
    effect = _effect(s, entry.step)
    effect.outcome = change(effect.outcome, "confirm", contradicted=effect.contradicted)
    effect.result, effect.by, effect.external = entry.result, entry.by, entry.external
    effect.final, effect.why = True, entry.why
    s.ledger.settle(entry.step, entry.spent)
    s.short = 0
    if _by_person(entry.by):
        effect.contradicted = False
    else:
        for attempt in effect.doubt.attempts:
            if attempt.settled == "absent":
                effect.verify_from = entry.at  # asked once more before the boundary: it may have landed after all
    if 0 < entry.attempt <= effect.attempt:
        attempt = _attempt(s, effect, entry.attempt)
        attempt.settled = "returned"
        attempt.quiet_at = entry.at if attempt.quiet_at is None else attempt.quiet_at


def _failed(s: RunState, entry: e.EffectFailed) -> None:
    effect = _effect(s, entry.step)
    spent = failed_for(s, entry)
    effect.outcome = change(effect.outcome, "fail", final=effect.final)
    effect.why, effect.reason, effect.final = entry.why, entry.reason, entry.final
    effect.retry_at, effect.by = entry.retry_at, entry.by
    if _by_person(entry.by):
        effect.contradicted = False
    effect.doubt.person = effect.doubt.person if effect.contradicted else ""
    for attempt in effect.doubt.attempts:
        if not attempt.settled:
            attempt.settled = entry.reason  # type: ignore[assignment]  # where an attempt is open it is one of these
        attempt.quiet_at = entry.at if attempt.quiet_at is None else attempt.quiet_at
    if settles(entry):
        s.ledger.settle(entry.step, spent)
        s.short = 0 if effect.doubt.attempts else s.short  # one that was tried got the money that it asked for


def _attempt_settled(s: RunState, entry: e.AttemptSettled) -> None:
    effect = _effect(s, entry.step)
    attempt = _attempt(s, effect, entry.attempt)
    attempt.settled = entry.reason  # type: ignore[assignment]
    attempt.quiet_at = entry.at if attempt.quiet_at is None else attempt.quiet_at
    effect.outcome = change(effect.outcome, "lose")
    effect.why = entry.why


def _unknown(s: RunState, entry: e.EffectUnknown) -> None:
    effect = _effect(s, entry.step)
    effect.outcome = change(effect.outcome, "lose")
    effect.why = entry.why
    attempt = _attempt(s, effect, entry.attempt)
    attempt.died = entry.died
    if attempt.quiet_at is None:  # fixed once: marking it again at each claim would never end
        attempt.quiet_at = entry.quiet_at


def _quieted(s: RunState, entry: e.AttemptQuieted) -> None:
    attempt = _attempt(s, _effect(s, entry.step), entry.attempt)
    attempt.died = attempt.died or entry.died
    if attempt.quiet_at is None:
        attempt.quiet_at = entry.quiet_at


def _finding(s: RunState, entry: e.FindingRecorded) -> None:
    effect = _effect(s, entry.step)
    if _by_person(entry.by):
        effect.contradicted, effect.verify_from = False, None
        return
    effect.doubt.asks += 1
    effect.doubt.ask_at = entry.ask_at
    if entry.answer == "did_not_happen":
        effect.doubt.absences.append(entry.at)
    if entry.answer != "still_unknown":
        effect.verify_from = None


def _person(s: RunState, entry: e.PersonNeeded) -> None:
    _effect(s, entry.step).doubt.person = entry.why


def _contradicted(s: RunState, entry: e.Contradicted) -> None:
    found = s.steps.get(entry.step)
    if type(found) is Effect:
        found.outcome = change(found.outcome, "contradict")
        found.contradicted, found.verify_from = True, None
        found.doubt.person = entry.evidence


def _credential(s: RunState, entry: e.CredentialUsed) -> None:
    _effect(s, entry.step).credentials[entry.name] = entry.fingerprint


def _read_returned(s: RunState, entry: e.ReadReturned) -> None:
    s.steps[entry.step] = Read(entry.path, entry.tool, entry.digest, "returned", entry.result)


def _read_failed(s: RunState, entry: e.ReadFailed) -> None:
    status = "failed" if entry.retry_at is None else "retrying"
    s.steps[entry.step] = Read(
        entry.path, entry.tool, entry.digest, status, None, entry.why, entry.attempt, entry.retry_at, entry.by
    )


def _read_cancelled(s: RunState, entry: e.ReadCancelled) -> None:
    s.steps[entry.step] = Read(entry.path, entry.tool, entry.digest, "cancelled")


def _asked(s: RunState, entry: e.ApprovalAsked) -> None:
    s.approvals.add(Approval(
        entry.id, entry.step, entry.tool_version, entry.digest, entry.at, entry.tool, entry.effect, entry.policy,
        entry.rule, entry.expires_at, entry.requester,
    ))  # fmt: skip


def _answered(s: RunState, entry: e.ApprovalAnswered) -> None:
    approval = _approval(s, entry.id)
    approval.verdict = "approved" if entry.approved else "denied"
    approval.by, approval.why = entry.by, entry.why
    approval.said_at, approval.signature = entry.said_at or entry.at, entry.signature


def _approval_closed(s: RunState, entry: ApprovalClosed) -> None:
    _approval(s, entry.id).verdict = entry.standing  # type: ignore[assignment]


def _cancel_asked(s: RunState, entry: e.CancelAsked) -> None:
    s.cancel = s.cancel or (entry.by, entry.why)


def _reopen_failed(s: RunState) -> None:
    # What failed did not happen, so the segment may ask for it again, or for something else: a new effect, a new key.
    s.generation += 1
    limits.release(s)
    for step, record in list(s.steps.items()):
        failed_effect = type(record) is Effect and record.outcome == "failed" and not record.contradicted
        failed_read = type(record) is Read and record.status in {"failed", "retrying"}
        if failed_effect or failed_read:
            del s.steps[step]
        if failed_effect and type(record) is Effect and record.attempt:  # what was never tried cannot have happened
            s.reopened = (*s.reopened, _failed_marker(record))
    gone = {child for child, ended in s.child_results.items() if ended.status != "done"}  # they may be retried too
    s.child_results = {child: ended for child, ended in s.child_results.items() if child not in gone}
    s.children = {child: "running" if child in gone else status for child, status in s.children.items()}
    asked = {record.approval for record in s.effects()} | {a.id for a in s.approvals.values() if a.step in s.steps}
    s.approvals = Approvals(approval for approval in s.approvals.values() if approval.id in asked)


def _segment_failed(s: RunState, entry: e.SegmentFailed) -> None:
    s.segment_attempt, s.retry_at, s.why = entry.attempt, entry.retry_at, entry.why
    _reopen_failed(s)


def _retried(s: RunState, _: e.Retried) -> None:
    s.status, s.code, s.why = "ready", "", ""
    s.segment_attempt, s.retry_at = 0, None
    _reopen_failed(s)


def _resumed(s: RunState, entry: c.Resumed) -> None:
    limits.release(s)
    if s.code == "condition_failed":  # its segment has ended, and did not hold: only entering it anew can change that
        s.segment_attempt, s.retry_at = 0, None
        _reopen_failed(s)
    s.status, s.code, s.why, s.refused_digest = "ready", "", "", ""
    if entry.manifest:
        s.code_digest = entry.manifest
        s.code_changes = tuple(dict.fromkeys((*s.code_changes, *entry.accepted)))


def _code_changed(s: RunState, entry: c.CodeChanged) -> None:
    s.code_digest = entry.manifest
    s.code_changes = tuple(dict.fromkeys((*s.code_changes, *entry.changes)))


def _stopped(s: RunState, entry: e.RunStopped) -> None:
    s.status, s.code, s.why = entry.status, entry.code, entry.why
    s.epoch = max(s.epoch, entry.epoch)
    s.refused_digest = entry.manifest
    if s.ended:
        s.rewind = None  # what was undone stays undone; the rest may be asked for again
    if entry.status != "blocked":
        limits.release(s)
    if entry.status == "killed" or entry.code == IMPORTED:
        for effect in s.effects():
            if effect.outcome == "started":
                effect.outcome = change(effect.outcome, "lose")
                effect.why = (
                    f"the run was {'killed' if entry.status == 'killed' else 'exported'} while it was in flight"
                )
    if entry.code == IMPORTED:
        # Where it came from, the run may have gone on: what was said and granted there was used there, or is void here.
        # An approval that let an attempt start which came to nothing may have let the next one start there.
        s.approvals = Approvals(one for one in s.approvals.values() if one.verdict in {"used", "denied"})
        s.generation += 1
        s.imported = True
        for effect in s.effects():
            if effect.outcome == "failed" and not effect.final:
                effect.approval = None
        s.ledger.close()


def _done(s: RunState, entry: e.RunDone) -> None:
    _boundary(s, entry.boundary)
    s.status, s.result, s.result_root = "done", entry.result, entry.result_root


_RULES: dict[type[e.Entry], Callable[[RunState, Any], None]] = {
    e.RunCreated: _created,
    e.Claimed: _claimed,
    e.EffectPlanned: lambda s, entry: _ignore(_plan(s, entry)),
    e.EffectStarted: _started,
    e.EffectConfirmed: _confirmed,
    e.EffectFailed: _failed,
    e.AttemptSettled: _attempt_settled,
    e.EffectUnknown: _unknown,
    e.AttemptQuieted: _quieted,
    e.FindingRecorded: _finding,
    e.PersonNeeded: _person,
    e.Contradicted: _contradicted,
    e.CredentialUsed: _credential,
    e.ReadReturned: _read_returned,
    e.ReadFailed: _read_failed,
    e.ReadCancelled: _read_cancelled,
    e.ValueRecorded: awaiting.value,
    e.SleepStarted: awaiting.sleep,
    e.SleepEnded: awaiting.slept,
    e.SignalAwaited: awaiting.awaited,
    e.SignalSent: awaiting.sent,
    e.SignalReceived: awaiting.received,
    e.ChildStarted: awaiting.child_started,
    e.ChildEnded: awaiting.child_ended,
    e.ChildAwaited: awaiting.child_awaited,
    e.ApprovalAsked: _asked,
    e.ApprovalAnswered: _answered,
    ApprovalClosed: _approval_closed,
    e.Widened: limits.widened,
    WordSigned: limits.word_taken,
    n.Narrowed: limits.narrowed,
    n.Overspent: limits.overspent,
    e.CancelAsked: _cancel_asked,
    e.Checkpointed: _checkpointed,
    e.RewindAsked: _rewind_asked,
    e.Rewound: _rewound,
    e.SegmentFailed: _segment_failed,
    e.Retried: _retried,
    c.Resumed: _resumed,
    c.CodeChanged: _code_changed,
    e.RunParked: awaiting.parked,
    e.RunStopped: _stopped,
    e.RunDone: _done,
}


def _ignore(_: object) -> None:
    """Drop a result, so that a rule returns None."""
