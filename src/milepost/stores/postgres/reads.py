"""What is read of each run that is driven, in one question each: a round trip costs more than what it asks for.

An answer that does not stand as it should is none (`..._in` return None): then it is read again as every store reads
it, which says what is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from milepost.core.chain import genesis
from milepost.stores import turns
from milepost.stores.api import Head, Tail
from milepost.stores.encryption import reveal
from milepost.stores.reading import Reads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from milepost.core.queues import Serving
    from milepost.stores.api import RunRow
    from milepost.stores.fleet import DueRun
    from milepost.stores.postgres.crowd import Apart

    Rows = list[tuple[Any, ...]]

AT_ONCE = ("run_row", "tail_at_once", "chunk_at_once", "inbox_at_once")


class PostgresReads(Reads):
    """Answers about a store on PostgreSQL."""

    __slots__ = ()

    def tail(self, run_id: str) -> Tail:
        """Return a run from its latest boundary to its head. Raises UnknownRun, Damaged."""
        return self.tail_in(run_id, self._run("tail_at_once", run_id)) or super().tail(run_id)

    def tail_in(self, run_id: str, rows: Rows) -> Tail | None:
        """Return the tail that rows of `tail_at_once` hold."""
        if not rows:
            return None
        run, epoch, row, seq, digest, boundary, segment, first, _, previous, _, _, before, origin = rows[0]
        if previous is None:
            before = genesis(origin or self._id, run_id)
        if first != boundary or before is None:
            return None
        head = Head(run, run_id, epoch, row, seq, digest, segment)
        return Tail(head, before, self._stored(run_id, [(row[8], row[10], row[11]) for row in rows]))

    def chunk(self, run_id: str, digest: str) -> bytes:
        """Return a chunk's bytes as they were given. Raises Damaged when it is missing."""
        found = self.chunk_in(self._run("chunk_at_once", run_id, digest))
        return super().chunk(run_id, digest) if found is None else found

    def chunk_in(self, rows: Rows) -> bytes | None:
        """Return the chunk that rows of `chunk_at_once` hold, where it is not encrypted."""
        return bytes(rows[0][0]) if rows and self._cipher is None else None

    def inbox(self, run_id: str) -> list[tuple[int, bytes]]:
        """Return the messages that were not taken, oldest first."""
        found = self.inbox_in(run_id, self._run("inbox_at_once", run_id))
        return super().inbox(run_id) if found is None else found

    def inbox_in(self, run_id: str, rows: Rows) -> list[tuple[int, bytes]] | None:
        """Return the messages that rows of `inbox_at_once` hold."""
        if not rows:
            return None
        return [(id_, reveal(self._cipher, run_id, "message", body)) for id_, body in rows if id_ is not None]

    def due_apart(
        self, now: int, workflows: Sequence[str], limit: int, serving: Serving, apart: Apart | None
    ) -> list[DueRun]:
        """Return what `due` does, to a worker beside others: see `crowd`."""
        return turns.due(self._sql, now, workflows, limit, serving, apart)

    def run_in(self, rows: Rows) -> RunRow | None:
        """Return the run that rows of `run_row` hold."""
        return self._shown(rows[0]) if rows else None
