"""The embedded store. One connection writes, a second one reads what is committed.

Commits run on the event loop's thread: a commit takes less than handing it to another thread and back. Where the disk
is slow and tools are in flight the writer asks for `threaded`, and the loop stays free.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from itertools import groupby
from typing import TYPE_CHECKING, Any, cast

import apsw
import msgspec

from milepost.core.chain import genesis
from milepost.core.pools import NOTHING, Row, bucket
from milepost.errors import Damaged, MilepostError, StoreFailed, UnknownRun
from milepost.stores.api import (
    Append,
    ApprovalRow,
    Capabilities,
    Check,
    DueRun,
    Head,
    OnceRow,
    OpenEffect,
    Query,
    RunRow,
    Stored,
    Switch,
    Tail,
    WorkerRow,
)
from milepost.stores.encryption import MAGIC, KeyMissing, reveal
from milepost.stores.pools import PoolRow, PoolRows
from milepost.stores.sqlite import health, hiding, keeping, stopping
from milepost.stores.sqlite.connection import SQL, connect, extend_log, named, named_errors, prepare, read_only
from milepost.stores.sqlite.writing import Batch, Recount, RolledBack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from milepost.stores.api import Operation
    from milepost.stores.encryption import Cipher
    from milepost.stores.keeping import Prunable, RunCopy, Standing

SLOW_S = 0.002
COMMITS_BEFORE_EXTENDING = 64


class SqliteStore:
    """A store in one SQLite file."""

    capabilities = Capabilities(transactional=True, lock_files=True)

    def __init__(self, place: str, *, create: bool = False, cipher: Cipher | None = None) -> None:
        """Open the file, or create it. With a cipher, what is written from here on is encrypted.

        Raises StoreMissing, NotAStore, NewerSchema, StoreBusy, UnsafeLibrary.
        """
        self.place = place
        self._cipher = cipher
        self._writer = connect(place, create=create)
        try:
            self.id = prepare(self._writer, place)
            self._encrypted = hiding.is_on(self._writer, cipher, place)
            self._reader = read_only(place)
        except BaseException:
            self._writer.close()
            raise
        self._thread: ThreadPoolExecutor | None = None
        self._renewer: apsw.Connection | None = None
        self._commits = 0
        self._failed = ""
        self.commit_seconds = 0.0

    # ------------------------------------------------------------ writing

    async def commit(self, operations: Sequence[Operation], *, threaded: bool = False) -> list[Any]:
        """Write a batch; see `stores.api`. Answers stand in the order of the operations, refusals as errors.

        Raises StoreBusy when nothing was written, StoreFailed when it is not known.
        """
        if not threaded:
            return self._commit(operations)
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "milepost-commit")
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._commit, operations)

    def commit_now(self, operations: Sequence[Operation], *, must: bool = False) -> list[Any] | None:
        """Write a batch at once on this thread; None, unless it `must` be, where commits are slow."""
        return None if self.commit_seconds > SLOW_S and not must else self._commit(operations)

    def _commit(self, operations: Sequence[Operation]) -> list[Any]:
        if self._failed:
            raise StoreFailed(self._failed)
        if self._cipher is not None or self._encrypted:
            return self._commit_hidden(operations)
        return self._commit_as_given(operations)

    def _commit_hidden(self, operations: Sequence[Operation]) -> list[Any]:
        cipher = self._cipher
        if cipher is None:
            return [KeyMissing("") for _ in operations]  # nothing was tried, so nothing failed
        with named_errors(self.place):
            if not self._encrypted:
                hiding.turn_on(self._writer, cipher)
                self._encrypted = True
        refused: dict[int, MilepostError] = {}
        hidden: list[Operation] = []
        for place, operation in enumerate(operations):
            try:
                hidden.append(hiding.hide(cipher, operation))
            except MilepostError as error:
                refused[place] = error
        answers = iter(self._commit_as_given(hidden))
        return [
            refused[place] if place in refused else hiding.answered(cipher, operation, next(answers))
            for place, operation in enumerate(operations)
        ]

    def _commit_as_given(self, operations: Sequence[Operation]) -> list[Any]:
        started = time.perf_counter()
        try:
            batch, answers = self._write(operations)
        except apsw.Error as error:
            raise named(self.place, error) from error
        try:
            self._writer.execute("COMMIT").fetchall()
        except apsw.Error as error:
            # The live connection may show the rows as gone while the file has them: nobody knows. Stop here.
            self._failed = str(error)
            raise StoreFailed(self._failed) from error
        for moved in batch.moved.values():
            moved.head.row, moved.head.seq, moved.head.hash = moved.row, moved.seq, moved.hash
        self._commits += 1
        if self._commits == COMMITS_BEFORE_EXTENDING:
            extend_log(self._writer, self.place)
        self.commit_seconds = self.commit_seconds * 0.9 + (time.perf_counter() - started) * 0.1
        return answers

    def _write(self, operations: Sequence[Operation]) -> tuple[Batch, list[Any]]:
        refused: list[Operation] = []
        while True:
            try:
                return self._transact(operations, refused)
            except RolledBack as error:
                refused.append(error.append)

    def _transact(self, operations: Sequence[Operation], refused: Sequence[Operation]) -> tuple[Batch, list[Any]]:
        writer = self._writer
        writer.execute("BEGIN IMMEDIATE").fetchall()
        try:
            batch = Batch(writer, self.id, refused, self._cipher)
            if {*map(type, operations)} == {Append}:
                try:
                    batch.together(cast("Sequence[Append]", operations))
                except Recount:
                    writer.execute("ROLLBACK").fetchall()
                    writer.execute("BEGIN IMMEDIATE").fetchall()
                    batch = Batch(writer, self.id, refused, self._cipher)
                    return batch, [batch.alone(operation) for operation in operations]
                return batch, [None] * len(operations)
            answers: list[Any] = []
            for plain, some in groupby(operations, lambda operation: type(operation) is Append):
                group = list(some)
                if plain and len(group) > 1:
                    answers.extend(batch.group(cast("list[Append]", group)))
                else:
                    answers.extend(batch.alone(operation) for operation in group)
        except BaseException:
            if writer.in_transaction:
                writer.execute("ROLLBACK").fetchall()
            raise
        return batch, answers

    def renew(self, worker: str, until: int) -> None:
        """Renew a worker's lease; called from a thread of its own, so it has a connection of its own."""
        with named_errors(self.place):
            if self._renewer is None:
                self._renewer = connect(self.place, create=False)
            self._renewer.execute(SQL["renew_worker"], (until, worker)).fetchall()

    def end_worker(self, worker: str, at: int) -> None:
        """Write that a worker left in good order."""
        with named_errors(self.place):
            self._writer.execute(SQL["end_worker"], (at, worker)).fetchall()

    def close(self) -> None:
        """Close every connection."""
        if self._thread is not None:
            self._thread.shutdown()
        for connection in (self._renewer, self._reader, self._writer):
            if connection is not None:
                connection.close()

    # ------------------------------------------------------------ reading

    def _read(self, name: str, *args: Any) -> list[tuple[Any, ...]]:
        with named_errors(self.place):
            return self._reader.execute(SQL[name], args).fetchall()

    def _number(self, run_id: str) -> int:
        rows = self._read("run_number", run_id)
        if not rows:
            raise UnknownRun(run_id)
        return int(rows[0][0])

    def _head(self, run: int, run_id: str) -> tuple[Head, int]:
        rows = self._read("head_of", run)
        if not rows:
            raise Damaged(run_id, "it has no head")
        epoch, row, seq, digest, boundary, segment = rows[0]
        return Head(run, run_id, epoch, row, seq, digest, segment), boundary

    def _stored(self, run_id: str, rows: Sequence[tuple[Any, ...]]) -> list[Stored]:
        if self._cipher is None and not any(row[1].startswith(MAGIC) for row in rows):
            return [Stored(*row) for row in rows]
        opening = hiding.opener(self._cipher, run_id)
        return [Stored(seq, body, digest, opening) for seq, body, digest in rows]

    def plain(self, run_id: str, place: str, stored: bytes) -> bytes:
        """Return what stored bytes say that stand at a place of a run. Raises KeyMissing, Damaged."""
        return reveal(self._cipher, run_id, place, stored)

    def chunk_name(self, run_id: str, digest: str) -> str:
        """Return the name that a chunk is stored under."""
        return digest if self._cipher is None else self._cipher.chunk_name(run_id, digest)

    def _genesis(self, run: int, run_id: str) -> bytes:
        origin = self._read("origin_of", run)
        return genesis(origin[0][0] if origin else self.id, run_id)

    async def tail(self, run_id: str) -> Tail:
        """Return a run from its latest boundary to its head. Raises UnknownRun, Damaged."""
        run = self._number(run_id)
        with named_errors(self.place), self._reader:  # one snapshot: the head and what it points to
            head, boundary = self._head(run, run_id)
            rows = self._read("tail_of", head.row, boundary)
            if not rows:
                raise Damaged(run_id, "the entry that its head names is missing", seq=head.seq)
            before = self._genesis(run, run_id)
            if rows[0][2] is not None:
                found = self._read("hash_of_row", rows[0][2])
                if not found:
                    raise Damaged(run_id, "the entry before its boundary is missing", seq=rows[0][1] - 1)
                before = found[0][0]
        if rows[0][0] != boundary:
            raise Damaged(run_id, "its boundary cannot be reached from its head", seq=rows[0][1])
        return Tail(head, before, self._stored(run_id, [row[1:2] + row[3:] for row in rows]))

    async def chain(self, run_id: str) -> tuple[bytes, list[Stored], Head]:
        """Return the genesis hash, every entry and the head of a run. Raises UnknownRun, Damaged."""
        run = self._number(run_id)
        with named_errors(self.place), self._reader:
            head, _ = self._head(run, run_id)
            rows = self._read("whole_chain", head.row)
        return self._genesis(run, run_id), self._stored(run_id, rows), head

    async def after(self, run_id: str, seq: int) -> list[Stored]:
        """Return the entries of a run whose number is above `seq`. Raises UnknownRun, Damaged."""
        run = self._number(run_id)
        with named_errors(self.place), self._reader:
            head, _ = self._head(run, run_id)
            rows = self._read("entries_after", head.row, seq)
        return self._stored(run_id, rows)

    async def chunk(self, run_id: str, digest: str) -> bytes:
        """Return a chunk's bytes as stored. Raises Damaged when it is missing."""
        number = self._number(run_id)
        if self._cipher is not None:
            name = self._cipher.chunk_name(run_id, digest)
            rows = self._read("chunk_of", number, name)
            if rows:
                return self._cipher.open(run_id, f"chunk {name}", bytes(rows[0][0]))
        rows = self._read("chunk_of", number, digest)
        if not rows:
            raise Damaged(run_id, f"chunk {digest[:12]} is missing")
        return bytes(rows[0][0])

    async def inbox(self, run_id: str) -> list[tuple[int, bytes]]:
        """Return the messages that were not taken, oldest first."""
        found = self._read("inbox_of", self._number(run_id))
        return [(id_, reveal(self._cipher, run_id, "message", body)) for id_, body in found]

    async def with_mail(self, owner: str) -> list[str]:
        """Return the ids of the runs this owner holds for which messages wait."""
        return [str(row[0]) for row in self._read("held_with_mail", owner)]

    async def run(self, run_id: str) -> RunRow:
        """Return a run's row. Raises UnknownRun."""
        rows = self._read("run_row", run_id)
        if not rows:
            raise UnknownRun(run_id)
        return hiding.run_row(self._cipher, _run_row(rows[0]))

    async def resolve_id(self, prefix: str) -> str:
        """Return the one run id that begins with `prefix`. Raises UnknownRun when none or several do."""
        if self._read("run_number", prefix):
            return prefix
        matches = [str(row[0]) for row in self._read("runs_beginning_with", prefix)]
        if len(matches) == 1:
            return matches[0]
        raise UnknownRun(prefix, matches)

    async def runs(self, query: Query) -> list[RunRow]:
        """Return the runs that fit, newest first."""
        name, value = query.tag or (None, None)
        asked = (query.status, query.workflow, query.key, query.parent, int(query.needs_you), name, value, query.limit)
        return [hiding.run_row(self._cipher, _run_row(row)) for row in self._read("find_runs", *asked)]

    async def counts(self) -> dict[str, int]:
        """Return how many runs there are by status."""
        return {str(status): int(count) for status, count in self._read("count_runs")}

    async def due(self, now: int, workflows: Sequence[str], limit: int) -> list[DueRun]:
        """Return runs that nobody holds and that may be claimed now."""
        names = msgspec.json.encode(list(workflows)).decode()
        return [_due(row) for row in self._read("due_runs", now, names, limit)]

    async def held_by(self, owner: str) -> list[DueRun]:
        """Return the runs that an owner holds."""
        return [_due(row) for row in self._read("runs_of_owner", owner)]

    async def holders(self) -> list[WorkerRow]:
        """Return the workers that hold runs, alive or not."""
        rows = self._read("holders")
        return [WorkerRow(id_, host, pid, 0, until, ended) for id_, host, pid, until, ended in rows]

    async def workers(self) -> list[WorkerRow]:
        """Return every worker that was ever enlisted."""
        return [WorkerRow(*row) for row in self._read("workers")]

    async def effects(self, run_id: str | None = None) -> list[OpenEffect]:
        """Return the effects that are not settled, of one run or of all."""
        run = None if run_id is None else self._number(run_id)
        return [hiding.open_effect(self._cipher, OpenEffect(*row)) for row in self._read("open_effects", run)]

    async def approvals(self, prefix: str = "", verdict: str | None = None) -> list[ApprovalRow]:
        """Return approvals whose id begins with `prefix`, oldest first."""
        found = self._read("approvals_like", prefix, verdict)
        return [hiding.approval(self._cipher, ApprovalRow(*row)) for row in found]

    async def switches(self) -> list[Switch]:
        """Return what is stopped now, and by what: switches by scope, then the breakers that hold calls."""
        return self.switches_now()

    def switches_now(self) -> list[Switch]:
        """Return what `switches` does, to a caller that cannot wait."""
        found, breakers = stopping.read(self._read("stops"), self._cipher)
        return [*found, *(stopping.switch_of(row) for row in breakers.values() if row.state != "closed")]

    async def waiting(self) -> dict[str, int]:
        """Return how many runs that nobody holds wait for each scope."""
        return {str(scope): int(count) for scope, count in self._read("count_waits")}

    async def pools(self, day: int) -> list[PoolRow]:
        """Return every ceiling of a shared pool, and what is spent and reserved of it; days are counted from 1970."""
        rows = await self.pool_rows()
        held: dict[Row, Decimal] = {}
        for parts in rows.held.values():
            for row, amount in parts.items():
                held[row] = held.get(row, NOTHING) + amount
        return [
            PoolRow(pool, per, unit, Decimal(ceiling), rows.spent.get(row, NOTHING), held.get(row, NOTHING))
            for pool, per, unit, ceiling in self._read("ceilings")
            for row in [(pool, bucket(per, day), unit)]
        ]

    async def overspent(self) -> dict[str, dict[str, Decimal]]:
        """Return by run id what runs have spent above their reservations, per unit; the latest run first."""
        found: dict[str, dict[str, Decimal]] = {}
        for run_id, unit, amount in self._read("overspent"):
            found.setdefault(run_id, {})[unit] = Decimal(amount)
        return found

    async def pool_rows(self) -> PoolRows:
        """Return the rows of the shared pools."""
        with named_errors(self.place), self._reader:
            spent = {(pool, day, unit): Decimal(amount) for pool, day, unit, amount in self._read("all_spent")}
            found = PoolRows(spent, {})
            for run_id, step, pool, day, unit, amount in self._read("all_reserved"):
                found.held.setdefault((run_id, step), {})[pool, day, unit] = Decimal(amount)
        return found

    async def written(self, after: int) -> list[tuple[int, str, int, bytes]]:
        """Return up to 1000 entries of all runs behind a row, as (row, run id, number, bytes), as they were written."""
        found = self._read("written_after", after)
        return [(row, run_id, seq, self.plain(run_id, f"entry {seq}", body)) for row, run_id, seq, body in found]

    async def once(self, tenant: str, tool: str, value: str) -> OnceRow | None:
        """Return who holds a business identity."""
        identity = value if self._cipher is None else self._cipher.identity(tenant, tool, value)
        rows = self._read("once_of", tenant, tool, identity)
        return hiding.once_row(self._cipher, identity, OnceRow(*rows[0])) if rows else None

    async def events(self, run_id: str, after: int) -> list[tuple[int, int, bytes]]:
        """Return up to 500 diagnostic events after event number `after`, as (number, moment, bytes)."""
        found = self._read("events_after", self._number(run_id), after)
        return [(id_, at, reveal(self._cipher, run_id, "event", body)) for id_, at, body in found]

    async def undelivered(self) -> dict[str, int]:
        """Return how many messages wait in the inbox of each run that has any."""
        return {str(run_id): int(count) for run_id, count in self._read("undelivered")}

    async def standing(self) -> Standing:
        """Return where every chain ends, what was pruned, and the number of the last seal."""
        with named_errors(self.place):
            return keeping.standing(self._reader, self.id)

    async def prunable(self, before: int, workflow: str | None, limit: int) -> list[Prunable]:
        """Return runs that ended before a moment (milliseconds since 1970), oldest first, with what keeps them."""
        with named_errors(self.place):
            return keeping.prunable(self._reader, before, workflow, limit)

    async def copy(self, run_id: str) -> RunCopy:
        """Return a whole run, with the bytes as stored. Raises UnknownRun, Damaged."""
        run = self._number(run_id)
        with named_errors(self.place):
            return keeping.copy(self._reader, self.id, run, run_id)

    async def checks(self, now: int) -> list[Check]:
        """Return what durability, privacy and order rest on, as it is. `now` is in milliseconds since 1970."""
        with named_errors(self.place):
            return health.checks(self._writer, self.place, now)

    async def pages(self) -> Check:
        """Read the whole file and say whether it is sound."""
        return health.pages(self._writer)


def _run_row(row: tuple[Any, ...]) -> RunRow:
    return RunRow(*(*row[:4], bool(row[4]), *row[5:]))


def _due(row: tuple[Any, ...]) -> DueRun:
    run, id_, workflow, attached, status, owner = row
    return DueRun(run, id_, workflow, bool(attached), status, owner)
