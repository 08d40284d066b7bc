"""What is read of each run that is driven, in one question each: a round trip costs more than what it asks for.

Whatever does not stand as it should is read again as every store reads it, which says what is wrong.
"""

from __future__ import annotations

from milepost.core.chain import genesis
from milepost.stores.api import Head, Tail
from milepost.stores.encryption import reveal
from milepost.stores.reading import Reads


class PostgresReads(Reads):
    """Answers about a store on PostgreSQL."""

    __slots__ = ()

    def tail(self, run_id: str) -> Tail:
        """Return a run from its latest boundary to its head. Raises UnknownRun, Damaged."""
        rows = self._run("tail_at_once", run_id)
        if not rows:
            return super().tail(run_id)
        run, epoch, row, seq, digest, boundary, segment, first, _, previous, _, _, before, origin = rows[0]
        if previous is None:
            before = genesis(origin or self._id, run_id)
        if first != boundary or before is None:
            return super().tail(run_id)
        head = Head(run, run_id, epoch, row, seq, digest, segment)
        return Tail(head, before, self._stored(run_id, [(row[8], row[10], row[11]) for row in rows]))

    def chunk(self, run_id: str, digest: str) -> bytes:
        """Return a chunk's bytes as they were given. Raises Damaged when it is missing."""
        if self._cipher is None:
            for (body,) in self._run("chunk_at_once", run_id, digest):
                return bytes(body)
        return super().chunk(run_id, digest)

    def inbox(self, run_id: str) -> list[tuple[int, bytes]]:
        """Return the messages that were not taken, oldest first."""
        found = self._run("inbox_at_once", run_id)
        if not found:
            return super().inbox(run_id)
        return [(id_, reveal(self._cipher, run_id, "message", body)) for id_, body in found if id_ is not None]
