"""What every store reads, over the named statements of each.

A store's own methods only say on which connection, and on which thread, this is asked. Where an answer rests on more
than one statement they are read as of one instant: a head, and the entries that it points to.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from milepost.core.chain import genesis
from milepost.core.pools import NOTHING, Row, bucket
from milepost.errors import Damaged, UnknownRun
from milepost.stores import hiding, pruning, stopping
from milepost.stores.api import (
    ApprovalRow,
    Head,
    OnceRow,
    OpenEffect,
    Query,
    RunRow,
    Stored,
    Switch,
    Tail,
)
from milepost.stores.encryption import MAGIC, reveal
from milepost.stores.pools import PoolRow, PoolRows
from milepost.stores.turns import FleetReading

if TYPE_CHECKING:
    from collections.abc import Sequence

    from milepost.stores.encryption import Cipher
    from milepost.stores.keeping import Prunable, RunCopy, Standing
    from milepost.stores.statements import Statements


class Reads(FleetReading):
    """Answers about a store. Each method is the one of `stores.api.Store` with its name."""

    __slots__ = ("_cipher", "_id", "_run", "_sql")

    def __init__(self, sql: Statements, store_id: str, cipher: Cipher | None) -> None:
        self._sql = sql
        self._run = sql.run
        self._id = store_id
        self._cipher = cipher

    # ------------------------------------------------------------ one run

    def number(self, run_id: str) -> int:
        """Return the number of a run. Raises UnknownRun."""
        rows = self._run("run_number", run_id)
        if not rows:
            raise UnknownRun(run_id)
        return int(rows[0][0])

    def _head(self, run: int, run_id: str) -> tuple[Head, int]:
        rows = self._run("head_of", run)
        if not rows:
            raise Damaged(run_id, "it has no head")
        epoch, row, seq, digest, boundary, segment = rows[0]
        return Head(run, run_id, epoch, row, seq, digest, segment), boundary

    def _stored(self, run_id: str, rows: Sequence[tuple[Any, ...]]) -> list[Stored]:
        if self._cipher is None and not any(row[1].startswith(MAGIC) for row in rows):
            return [Stored(*row) for row in rows]
        opening = hiding.opener(self._cipher, run_id)
        return [Stored(seq, body, digest, opening) for seq, body, digest in rows]

    def _genesis(self, run: int, run_id: str) -> bytes:
        origin = self._run("origin_of", run)
        return genesis(origin[0][0] if origin else self._id, run_id)

    def tail(self, run_id: str) -> Tail:
        """Return a run from its latest boundary to its head. Raises UnknownRun, Damaged."""
        with self._sql.instant():
            run = self.number(run_id)
            head, boundary = self._head(run, run_id)
            rows = self._run("tail_of", head.row, boundary)
            if not rows:
                raise Damaged(run_id, "the entry that its head names is missing", seq=head.seq)
            if rows[0][2] is None:
                before = self._genesis(run, run_id)
            else:
                found = self._run("hash_of_row", rows[0][2])
                if not found:
                    raise Damaged(run_id, "the entry before its boundary is missing", seq=rows[0][1] - 1)
                before = found[0][0]
        if rows[0][0] != boundary:
            raise Damaged(run_id, "its boundary cannot be reached from its head", seq=rows[0][1])
        return Tail(head, before, self._stored(run_id, [row[1:2] + row[3:] for row in rows]))

    def chain(self, run_id: str) -> tuple[bytes, list[Stored], Head]:
        """Return the genesis hash, every entry and the head of a run. Raises UnknownRun, Damaged."""
        with self._sql.instant():
            run = self.number(run_id)
            head, _ = self._head(run, run_id)
            rows = self._run("whole_chain", head.row)
            first = self._genesis(run, run_id)
        return first, self._stored(run_id, rows), head

    def after(self, run_id: str, seq: int) -> list[Stored]:
        """Return the entries of a run whose number is above `seq`. Raises UnknownRun, Damaged."""
        with self._sql.instant():
            head, _ = self._head(self.number(run_id), run_id)
            rows = self._run("entries_after", head.row, seq)
        return self._stored(run_id, rows)

    def chunk(self, run_id: str, digest: str) -> bytes:
        """Return a chunk's bytes as they were given. Raises Damaged when it is missing."""
        number = self.number(run_id)
        if self._cipher is not None:
            name = self._cipher.chunk_name(run_id, digest)
            rows = self._run("chunk_of", number, name)
            if rows:
                return self._cipher.open(run_id, f"chunk {name}", bytes(rows[0][0]))
        rows = self._run("chunk_of", number, digest)
        if not rows:
            raise Damaged(run_id, f"chunk {digest[:12]} is missing")
        return bytes(rows[0][0])

    def inbox(self, run_id: str) -> list[tuple[int, bytes]]:
        """Return the messages that were not taken, oldest first."""
        found = self._run("inbox_of", self.number(run_id))
        return [(id_, reveal(self._cipher, run_id, "message", body)) for id_, body in found]

    def run(self, run_id: str) -> RunRow:
        """Return a run's row. Raises UnknownRun."""
        rows = self._run("run_row", run_id)
        if not rows:
            raise UnknownRun(run_id)
        return self._shown(rows[0])

    def _shown(self, row: tuple[Any, ...]) -> RunRow:
        return hiding.run_row(self._cipher, _run_row(row))

    def resolve_id(self, prefix: str) -> str:
        """Return the one run id that begins with `prefix`. Raises UnknownRun when none or several do."""
        if self._run("run_number", prefix):
            return prefix
        matches = [str(row[0]) for row in self._run("runs_beginning_with", prefix)]
        if len(matches) == 1:
            return matches[0]
        raise UnknownRun(prefix, matches)

    def events(self, run_id: str, after: int) -> list[tuple[int, int, bytes]]:
        """Return up to 500 diagnostic events after event number `after`, as (number, moment, bytes)."""
        found = self._run("events_after", self.number(run_id), after)
        return [(id_, at, reveal(self._cipher, run_id, "event", body)) for id_, at, body in found]

    def copy(self, run_id: str) -> RunCopy:
        """Return a whole run, with the bytes as stored. Raises UnknownRun, Damaged."""
        return pruning.copy(self._sql, self._id, self.number(run_id), run_id)

    # ------------------------------------------------------------ runs and workers

    def runs(self, query: Query) -> list[RunRow]:
        """Return the runs that fit, newest first."""
        name, value = query.tag or (None, None)
        asked = (query.status, query.workflow, query.key, query.parent, int(query.needs_you), name, value, query.limit)
        return [hiding.run_row(self._cipher, _run_row(row)) for row in self._run("find_runs", *asked)]

    def killed_since(self, at: int) -> list[str]:
        """Return the ids of runs that were killed since a moment, or settled after that: the latest first."""
        return [str(row[0]) for row in self._run("killed_since", at)]

    def counts(self) -> dict[str, int]:
        """Return how many runs there are by status."""
        return {str(status): int(count) for status, count in self._run("count_runs")}

    def with_mail(self, owner: str) -> list[str]:
        """Return the ids of the runs this owner holds for which messages wait."""
        return [str(row[0]) for row in self._run("held_with_mail", owner)]

    def undelivered(self) -> dict[str, int]:
        """Return how many messages wait in the inbox of each run that has any."""
        return {str(run_id): int(count) for run_id, count in self._run("undelivered")}

    # ------------------------------------------------------------ effects, approvals, switches

    def effects(self, run_id: str | None = None) -> list[OpenEffect]:
        """Return the effects that are not settled, of one run or of all."""
        run = None if run_id is None else self.number(run_id)
        return [hiding.open_effect(self._cipher, OpenEffect(*row)) for row in self._run("open_effects", run)]

    def approvals(self, prefix: str = "", verdict: str | None = None) -> list[ApprovalRow]:
        """Return approvals whose id begins with `prefix`, oldest first."""
        found = self._run("approvals_like", prefix, verdict)
        return [hiding.approval(self._cipher, ApprovalRow(*row)) for row in found]

    def switches(self) -> list[Switch]:
        """Return what is stopped now, and by what: switches by scope, then the breakers that hold calls."""
        return stopping.standing(self._run("stops"), self._cipher)

    def waiting(self) -> dict[str, int]:
        """Return how many runs that nobody holds wait for each scope."""
        return {str(scope): int(count) for scope, count in self._run("count_waits")}

    def once(self, tenant: str, tool: str, value: str) -> OnceRow | None:
        """Return who holds a business identity."""
        identity = value if self._cipher is None else self._cipher.identity(tenant, tool, value)
        rows = self._run("once_of", tenant, tool, identity)
        return hiding.once_row(self._cipher, identity, OnceRow(*rows[0])) if rows else None

    # ------------------------------------------------------------ shared budgets

    def pools(self, day: int) -> list[PoolRow]:
        """Return every ceiling of a shared pool, and what is spent and reserved of it; days are counted from 1970."""
        rows = self.pool_rows()
        held: dict[Row, Decimal] = {}
        for parts in rows.held.values():
            for row, amount in parts.items():
                held[row] = held.get(row, NOTHING) + amount
        return [
            PoolRow(pool, per, unit, Decimal(ceiling), rows.spent.get(row, NOTHING), held.get(row, NOTHING))
            for pool, per, unit, ceiling in self._run("ceilings")
            for row in [(pool, bucket(per, day), unit)]
        ]

    def overspent(self) -> dict[str, dict[str, Decimal]]:
        """Return by run id what runs have spent above their reservations, per unit; the latest run first."""
        found: dict[str, dict[str, Decimal]] = {}
        for run_id, unit, amount in self._run("overspent"):
            found.setdefault(run_id, {})[unit] = Decimal(amount)
        return found

    def pool_rows(self) -> PoolRows:
        """Return the rows of the shared pools."""
        with self._sql.instant():
            spent = {(pool, day, unit): Decimal(amount) for pool, day, unit, amount in self._run("all_spent")}
            found = PoolRows(spent, {})
            for run_id, step, pool, day, unit, amount in self._run("all_reserved"):
                found.held.setdefault((run_id, step), {})[pool, day, unit] = Decimal(amount)
            self._bring_up(found)
        return found

    def _bring_up(self, rows: PoolRows) -> None:
        """Bring rows that were read up to what stands in notes, in a store that has any."""

    # ------------------------------------------------------------ the whole store

    def written(self, after: int) -> list[tuple[int, str, int, bytes]]:
        """Return up to 1000 entries of all runs behind a row, as (row, run id, number, bytes), as they were written."""
        found = self._run("written_after", after)
        return [
            (row, run_id, seq, reveal(self._cipher, run_id, f"entry {seq}", body)) for row, run_id, seq, body in found
        ]

    def standing(self) -> Standing:
        """Return where every chain ends, what was pruned, and the number of the last seal."""
        return pruning.standing(self._sql, self._id)

    def prunable(self, before: int, workflow: str | None, limit: int) -> list[Prunable]:
        """Return runs that ended before a moment (milliseconds since 1970), oldest first, with what keeps them."""
        return pruning.prunable(self._sql, before, workflow, limit)


def _run_row(row: tuple[Any, ...]) -> RunRow:
    return RunRow(*(*row[:4], bool(row[4]), *row[5:]))
