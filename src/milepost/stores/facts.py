"""What a batch has read of switches, breakers and shared budgets, which every `started` is checked against.

These are small tables that hardly ever change. What one batch read of them, and changed itself, may be handed on to the
next, by a store that can say inside the transaction whether anything else was written in between. Only a batch of plain
appends that were written together hands on what it knows: whatever was refused, rolled back, or is no append, leaves
nothing behind that it had in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from decimal import Decimal

    from milepost.core.breaker import Row as Breaker
    from milepost.core.pools import Key, Row
    from milepost.stores.api import Switch


class Facts:
    """What one transaction knows. `by_scope`, `ceilings` and the journal's `next_row` are None until they are read.

    `behind` is the first entry whose note is not in the tables yet, None where there is none; see noting.py.
    """

    __slots__ = ("behind", "breakers", "by_scope", "ceilings", "held", "keys", "next_row", "reserved", "spent")

    def __init__(self) -> None:
        self.next_row: int | None = None
        self.behind: int | None = None
        self.forget_stops()
        self.forget_pools()

    def forget_stops(self) -> None:
        """Read anew what is stopped."""
        self.by_scope: dict[str, list[Switch]] | None = None
        self.breakers: dict[str, Breaker] = {}

    def forget_pools(self) -> None:
        """Read the shared budgets anew."""
        self.ceilings: dict[Key, Decimal] | None = None
        self.held: dict[Row, Decimal] = {}
        self.spent: dict[Row, Decimal] = {}
        self.keys: dict[tuple[object, ...], list[tuple[Key, Row]]] = {}  # by pools, day and units: their ceilings
        self.reserved: dict[tuple[int, str], list[tuple[Row, Decimal]]] = {}  # by run and step, as written here
