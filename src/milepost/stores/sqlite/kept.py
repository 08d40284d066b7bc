"""What the latest batch knew, for as long as it is true.

SQLite's data version tells whether anything was committed to the file, by this connection or any other. It is looked at
inside the transaction, when nobody else can write any more: where it is the one that the latest batch left behind, what
that batch knew is what stands in the file, and a check against it is as good as with the rows read again. Where anybody
has written in between, they are read again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from milepost.stores.facts import Facts

if TYPE_CHECKING:
    import apsw

ROWS_KEPT = 10_000


class Kept:
    """The facts of the latest batch, with the version of the data that they are true of."""

    __slots__ = ("_connection", "_version", "behind", "facts")

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._version = 0
        self.facts: Facts | None = None
        self.behind = False  # whether the latest batch left tables behind, whatever is still known of it

    def take(self) -> Facts:
        """Return what is known inside the transaction that has begun. Who takes it keeps it again, or it is gone."""
        facts, self.facts = self.facts, None
        return facts if facts is not None and self._connection.data_version() == self._version else Facts()

    def keep(self, facts: Facts, *, whole: bool) -> None:
        """Keep what a batch knows where the `whole` of it is true, right after its commit.

        That is before this connection looks at the file again.
        """
        self.behind = facts.behind is not None
        if whole and facts.size <= ROWS_KEPT:
            self.facts, self._version = facts, self._connection.data_version()
