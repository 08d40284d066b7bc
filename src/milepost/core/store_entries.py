"""The entries of the store's own journal: what was decided about the store, and about no single run while it lives.

They follow the rules of `entries.py`, in a chain of their own, so that a stop, a ceiling, a pruning or an import is as
hard to take back unseen as what a run did.
"""

from __future__ import annotations

from decimal import Decimal

from milepost.core.entries import Entry


class SwitchSet(Entry, frozen=True, tag="switch_set.1"):
    """A scope was stopped. `about` tells several reasons of one kind apart, such as the effects of two runs."""

    scope: str
    kind: str
    why: str
    by: str
    about: str = ""


class SwitchLifted(Entry, frozen=True, tag="switch_lifted.1"):
    """A scope was set free again, as far as this reason goes."""

    scope: str
    why: str
    by: str
    kind: str = ""
    about: str = ""


class RunPruned(Entry, frozen=True, tag="run_pruned.1"):
    """A run that had ended was deleted, all but its tombstone. `hash` (hex) is that of its last entry, `seq`."""

    run: str
    workflow: str
    seq: int
    hash: str
    digest: str
    status: str
    by: str
    why: str


class RunImported(Entry, frozen=True, tag="run_imported.1"):
    """A run came in from another store. `hash` (hex) is that of the last entry, `seq`, which it brought along."""

    run: str
    origin: str
    seq: int
    hash: str
    bundle: str
    signer: str
    by: str


class Sealed(Entry, frozen=True, tag="sealed.1"):
    """All heads were read, to be signed. `sequence` rises with each seal of this store."""

    sequence: int
    by: str


class BreakerOpened(Entry, frozen=True, tag="breaker_opened.1"):
    """A tool failed too often in a row, or its probe did: its calls are held. `until` is when a probe may be made."""

    tool: str
    failures: int
    trips: int
    until: int
    why: str
    by: str


class BreakerProbed(Entry, frozen=True, tag="breaker_probed.1"):
    """One call was let through an open breaker. `by` is that attempt; nobody else may probe before `until`."""

    tool: str
    until: int
    by: str


class BreakerClosed(Entry, frozen=True, tag="breaker_closed.1"):
    """A tool's calls go on: `by` is the probe that was answered, or the person who reset the breaker."""

    tool: str
    why: str
    by: str


class CeilingSet(Entry, frozen=True, tag="ceiling_set.1"):
    """A shared budget has these ceilings from here on; None lifts a unit's. `per` is `day` or `ever`."""

    pool: str
    per: str
    ceilings: dict[str, Decimal | None]
    why: str
    by: str


StoreEntry = (
    SwitchSet | SwitchLifted | BreakerOpened | BreakerProbed | BreakerClosed | RunPruned | RunImported | Sealed
    | CeilingSet
)  # fmt: skip
