"""The journal's entries: frozen, past tense, data only.

Each is stored as JSON bytes whose `entry` field is `name.schema`. A field may be added with a default; any other
change is a new schema number and an upcaster in `codec.py`. Moments are milliseconds since 1970 UTC. `step` is the
identity of a call inside the current visit of a segment (`branch:index`, or `@id` in an attached run); `path` is how
people see it.

All are AUTHORITATIVE: recovery reads nothing else. Events, progress and tracebacks are diagnostic, in other tables.
"""

from __future__ import annotations

from decimal import Decimal

import msgspec

from milepost.core.authority import Granted
from milepost.core.queues import Place

Amounts = dict[str, Decimal]
NOTHING = msgspec.Raw()


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="entry", gc=False):
    """What every entry has: when it was written. Data is in no cycle, so the collector of cycles need not follow it."""

    at: int


class About(msgspec.Struct, frozen=True, omit_defaults=True):
    """What stays true of a run: stored once as a chunk, named by digest at every boundary.

    `input` holds a small input in place, `input_root` names the root chunk of a larger one. A fork names the run it was
    made from, and the boundary of that run by its visit.
    """

    workflow: str
    version: str
    key: str | None = None
    input: msgspec.Raw = NOTHING
    input_root: str | None = None
    authority: Granted = Granted()
    tags: dict[str, str] = {}
    deadline: int | None = None
    parent: str | None = None
    parent_step: str | None = None
    attached: bool = False
    created_at: int = 0
    forked_from: str | None = None
    forked_at: int | None = None
    place: Place = Place()


class Marker(msgspec.Struct, frozen=True, array_like=True):
    """One finished step of the segment that ended: its path, outcome and validated output (or why it failed).

    `key` is that of an effect that failed: evidence that comes late may be of it, or of another one on the same path.
    """

    path: str
    outcome: str
    digest: str
    output: msgspec.Raw
    key: str = ""


class Signal(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message that was sent to the run and not yet received by a segment."""

    id: str
    name: str
    value: msgspec.Raw


class Boundary(msgspec.Struct, frozen=True, omit_defaults=True):
    """The self-contained state at a segment's end: what recovery needs, and all it needs.

    `state` holds small states in place, `state_root` names the root chunk of larger ones. So with `finished`: where a
    segment had very many steps, all of them stand below `finished_root`, and only the failed ones in place.
    """

    about: str
    manifest: str
    visit: int
    segment: str | None
    state: msgspec.Raw = NOTHING
    state_root: str | None = None
    finished_segment: str | None = None
    finished: tuple[Marker, ...] = ()
    finished_root: str | None = None
    visits: dict[str, int] = {}
    granted: Amounts = {}
    spent: Amounts = {}
    overspent: Amounts = {}
    signals: tuple[Signal, ...] = ()
    children: dict[str, str] = {}
    heard: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    cancel: tuple[str, str] | None = None
    epoch: int = 0
    owner: str = ""


class Undo(msgspec.Struct, frozen=True, omit_defaults=True):
    """One effect that a rewind takes back: where it stands, its result, and the tool `with_` that gets the result."""

    visit: int
    step: str
    path: str
    tool: str
    with_: str
    result: msgspec.Raw
    once: str | None = None


class RunCreated(Entry, frozen=True, tag="run_created.1"):
    """A run began; its first boundary stands in the same entry. Of a fork: by whom, and why."""

    boundary: Boundary
    run: str
    by: str = ""
    why: str = ""
    trace: str = ""  # connects all that is known of the run, here and in other systems: core/tracing.py


class Claimed(Entry, frozen=True, tag="claimed.1"):
    """A worker took the run under a new epoch. `dead` names earlier owners that were proven dead."""

    epoch: int
    owner: str
    dead: tuple[str, ...] = ()


class EffectPlanned(Entry, frozen=True, tag="effect_planned.1"):
    """An effect is known and must wait before its first attempt: not started."""

    step: str
    path: str
    tool: str
    version: str
    effect: str
    digest: str
    args: msgspec.Raw
    key: str
    once: str | None = None


class EffectStarted(Entry, frozen=True, tag="effect_started.1"):
    """An attempt began. The first one carries the plan, unless EffectPlanned did. `rule` of `policy` allowed it."""

    step: str
    attempt: int
    epoch: int
    deadline: int
    plan: EffectPlanned | None = None
    resend: bool = False
    reserve: Amounts = {}
    approval: str | None = None
    rule: str = ""
    policy: str = ""


class EffectConfirmed(Entry, frozen=True, tag="effect_confirmed.1"):
    """It happened. `by` is answer, finding, evidence, or `person NAME`."""

    step: str
    attempt: int
    result: msgspec.Raw
    by: str = "answer"
    external: str | None = None
    spent: Amounts | None = None
    why: str = ""


class EffectFailed(Entry, frozen=True, tag="effect_failed.1"):
    """It did not happen, on positive evidence.

    `reason` is not_sent, rejected, absent, denied, deadline, person, conflict, or raised (by a read that costs).
    `by` is `person NAME` or `policy RULE` where that decided; `policy` then names the version and fingerprint of the
    rule's file.
    """

    step: str
    attempt: int
    why: str
    reason: str
    final: bool
    retry_at: int | None = None
    by: str = "answer"
    spent: Amounts | None = None
    policy: str = ""


class AttemptSettled(Entry, frozen=True, tag="attempt_settled.1"):
    """One resend is proven not to have happened; the effect stays unknown while an earlier attempt is unsettled."""

    step: str
    attempt: int
    reason: str
    why: str = ""


class EffectUnknown(Entry, frozen=True, tag="effect_unknown.1"):
    """An attempt's outcome is not known. `quiet_at` is when its code had returned or its process was proven dead."""

    step: str
    attempt: int
    why: str
    quiet_at: int | None = None
    died: bool = False


class AttemptQuieted(Entry, frozen=True, tag="attempt_quieted.1"):
    """An attempt that was unknown can no longer act: its code returned, or its process is proven dead."""

    step: str
    attempt: int
    quiet_at: int
    died: bool = False


class FindingRecorded(Entry, frozen=True, tag="finding_recorded.1"):
    """A reconciler answered. The evidence is kept whatever it leads to."""

    step: str
    answer: str
    evidence: str = ""
    ask_at: int = 0
    by: str = "reconciler"


class PersonNeeded(Entry, frozen=True, tag="person_needed.1"):
    """Nothing automatic settles this unknown effect any more."""

    step: str
    why: str


class Contradicted(Entry, frozen=True, tag="contradicted.1"):
    """Evidence against what was settled: recorded beside it, the run blocks, the tool is held.

    `step` is empty where the segment of that effect has ended since.
    """

    step: str
    evidence: str
    by: str
    tool: str = ""


class CredentialUsed(Entry, frozen=True, tag="credential_used.1"):
    """An attempt asked for a secret; its fingerprint is kept so that a resend uses the same one."""

    step: str
    name: str
    fingerprint: str


class ReadReturned(Entry, frozen=True, tag="read_returned.1"):
    """A read answered. `rule` of `policy` allowed it."""

    step: str
    path: str
    tool: str
    digest: str
    result: msgspec.Raw
    rule: str = ""
    policy: str = ""


class ReadFailed(Entry, frozen=True, tag="read_failed.1"):
    """A read failed: for good without `retry_at`, else it is tried again then. `by` names the rule that denied it."""

    step: str
    path: str
    tool: str
    digest: str
    attempt: int
    why: str
    retry_at: int | None = None
    by: str = ""
    policy: str = ""


class ReadCancelled(Entry, frozen=True, tag="read_cancelled.1"):
    """The segment cancelled a read; on re-entry it waits to be cancelled again."""

    step: str
    path: str
    tool: str
    digest: str


class ValueRecorded(Entry, frozen=True, tag="value_recorded.1"):
    """The segment asked for the time, a random number or an id. `kind` is now, random or uuid."""

    step: str
    kind: str
    value: msgspec.Raw


class SleepStarted(Entry, frozen=True, tag="sleep_started.1"):
    """A sleep began; it ends at `until`."""

    step: str
    until: int


class SleepEnded(Entry, frozen=True, tag="sleep_ended.1"):
    """A sleep ended."""

    step: str


class SignalAwaited(Entry, frozen=True, tag="signal_awaited.1"):
    """The segment waits for a named signal, until `until` if it is given."""

    step: str
    name: str
    until: int | None = None


class SignalSent(Entry, frozen=True, tag="signal_sent.1"):
    """A signal reached the run."""

    signal: Signal


class SignalReceived(Entry, frozen=True, tag="signal_received.1"):
    """The segment took a signal, or its time ran out (`id` is None)."""

    step: str
    name: str
    id: str | None
    value: msgspec.Raw


class ChildStarted(Entry, frozen=True, tag="child_started.1"):
    """The segment started another run."""

    step: str
    child: str
    workflow: str
    digest: str


class ChildEnded(Entry, frozen=True, tag="child_ended.1"):
    """A child run ended, with a result or a reason."""

    child: str
    status: str
    result: msgspec.Raw
    why: str = ""


class ChildAwaited(Entry, frozen=True, tag="child_awaited.1"):
    """The segment asks for a child's result."""

    step: str
    child: str


class ApprovalAsked(Entry, frozen=True, tag="approval_asked.1"):
    """A person is asked about exactly this effect; by `rule`, where that asks and not the tool alone.

    The id is made from all of it and from the run: see core/approval.py. `policy` is the one in force, `requester` who
    the run acts for, `why` the rule's reason.
    """

    step: str
    id: str
    tool_version: str
    digest: str
    rule: str = ""
    policy: str = ""
    tool: str = ""
    effect: str = ""
    expires_at: int | None = None
    requester: str = ""
    why: str = ""


class ApprovalAnswered(Entry, frozen=True, tag="approval_answered.1"):
    """A person answered an approval, `said_at`; or took back what was approved and not used. Signed, if it was."""

    id: str
    approved: bool
    by: str
    why: str = ""
    said_at: int = 0
    signature: str = ""


class Widened(Entry, frozen=True, tag="widened.1"):
    """A person granted scopes or money to the run."""

    by: str
    scopes: tuple[str, ...] = ()
    budget: Amounts = {}
    why: str = ""


class CancelAsked(Entry, frozen=True, tag="cancel_asked.1"):
    """Somebody asked the run to stop: nothing new starts, what is in flight finishes."""

    by: str
    why: str


class MessageRefused(Entry, frozen=True, tag="message_refused.1"):
    """A message reached the run and could not be applied. `code` says why in a stable word (core/approval.py)."""

    kind: str
    why: str
    by: str = ""
    code: str = ""
    about: str = ""


class Checkpointed(Entry, frozen=True, tag="checkpointed.1"):
    """A segment ended and its completion condition held."""

    boundary: Boundary


class RewindAsked(Entry, frozen=True, tag="rewind_asked.1"):
    """A person takes the run back to the boundary of visit `to`: from here on it only undoes, in the order given."""

    to: int
    by: str
    boundary: Boundary
    undo: tuple[Undo, ...] = ()
    why: str = ""


class Rewound(Entry, frozen=True, tag="rewound.1"):
    """Everything was undone: the boundary of visit `to` stands again, as a new one. What is behind it stays written."""

    to: int
    by: str
    boundary: Boundary
    why: str = ""


class SegmentFailed(Entry, frozen=True, tag="segment_failed.1"):
    """A segment raised and will be entered again at `retry_at`; its finished steps stay finished."""

    why: str
    attempt: int
    retry_at: int


class Retried(Entry, frozen=True, tag="retried.1"):
    """A person re-entered a failed segment, or a contradiction was resolved."""

    by: str
    why: str = ""


class RunParked(Entry, frozen=True, tag="run_parked.1"):
    """Nothing can move before `until`, or before an event."""

    reason: str
    until: int | None = None
    ask: str = ""


class RunStopped(Entry, frozen=True, tag="run_stopped.1"):
    """The run ended without a result, or is blocked: `status` is failed, cancelled, killed or blocked.

    `manifest` names the code that may not go on with it.
    """

    status: str
    code: str
    why: str
    by: str = ""
    epoch: int = 0
    unknown: tuple[str, ...] = ()
    manifest: str = ""


class RunDone(Entry, frozen=True, tag="run_done.1"):
    """The run ended with a result, whose last boundary stands in the same entry."""

    boundary: Boundary
    result: msgspec.Raw
    result_root: str | None = None


BOUNDARIES = RunCreated | Checkpointed | Rewound | RunDone  # the entries that hold one

RunEntry = (
    RunCreated | Claimed | EffectPlanned | EffectStarted | EffectConfirmed | EffectFailed | AttemptSettled
    | EffectUnknown | AttemptQuieted | FindingRecorded | PersonNeeded | Contradicted | CredentialUsed | ReadReturned
    | ReadFailed | ReadCancelled | ValueRecorded | SleepStarted | SleepEnded | SignalAwaited | SignalSent
    | SignalReceived | ChildStarted | ChildEnded | ChildAwaited | ApprovalAsked | ApprovalAnswered | Widened
    | CancelAsked | MessageRefused | Checkpointed | RewindAsked | Rewound | SegmentFailed | Retried | RunParked
    | RunStopped | RunDone
)  # fmt: skip
