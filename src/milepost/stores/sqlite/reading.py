"""What of reading is SQLite's own: rows whose latest changes stand in notes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milepost.stores import noting
from milepost.stores.reading import Reads

if TYPE_CHECKING:
    from milepost.stores.pools import PoolRows


class SqliteReads(Reads):
    """Answers about a store in a SQLite file. In `approvals` and `copy`, notes are read by their statements."""

    __slots__ = ()

    def _bring_up(self, rows: PoolRows) -> None:
        """Bring rows that were read up to what stands in notes."""
        noting.lay_over(rows, self._run("notes_of_runs"))
