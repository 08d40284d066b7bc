"""The entries of the store's own journal: what was decided about the store, and about no single run while it lives.

They follow the rules of `entries.py`, in a chain of their own, so that a stop or a ceiling is as hard to take back
unseen as what a run did.
"""

from __future__ import annotations

from decimal import Decimal

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


class CeilingSet(Entry, frozen=True, tag="ceiling_set.1"):
    """A shared budget has these ceilings from here on; None lifts a unit's. `per` is `day` or `ever`."""

    pool: str
    per: str
    ceilings: dict[str, Decimal | None]
    why: str
    by: str


StoreEntry = SwitchSet | SwitchLifted | CeilingSet
