"""What a batch has read of switches, breakers and shared budgets, which every `started` is checked against.

These are small tables that hardly ever change. What one batch read of them, and changed itself, may be handed on to the
next, by a store that can say inside the transaction whether anything else was written in between. A batch hands on what
it knows where all of it was written: whatever was refused or rolled back leaves nothing behind that it had in memory.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from milepost.core.breaker import Row as Breaker
    from milepost.core.pools import Key, Row
    from milepost.stores.api import Switch


class Counted:
    """What is counted under one ceiling, on one day where it is for a day; None is what was not read yet."""

    __slots__ = ("held", "key", "limit", "row", "spent", "unit")

    def __init__(self, key: Key, row: Row, limit: Decimal) -> None:
        self.key = key
        self.row = row
        self.unit = row[2]
        self.limit = limit
        self.spent: Decimal | None = None
        self.held: Decimal | None = None


class Pending:
    """What is decided and does not stand in its tables yet, in the order of writing.

    Reservations that go, those that are made, what is counted otherwise than its row says, and answers to approvals. A
    reservation that comes and goes meanwhile is nothing to the tables.
    """

    __slots__ = ("answers", "booked", "drops", "puts")

    def __init__(self) -> None:
        self.drops: dict[tuple[int, str], None] = {}
        self.puts: dict[tuple[int, str], Sequence[tuple[Counted, Decimal]]] = {}
        self.booked: dict[Counted, None] = {}
        self.answers: dict[str, tuple[str, str, str]] = {}

    def __len__(self) -> int:
        return len(self.drops) + len(self.puts) + len(self.booked) + len(self.answers)


class Facts:
    """What one transaction knows. `by_scope`, `ceilings` and the journal's `next_row` are None until they are read.

    `behind` is the first entry whose note is not in the tables yet, None where there is none; see noting.py. `pending`
    is what these notes say, None where that has to be read.
    """

    __slots__ = (
        "behind", "breakers", "by_scope", "ceilings", "counted", "holding", "next_row", "pending", "reserved", "under",
    )  # fmt: skip

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
        self.counted: dict[Row, Counted] = {}
        self.holding = False  # whether `held` of any of them is known
        self.under: dict[tuple[object, ...], list[Counted]] = {}  # by pools, day and units: what they fall under
        self.reserved: dict[tuple[int, str], Sequence[tuple[Counted, Decimal]]] = {}  # by run and step, as made here
        self.pending: Pending | None = Pending() if self.behind is None else None

    @property
    def size(self) -> int:
        """How many rows are kept in memory, roughly."""
        return len(self.counted) + len(self.under) + len(self.reserved) + len(self.pending or ())
