"""The entries of the store's own journal: what was decided about the store, and about no single run while it lives.

They follow the rules of `entries.py`, in a chain of their own, so that a stop, a pruning or an import is as hard to
take back unseen as what a run did.
"""

from __future__ import annotations

from milepost.core.entries import Entry


class SwitchSet(Entry, frozen=True, tag="switch_set.1"):
    """A scope was stopped."""

    scope: str
    kind: str
    why: str
    by: str


class SwitchLifted(Entry, frozen=True, tag="switch_lifted.1"):
    """A scope was set free again."""

    scope: str
    why: str
    by: str


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


StoreEntry = SwitchSet | SwitchLifted | RunPruned | RunImported | Sealed
