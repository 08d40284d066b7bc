"""What the runtime asks of a store, and the rows that cross this floor.

An *operation* is what must be written together. `commit` takes a batch of them, first in, first out, in one
transaction: one that is refused (a lost epoch, a switch, a `once` that is taken) leaves the others as they are. An
error of the commit itself is raised as StoreFailed, and then nothing is known: the caller stops, reopens and reads
back. `depart` sends a batch, where that takes no waiting, and says whether it did; then `landed` is called once, later
and on the running loop, with what `commit` would have returned or raised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Protocol

import msgspec

from milepost.core.breaker import Event, Probing
from milepost.core.queues import DEFAULT, SOMEWHERE, Limit, Place
from milepost.errors import MilepostError
from milepost.stores.fleet import Declare, Enlist, FleetReads, Tick
from milepost.stores.keeping import MarkSeal, Prunable, Prune, RunCopy, Standing, TakeIn
from milepost.stores.pools import PoolReads, PoolSpent, Reserve, SetCeiling
from milepost.stores.waits import Awaited


@dataclass(slots=True)
class Head:
    """Where a run's chain ends, as its owner knows it. Valid as long as the epoch is."""

    run: int
    run_id: str
    epoch: int
    row: int
    seq: int
    hash: bytes
    segment: str | None = None


@dataclass(slots=True)
class Status:
    """The projection of a run's status."""

    status: str
    at: int
    reason: str | None = None
    until: int | None = None
    ask: str | None = None
    why: str | None = None


class EffectRow(msgspec.Struct, gc=False):
    """The projection of one effect that is not settled; `outcome` None removes it."""

    step: str
    outcome: str | None
    path: str = ""
    tool: str = ""
    effect: str = ""
    attempt: int = 0
    started_at: int | None = None
    why: str | None = None
    person: str | None = None


class Once(msgspec.Struct, gc=False):
    """A business identity that no other run may start the tool for. `again`: the effect may have claimed it before."""

    tenant: str
    tool: str
    value: str
    step: str
    digest: str
    again: bool = False


class OnceSettled(msgspec.Struct, gc=False):
    """What became of a claimed identity: `outcome` None releases it. `step`, where given, must have claimed it."""

    tenant: str
    tool: str
    value: str
    outcome: str | None
    result: bytes | None = None
    step: str = ""


@dataclass(slots=True)
class OnceRow:
    """Who holds an identity, and what came of it."""

    run_id: str
    step: str
    digest: str
    outcome: str
    result: bytes | None


@dataclass(slots=True)
class ApprovalRow:
    """One approval as people see it. Moments are milliseconds since 1970."""

    id: str
    run_id: str
    step: str
    path: str
    tool: str
    args: bytes
    asked_at: int
    verdict: str
    by: str | None = None


@dataclass(slots=True)
class Switch:
    """A stopped scope, such as `tool:charge`, and for what reason: there may be several.

    `kind` is `freeze` (a person's), `hold` (a contradiction's), or `breaker`, which a probe may pass from `until` on.
    `about` tells reasons of one kind apart. Moments are milliseconds since 1970.
    """

    scope: str
    kind: str
    why: str
    by: str
    at: int
    about: str = ""
    until: int | None = None


@dataclass(slots=True)
class Lift:
    """What sets a scope free: switches of one kind, those `about` one thing or (None) all. A breaker is reset."""

    scope: str
    why: str
    by: str
    kind: str = "hold"
    about: str | None = None


@dataclass(slots=True)
class NewRun:
    """A run to be created. `digest` is of workflow and input; `entry` the bytes of its first entry.

    A child is refused with EpochLost unless its parent still has `parent_epoch`: what was killed has no more children.
    """

    id: str
    workflow: str
    version: str
    digest: str
    entry: bytes
    segment: str | None
    at: int
    due: int | None
    key: str | None = None
    attached: bool = False
    parent: str | None = None
    parent_epoch: int | None = None
    principal: str = ""
    tenant: str | None = None
    tags: str = "{}"
    place: Place = SOMEWHERE
    chunks: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class Post:
    """A message for another run (or this one): wakes it when nobody holds it.

    One that is `patient` is the end of a child: it may wait for others while children of that run have not ended, for
    as long as the run is patient.
    """

    run_id: str
    message_id: str
    body: bytes
    at: int
    patient: bool = False


class Append(msgspec.Struct, gc=False):
    """Entries of one run with all that is written beside them.

    Refused with EpochLost, SwitchedOff, PoolShort or OnceTaken.

    `boundary` is the index of the entry that holds one; `scopes` must not be switched off; `work` runs inside the
    transaction and returns further entries; `release` is (now, due), where messages that wait make it due now, unless
    that is None; where those are ends of children alone, and others go on, that waits for `patience` (milliseconds).
    `lease` is (worker, until). `probe` lets it pass an open breaker, `tried` is what attempts say of
    their providers, and `waits` what a run that is released rests on. `reserve` is held before `work` runs, `spent` is
    booked after it; `overspent` is what the run has spent above its reservations by now, per unit.
    """

    head: Head
    entries: list[bytes]
    at: int
    boundary: int | None = None
    status: Status | None = None
    effects: Sequence[EffectRow] = ()
    once: Once | None = None
    once_settled: Sequence[OnceSettled] = ()
    chunks: Mapping[str, bytes] | None = None
    taken: Sequence[int] = ()
    scopes: tuple[str, ...] = ()
    approvals: Sequence[ApprovalRow] = ()
    answers: Sequence[tuple[str, str, str]] = ()
    posts: Sequence[Post] = ()
    holds: Sequence[Switch] = ()
    lifts: Sequence[Lift] = ()
    probe: Probing | None = None
    tried: Sequence[Event] = ()
    waits: Sequence[Awaited] = ()
    work: Callable[[Any], list[bytes]] | None = None
    release: tuple[int | None, int | None] | None = None
    patience: int = 0
    lease: tuple[str, int] | None = None
    reserve: Reserve | None = None
    spent: Sequence[PoolSpent] = ()
    overspent: Mapping[str, Decimal] = {}


@dataclass(slots=True)
class Create:
    """Create a run, or find the one that its key names. Answered with Created."""

    run: NewRun


@dataclass(slots=True)
class Created:
    """The run that exists now; `fresh` says whether this call made it."""

    id: str
    fresh: bool
    workflow: str
    digest: str


@dataclass(slots=True)
class Claim:
    """Take a run under the next epoch. Refused with EpochLost when `owner_was` no longer holds it.

    Refused with LimitReached where one of the `limits` that govern the run is used up; who takes a run over from
    somebody else is not asked. `entry` makes the bytes of the Claimed entry from the new epoch. Answered with Head.
    """

    run_id: str
    owner: str
    owner_was: str | None
    at: int
    entry: Callable[[int], bytes]
    limits: Sequence[Limit] = ()


@dataclass(slots=True)
class Deliver:
    """Put a message into a run's inbox. Answered with True, or False when that message id is known."""

    post: Post


@dataclass(slots=True)
class Kill:
    """Take the epoch of a run and of all its descendants, whoever holds them.

    `entry` makes the bytes of RunStopped from the new epoch and the paths that are open; `tell` makes the message for
    the parent, from its run id. Answered with the (run id, path) pairs that are left unknown.
    """

    run_id: str
    why: str
    at: int
    entry: Callable[[int, tuple[str, ...]], bytes]
    tell: Callable[[str], Post]


@dataclass(slots=True)
class Killed:
    """The runs that were killed, the (run id, path) pairs left unknown, and the workers that may still be acting."""

    runs: list[str]
    unknown: list[tuple[str, str]]
    owners: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Throw:
    """Throw switches, as a person does. Answered with Thrown."""

    at: int
    holds: Sequence[Switch] = ()
    lifts: Sequence[Lift] = ()


@dataclass(slots=True)
class Thrown:
    """How many switches were set and lifted, and how many waiting runs were made due by it."""

    set: int
    lifted: int
    woken: int


@dataclass(slots=True)
class Emit:
    """Keep diagnostic events, as (run id, moment, bytes)."""

    events: Sequence[tuple[str, int, bytes]]


Operation = (
    Append | Create | Claim | Deliver | Kill | Enlist | Emit | Throw | SetCeiling | MarkSeal | Prune | TakeIn
    | Declare | Tick
)  # fmt: skip


class SwitchedOff(MilepostError):
    """A switch stands on one of the scopes of this append."""

    code = "switched_off"

    def __init__(self, switch: Switch) -> None:
        super().__init__(f"{switch.scope} is on {switch.kind}: {switch.why}")
        self.switch = switch


class OnceTaken(MilepostError):
    """Another step has claimed this identity."""

    code = "once_taken"

    def __init__(self, row: OnceRow) -> None:
        super().__init__(f"claimed by run {row.run_id}, {row.step}, which is {row.outcome}")
        self.row = row


@dataclass(slots=True)
class RunRow:
    """A run as listings show it. Moments are milliseconds since 1970."""

    run: int
    id: str
    workflow: str
    version: str
    attached: bool
    key: str | None
    status: str
    reason: str | None
    until: int | None
    ask: str | None
    why: str | None
    due: int | None
    owner: str | None
    parent: str | None
    principal: str
    tenant: str | None
    tags: str
    created_at: int
    changed_at: int
    epoch: int
    seq: int
    segment: str | None
    queue: str = DEFAULT
    priority: int = 0
    group: str | None = None


@dataclass(slots=True)
class OpenEffect:
    """An effect that is not settled, with the run it belongs to."""

    run_id: str
    step: str
    path: str
    tool: str
    effect: str
    outcome: str
    attempt: int
    started_at: int | None
    why: str | None
    person: str | None


@dataclass(slots=True)
class Stored:
    """One stored entry."""

    seq: int
    body: bytes
    hash: bytes
    open: Callable[[int, bytes], bytes] | None = field(default=None, compare=False, repr=False)

    @property
    def plain(self) -> bytes:
        """What it says. `body` is what is stored and hashed, which may be encrypted. Raises KeyMissing."""
        return self.body if self.open is None else self.open(self.seq, self.body)


@dataclass(slots=True)
class Tail:
    """A run from its latest boundary to its head. `before` is the hash in front of the first entry."""

    head: Head
    before: bytes
    entries: list[Stored]


@dataclass(slots=True)
class Query:
    """Which runs to list, newest first."""

    status: str | None = None
    workflow: str | None = None
    key: str | None = None
    parent: str | None = None
    needs_you: bool = False
    tag: tuple[str, str] | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True)
class Capabilities:
    """How stores differ. `transactional` runs a tool inside the append; `lock_files` proves death at once."""

    transactional: bool
    lock_files: bool


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that a store rests on, as it was found. `todo` says what to mend where it is not `ok`."""

    name: str
    ok: bool
    found: str
    todo: str


class Store(PoolReads, FleetReads, Protocol):
    """The durable verbs."""

    id: str
    place: str  # how people name it
    local: str  # what the names of its files on this machine begin with
    capabilities: Capabilities

    def wall(self) -> int: ...  # the time that all its processes go by, in milliseconds since 1970
    async def commit(self, operations: Sequence[Operation], *, threaded: bool = False) -> list[Any]: ...
    def commit_now(self, operations: Sequence[Operation], *, must: bool = False) -> list[Any] | None: ...
    def depart(self, operations: Sequence[Operation], landed: Callable[[list[Any] | Exception], None]) -> bool: ...
    async def tail(self, run_id: str) -> Tail: ...
    async def chain(self, run_id: str) -> tuple[bytes, list[Stored], Head]: ...
    async def after(self, run_id: str, seq: int) -> list[Stored]: ...
    async def chunk(self, run_id: str, digest: str) -> bytes: ...
    async def inbox(self, run_id: str) -> list[tuple[int, bytes]]: ...
    async def with_mail(self, owner: str) -> list[str]: ...
    async def run(self, run_id: str) -> RunRow: ...
    async def resolve_id(self, prefix: str) -> str: ...
    async def runs(self, query: Query) -> list[RunRow]: ...
    async def killed_since(self, at: int) -> list[str]: ...  # the latest first, a thousand at most
    async def counts(self) -> dict[str, int]: ...
    async def effects(self, run_id: str | None = None) -> list[OpenEffect]: ...
    async def approvals(self, prefix: str = "", verdict: str | None = None) -> list[ApprovalRow]: ...
    async def switches(self) -> list[Switch]: ...
    def switches_now(self) -> list[Switch]: ...
    async def waiting(self) -> dict[str, int]: ...
    async def once(self, tenant: str, tool: str, value: str) -> OnceRow | None: ...
    async def events(self, run_id: str, after: int) -> list[tuple[int, int, bytes]]: ...
    async def undelivered(self) -> dict[str, int]: ...
    def plain(self, run_id: str, place: str, stored: bytes) -> bytes: ...
    def chunk_name(self, run_id: str, digest: str) -> str: ...
    async def standing(self) -> Standing: ...
    async def prunable(self, before: int, workflow: str | None, limit: int) -> list[Prunable]: ...
    async def copy(self, run_id: str) -> RunCopy: ...
    async def checks(self, now: int) -> list[Check]: ...
    async def pages(self) -> Check: ...
    def renew(self, worker: str, until: int) -> None: ...
    def end_worker(self, worker: str, at: int) -> None: ...
    def close(self) -> None: ...
