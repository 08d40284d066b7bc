"""What keeping a store asks of it: to be sealed, to be pruned, and to give runs away and take them in.

The rows of these operations, beside those of `api`. Moments are milliseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from milepost.stores.api import Switch


@dataclass(frozen=True, slots=True)
class Leaf:
    """Where a run's chain ends: its id, the number of its last entry, and that entry's hash."""

    run_id: str
    seq: int
    hash: bytes


@dataclass(frozen=True, slots=True)
class Tombstone:
    """What is left of a run that was pruned: `digest` is of its workflow and input, `hash` of its last entry, `seq`."""

    run_id: str
    seq: int
    hash: bytes
    digest: str
    workflow: str
    status: str
    at: int
    by: str
    why: str


@dataclass(frozen=True, slots=True)
class Standing:
    """A store at one instant: where every chain ends (the store's own among them), what was pruned, the last seal."""

    store_id: str
    leaves: Sequence[Leaf]
    tombstones: Sequence[Tombstone]
    sequence: int


@dataclass(slots=True)
class MarkSeal:
    """Count one seal more. `entry` makes the bytes of Sealed from its number. Answered with that number."""

    at: int
    above: int
    entry: Callable[[int], bytes]


@dataclass(frozen=True, slots=True)
class Prunable:
    """A run that ended long ago; `kept` says why it cannot be deleted yet, empty where it can."""

    run_id: str
    workflow: str
    status: str
    changed_at: int
    seq: int
    kept: str


@dataclass(slots=True)
class Prune:
    """Delete runs, each beside its tombstone. Refused, with all of them, where one may not be deleted (any more).

    `entry` makes the bytes of RunPruned from a tombstone. Answered with the tombstones.
    """

    run_ids: Sequence[str]
    at: int
    by: str
    why: str
    entry: Callable[[Tombstone], bytes]


@dataclass(slots=True)
class RunCopy:
    """A whole run, as it stands in one store and may stand in another. Bodies and chunks are the bytes as stored.

    `row`, `once`, `approvals` and `effects` are rows by column; what names another run names it by id. `origin` is the
    store that the chain was begun in, which its genesis names.
    """

    run_id: str
    origin: str
    row: Mapping[str, object]
    seq: int
    hash: bytes
    epoch: int
    segment: str | None
    boundary: int
    bodies: Sequence[bytes]
    chunks: Mapping[str, bytes]
    once: Sequence[Mapping[str, object]] = ()
    approvals: Sequence[Mapping[str, object]] = ()
    effects: Sequence[Mapping[str, object]] = ()


@dataclass(slots=True)
class TakeIn:
    """Take in a run that another store gave away. Answered with TakenIn.

    `stop` is the entry that keeps it from being driven, None for a run that had ended; `told` the bytes of RunImported.
    `holds` are what its contradictions hold, here too; `overspent` is what it spent above its reservations, per unit.
    Refused where a run of this id is here with another chain, was pruned here, or where its key is another run's.
    """

    copy: RunCopy
    at: int
    by: str
    bundle: str
    signer: str
    ask: str
    why: str
    stop: bytes | None
    told: bytes
    holds: Sequence[Switch] = ()
    overspent: Mapping[str, Decimal] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TakenIn:
    """`fresh` is False where the run was here already. `held` are identities that another run holds here."""

    run_id: str
    fresh: bool
    held: Sequence[tuple[str, str, str]] = field(default=())
