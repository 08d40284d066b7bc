"""The entries that say how a run's limits were tightened, and where they did not hold.

They follow the rules of `entries.py`, and stand in the run's own journal.
"""

from __future__ import annotations

import msgspec

from milepost.core.entries import Amounts, Entry


class Narrowed(Entry, frozen=True, tag="narrowed.1"):
    """A person took scopes from the run, or lowered what it was granted to these ceilings."""

    by: str
    scopes: tuple[str, ...] = ()
    ceilings: Amounts = msgspec.field(default_factory=dict)
    why: str = ""


class Overspent(Entry, frozen=True, tag="overspent.1"):
    """An attempt spent more than was reserved for it: by how much, per unit. It stands beside what settled it."""

    step: str
    path: str
    attempt: int
    reserved: Amounts
    spent: Amounts
    over: Amounts


LimitEntry = Narrowed | Overspent
