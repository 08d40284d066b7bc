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

from milepost.core.queues import EVERYTHING, Serving
from milepost.errors import StoreFailed
from milepost.stores import hiding
from milepost.stores.api import (
    Append,
    ApprovalRow,
    Capabilities,
    Check,
    Head,
    OnceRow,
    OpenEffect,
    Query,
    RunRow,
    Stored,
    Switch,
    Tail,
)
from milepost.stores.encryption import reveal
from milepost.stores.facts import Facts
from milepost.stores.fleet import DueRun, QueueRow, ScheduleRow, StillRun, WorkerRow
from milepost.stores.places import beside, wall_ms
from milepost.stores.pools import PoolRow, PoolRows
from milepost.stores.sqlite import health
from milepost.stores.sqlite.connection import SQL, connect, extend_log, named, named_errors, prepare, read_only
from milepost.stores.sqlite.kept import Kept
from milepost.stores.sqlite.reading import SqliteReads
from milepost.stores.sqlite.statements import NamedStatements, SqliteStatements
from milepost.stores.sqlite.writing import RolledBack, SqliteBatch
from milepost.stores.statements import Recount

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from milepost.stores.api import Operation
    from milepost.stores.encryption import Cipher
    from milepost.stores.keeping import Prunable, RunCopy, Standing

SLOW_S = 0.002
PLAIN = {Append}
LEAVING_MS = 200
COMMITS_BEFORE_EXTENDING = 64


class SqliteStore:
    """A store in one SQLite file."""

    capabilities = Capabilities(transactional=True, lock_files=True)

    def __init__(self, place: str, *, create: bool = False, cipher: Cipher | None = None) -> None:
        """Open the file, or create it. With a cipher, what is written from here on is encrypted.

        Raises StoreMissing, NotAStore, NewerSchema, StoreBusy, UnsafeLibrary.
        """
        self.place, self.local = place, beside(place)
        self._cipher = cipher
        self._writer = connect(place, create=create)
        try:
            self.id = prepare(self._writer, place)
            self._encrypted = hiding.is_on(SqliteStatements(self._writer), cipher, place)
            self._reader = read_only(place)
            self._reads = SqliteReads(NamedStatements(self._reader, place), self.id, cipher)
        except BaseException:
            self._writer.close()
            raise
        self._thread: ThreadPoolExecutor | None = None
        self._renewer: apsw.Connection | None = None
        self._commits = 0
        self._sql = SqliteStatements(self._writer)
        self._do = self._writer.cursor().execute
        self._kept = Kept(self._writer)
        self._version = 0
        self._latest: tuple[Any, Any] = (None, None)
        self._failed = ""
        self.commit_seconds = 0.0

    def wall(self) -> int:
        """Return the time that all processes of this store go by: this machine's, in milliseconds since 1970."""
        return wall_ms()

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

    def depart(self, operations: Sequence[Operation], landed: Callable[[list[Any] | Exception], None]) -> bool:  # noqa: ARG002
        """Say that a batch is never under way without somebody who waits for it: a file is written where one stands."""
        return False

    def _commit(self, operations: Sequence[Operation]) -> list[Any]:
        if self._failed:
            raise StoreFailed(self._failed)
        if self._cipher is not None or self._encrypted:
            return hiding.commit(self._cipher, operations, self._turn_on, self._commit_as_given)
        return self._commit_as_given(operations)

    def _turn_on(self, cipher: Cipher) -> None:
        if self._encrypted:
            return
        with named_errors(self.place):
            self._writer.execute("BEGIN IMMEDIATE").fetchall()
            try:
                hiding.turn_on(SqliteStatements(self._writer), cipher)
            except BaseException:
                self._writer.execute("ROLLBACK").fetchall()
                raise
            self._writer.execute("COMMIT").fetchall()
        self._encrypted = True

    def _commit_as_given(self, operations: Sequence[Operation]) -> list[Any]:
        started = time.perf_counter()
        try:
            batch, answers = self._write(operations)
        except apsw.Error as error:
            raise named(self.place, error) from error
        try:
            self._do("COMMIT")
        except apsw.Error as error:
            # The live connection may show the rows as gone while the file has them: nobody knows. Stop here.
            self._failed = str(error)
            raise StoreFailed(self._failed) from error
        self._kept.keep(batch.facts, whole=batch.whole)
        for moved in batch.moved.values():
            moved.head.row, moved.head.seq, moved.head.hash = moved.row, moved.seq, moved.hash
        self._commits += 1
        if self._commits == COMMITS_BEFORE_EXTENDING:
            extend_log(self._writer, self.place)
        self.commit_seconds = self.commit_seconds * 0.9 + (time.perf_counter() - started) * 0.1
        return answers

    def _write(self, operations: Sequence[Operation]) -> tuple[SqliteBatch, list[Any]]:
        refused: list[Operation] = []
        while True:
            try:
                return self._transact(operations, refused)
            except RolledBack as error:
                refused.append(error.append)

    def _transact(self, operations: Sequence[Operation], refused: Sequence[Operation]) -> tuple[SqliteBatch, list[Any]]:
        writer = self._writer
        self._do("BEGIN IMMEDIATE")
        try:
            batch = SqliteBatch(self._sql, writer, self.id, self._cipher, refused, self._kept.take())
            types = {*map(type, operations)}
            batch.begin(types)
            if types == PLAIN:
                try:
                    batch.together(cast("Sequence[Append]", operations))
                except Recount:
                    writer.execute("ROLLBACK").fetchall()
                    writer.execute("BEGIN IMMEDIATE").fetchall()
                    batch = SqliteBatch(self._sql, writer, self.id, self._cipher, refused, Facts())
                    batch.begin(types)
                    return batch, [batch.alone(operation) for operation in operations]
                return batch, [None] * len(operations)
            answers: list[Any] = []
            for plain, some in groupby(operations, lambda operation: type(operation) is Append):
                group = list(some)
                if plain and (batch.noting or len(group) > 1):
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
        if self._kept.behind and not self._failed:
            self._catch_up()
        for connection in (self._renewer, self._reader, self._writer):
            if connection is not None:
                connection.close()

    def _catch_up(self) -> None:
        """Let the tables say everything by themselves; where that cannot be done now, whoever writes next does it."""
        writer = self._writer
        try:
            writer.set_busy_timeout(LEAVING_MS)
            self._do("BEGIN IMMEDIATE")
            SqliteBatch(self._sql, writer, self.id, self._cipher, (), Facts()).begin(())
            self._do("COMMIT")
        except apsw.Error:
            if writer.in_transaction:
                writer.execute("ROLLBACK").fetchall()

    # ------------------------------------------------------------ reading

    def plain(self, run_id: str, place: str, stored: bytes) -> bytes:
        """Return what stored bytes say that stand at a place of a run. Raises KeyMissing, Damaged."""
        return reveal(self._cipher, run_id, place, stored)

    def chunk_name(self, run_id: str, digest: str) -> str:
        """Return the name that a chunk is stored under."""
        return digest if self._cipher is None else self._cipher.chunk_name(run_id, digest)

    def switches_now(self) -> list[Switch]:
        """Return what `switches` does, to a caller that cannot wait."""
        return self._reads.switches()

    async def tail(self, run_id: str) -> Tail:
        """Return a run from its latest boundary to its head. Raises UnknownRun, Damaged."""
        return self._reads.tail(run_id)

    async def chain(self, run_id: str) -> tuple[bytes, list[Stored], Head]:
        """Return the genesis hash, every entry and the head of a run. Raises UnknownRun, Damaged."""
        return self._reads.chain(run_id)

    async def after(self, run_id: str, seq: int) -> list[Stored]:
        """Return the entries of a run whose number is above `seq`. Raises UnknownRun, Damaged."""
        return self._reads.after(run_id, seq)

    async def chunk(self, run_id: str, digest: str) -> bytes:
        """Return a chunk's bytes as stored. Raises Damaged when it is missing."""
        return self._reads.chunk(run_id, digest)

    async def inbox(self, run_id: str) -> list[tuple[int, bytes]]:
        """Return the messages that were not taken, oldest first."""
        return self._reads.inbox(run_id)

    async def with_mail(self, owner: str) -> list[str]:
        """Return the ids of the runs this owner holds for which messages wait."""
        return self._reads.with_mail(owner)

    async def run(self, run_id: str) -> RunRow:
        """Return a run's row. Raises UnknownRun."""
        return self._reads.run(run_id)

    async def resolve_id(self, prefix: str) -> str:
        """Return the one run id that begins with `prefix`. Raises UnknownRun when none or several do."""
        return self._reads.resolve_id(prefix)

    async def runs(self, query: Query) -> list[RunRow]:
        """Return the runs that fit, newest first."""
        return self._reads.runs(query)

    async def killed_since(self, at: int) -> list[str]:
        """Return the ids of runs that were killed since a moment, or settled after that: the latest first."""
        return self._reads.killed_since(at)

    async def counts(self) -> dict[str, int]:
        """Return how many runs there are by status."""
        return self._reads.counts()

    async def due(self, now: int, workflows: Sequence[str], limit: int, serving: Serving = EVERYTHING) -> list[DueRun]:
        """Return runs that nobody holds and that may be claimed now, in the order of their turns."""
        return self._reads.due(now, workflows, limit, serving)

    async def next_due(self, now: int, workflows: Sequence[str], serving: Serving = EVERYTHING) -> int | None:
        """Return when time alone makes the next run claimable."""
        return self._reads.next_due(now, workflows, serving)

    async def due_among(self, now: int, run_ids: Sequence[str]) -> list[DueRun]:
        """Return those of these runs that nobody holds and that are due."""
        return self._reads.due_among(now, run_ids)

    async def children(self, run_id: str, most: int, *, live: bool = False) -> list[tuple[str, str]]:
        """Return up to `most` children of a run as (id, status), the oldest first. Raises UnknownRun."""
        return self._reads.children(run_id, most, live=live)

    async def queues(self, now: int) -> list[QueueRow]:
        """Return every queue in which a run waits or is held, by name."""
        return self._reads.queues(now)

    async def still(self, before: int) -> list[StillRun]:
        """Return up to 100 runs that are held and to which nothing was written since before a moment."""
        return self._reads.still(before)

    async def schedules(self) -> list[ScheduleRow]:
        """Return every schedule, by name."""
        return self._reads.schedules()

    def changed(self) -> bool:
        """Say whether anybody may have written since this was asked last."""
        with named_errors(self.place):
            version = cast("int", self._reader.pragma("data_version"))
            if version == self._version:
                return False
            self._version = version
            ((entry, message),) = self._reader.execute(SQL["latest"]).fetchall()  # a lease that is renewed is no news
        before, self._latest = self._latest, (entry, message)
        return self._latest != before

    async def held_by(self, owner: str) -> list[DueRun]:
        """Return the runs that an owner holds."""
        return self._reads.held_by(owner)

    async def holders(self) -> list[WorkerRow]:
        """Return the workers that hold runs, alive or not."""
        return self._reads.holders()

    async def workers(self) -> list[WorkerRow]:
        """Return every worker that was ever enlisted."""
        return self._reads.workers()

    async def effects(self, run_id: str | None = None) -> list[OpenEffect]:
        """Return the effects that are not settled, of one run or of all."""
        return self._reads.effects(run_id)

    async def approvals(self, prefix: str = "", verdict: str | None = None) -> list[ApprovalRow]:
        """Return approvals whose id begins with `prefix`, oldest first."""
        return self._reads.approvals(prefix, verdict)

    async def switches(self) -> list[Switch]:
        """Return what is stopped now, and by what: switches by scope, then the breakers that hold calls."""
        return self._reads.switches()

    async def waiting(self) -> dict[str, int]:
        """Return how many runs that nobody holds wait for each scope."""
        return self._reads.waiting()

    async def pools(self, day: int) -> list[PoolRow]:
        """Return every ceiling of a shared pool, and what is spent and reserved of it; days are counted from 1970."""
        return self._reads.pools(day)

    async def overspent(self) -> dict[str, dict[str, Decimal]]:
        """Return by run id what runs have spent above their reservations, per unit; the latest run first."""
        return self._reads.overspent()

    async def pool_rows(self) -> PoolRows:
        """Return the rows of the shared pools."""
        return self._reads.pool_rows()

    async def written(self, after: int) -> list[tuple[int, str, int, bytes]]:
        """Return up to 1000 entries of all runs behind a row, as (row, run id, number, bytes), as they were written."""
        return self._reads.written(after)

    async def once(self, tenant: str, tool: str, value: str) -> OnceRow | None:
        """Return who holds a business identity."""
        return self._reads.once(tenant, tool, value)

    async def events(self, run_id: str, after: int) -> list[tuple[int, int, bytes]]:
        """Return up to 500 diagnostic events after event number `after`, as (number, moment, bytes)."""
        return self._reads.events(run_id, after)

    async def undelivered(self) -> dict[str, int]:
        """Return how many messages wait in the inbox of each run that has any."""
        return self._reads.undelivered()

    async def standing(self) -> Standing:
        """Return where every chain ends, what was pruned, and the number of the last seal."""
        return self._reads.standing()

    async def prunable(self, before: int, workflow: str | None, limit: int) -> list[Prunable]:
        """Return runs that ended before a moment (milliseconds since 1970), oldest first, with what keeps them."""
        return self._reads.prunable(before, workflow, limit)

    async def copy(self, run_id: str) -> RunCopy:
        """Return a whole run, with the bytes as stored. Raises UnknownRun, Damaged."""
        return self._reads.copy(run_id)

    async def checks(self, now: int) -> list[Check]:
        """Return what durability, privacy and order rest on, as it is. `now` is in milliseconds since 1970."""
        with named_errors(self.place):
            return health.checks(self._writer, self.place, now)

    async def pages(self) -> Check:
        """Read the whole file and say whether it is sound."""
        return health.pages(self._writer)
