"""The store of a fleet: one PostgreSQL database, any number of processes.

One connection writes, a batch at a time; two read, and one asks what is asked of every run (`questions`); one renews
the lease; one hears the hints of others (`hints`). So a process holds at most six connections, whatever it drives.

The event loop never waits for the network, but for `switches_now` where nothing was read lately, and for a commit that
must be made before its caller goes on. What is sent in one trip is put together and sent by the loop, which goes on
until the answer is there: handed to a thread, it would wait for its turn of the interpreter while the loop is busy. All
else of writing is done on a thread of its own.

A connection that breaks before COMMIT was sent has written nothing, and the batch is written again. One that breaks
inside COMMIT leaves it open whether it was: the server is asked what became of the transaction, by its number. Only
where nobody can say it any more the commit is unknown, and this process stops.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg

from milepost.core.queues import EVERYTHING, Serving
from milepost.errors import StoreBusy, StoreError, StoreFailed, StoreUnreachable
from milepost.stores import hiding, stopping
from milepost.stores.api import (
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
from milepost.stores.places import local_of
from milepost.stores.postgres import health
from milepost.stores.postgres.connection import BY_INDEX, address, connect, named_errors, settle
from milepost.stores.postgres.crowd import Crowd
from milepost.stores.postgres.flight import Flight, answered
from milepost.stores.postgres.hints import Held, Listening
from milepost.stores.postgres.outcome import Line
from milepost.stores.postgres.questions import NotAnswered, Questions
from milepost.stores.postgres.reads import AT_ONCE, PostgresReads
from milepost.stores.postgres.schema import prepare
from milepost.stores.postgres.server_clock import since_boot
from milepost.stores.postgres.statements import NamedStatements, PostgresStatements
from milepost.stores.reading import Reads

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future
    from decimal import Decimal

    from milepost.stores.api import Operation
    from milepost.stores.encryption import Cipher
    from milepost.stores.fleet import DueRun, QueueRow, ScheduleRow, StillRun, WorkerRow
    from milepost.stores.keeping import Prunable, RunCopy, Standing
    from milepost.stores.pools import PoolRow, PoolRows
    from milepost.stores.postgres.connection import Connection
    from milepost.stores.postgres.flight import Landed
    from milepost.stores.postgres.outcome import Trip

T = TypeVar("T")
READERS = 2
PATIENCE_S = 30.0  # how long a server that restarts is waited for
COPY_S = 0.1  # a copy of the switches is as good as a look where it is no older
ASKS_AGAIN_S = 1.0  # between two tries to have a connection for small questions
STALE_S = 10.0  # while the server is away, a copy serves free reads for so long


class PostgresStore:
    """A store in one PostgreSQL database."""

    capabilities = Capabilities(transactional=True, lock_files=False)

    def __init__(self, url: str, *, create: bool = False, cipher: Cipher | None = None) -> None:
        """Open the database, or make the tables in it. With a cipher, what is written from here on is encrypted.

        Raises StoreMissing, Unmigrated, NotAStore, NewerSchema, StoreUnreachable, StoreBusy.
        """
        self._where = address(url)
        self.place = self._where.place
        self.local = local_of(url)
        self._cipher = cipher
        first = connect(self._where)
        try:
            settle(first, self._where)
            self.id = prepare(first, self.place, create=create)
            self._encrypted = hiding.is_on(NamedStatements(first, self.place), cipher, self.place)
        except BaseException:
            first.close()
            raise
        self._line = Line(self._where, first, self.id, cipher, PATIENCE_S)
        self._writing = ThreadPoolExecutor(1, "milepost-commit")
        self._reading = ThreadPoolExecutor(READERS, "milepost-read")
        self._mine = threading.local()
        self._opened: list[Connection] = []
        self._renewer: Connection | None = None
        self._stops_at = float("-inf")
        self._stops: list[Switch] = []
        self._held = Held()
        self._crowd = Crowd()
        self._answers = PostgresReads(PostgresStatements(first), self.id, cipher)  # of what was read, and reads nothing
        self._questions: Questions | None = None
        self._begin_asking: Future[None] | None = None
        self._asks_again_at = 0.0
        self._flight: Flight | None = None  # what was sent from the loop
        self._job: Future[Any] | None = None  # what the thread was given last
        self._mark = secrets.token_hex(8)
        self._listening = Listening(self._where, self._mark)
        self._to_tell = False
        self._failed = ""
        self._closed = False
        self.commit_seconds = 0.0

    def wall(self) -> int:
        """Return the time that all processes of this store go by: the server's, in milliseconds since 1970."""
        return self._line.clock.now()

    # ------------------------------------------------------------ writing

    async def commit(self, operations: Sequence[Operation], *, threaded: bool = False) -> list[Any]:  # noqa: ARG002
        """Write a batch; see `stores.api`. Answers stand in the order of the operations, refusals as errors.

        Raises StoreBusy when nothing was written, StoreFailed when it is not known.
        """
        answers = await answered(partial(self.depart, operations), self._hand_over)
        return await asyncio.wrap_future(self._submit(self._commit, operations)) if answers is None else answers

    def commit_now(self, operations: Sequence[Operation], *, must: bool = False) -> list[Any] | None:
        """Write a batch before this returns, where it `must` be; else None, since the loop is not to wait."""
        return self._submit(self._commit, operations).result() if must else None

    def depart(self, operations: Sequence[Operation], landed: Landed) -> bool:
        """Send a batch, where that takes no waiting; say whether it is under way. See `stores.api`."""
        trip = self._depart(operations)
        if trip is None:
            return False
        flight = self._flight = Flight(operations, trip, time.perf_counter())

        def down() -> None:
            if flight.job is None and not flight.is_back:
                self._hand_over()
            self._flight = None if self._flight is flight else self._flight
            flight.tell(partial(self._commit, operations, flight), landed)

        flight.landed = down
        flight.watch(self._line) if flight.flies else self._hand_over()
        return True

    def _depart(self, operations: Sequence[Operation]) -> Trip | None:
        """Send a batch from here, where that takes no waiting; None where the thread has to write it."""
        if self._failed or self._flight is not None or self._cipher is not None or self._encrypted:
            return None
        return self._line.depart(operations) if self._job is None or self._job.done() else None

    def _submit(self, work: Callable[..., T], *args: Any) -> Future[T]:
        """Let the thread do something that concerns the line, behind all that was begun before."""
        self._hand_over()
        job = self._writing.submit(work, *args)
        self._job = job
        return job

    def _hand_over(self) -> None:
        """Let the thread wait for what was sent from the loop."""
        flight, self._flight = self._flight, None
        if flight is not None:
            flight.look_no_more()
            flight.job = self._job = self._writing.submit(self._commit, flight.operations, flight)
            flight.land()

    def _commit(self, operations: Sequence[Operation], flight: Flight | None = None) -> list[Any]:
        if self._failed:
            raise StoreFailed(self._failed)
        started = time.perf_counter() if flight is None else flight.began
        try:
            if self._cipher is not None or self._encrypted:
                answers = hiding.commit(self._cipher, operations, self._turn_on, self._line.write)
            else:
                answers = self._line.write(operations, None if flight is None else flight.trip)
        except StoreFailed as error:
            self._failed = error.why
            raise
        self._crowd.learn(operations)
        if self._line.stops is not None:
            self._stops, self._stops_at = stopping.standing(self._line.stops, self._cipher), time.monotonic()
        if self._held.worth_telling(operations, answers) and not self._to_tell:
            self._to_tell = True
            self._reading.submit(self._tell)
        self.commit_seconds = self.commit_seconds * 0.9 + (time.perf_counter() - started) * 0.1
        return answers

    def _tell(self) -> None:
        self._to_tell = False  # what is committed from here on is told again
        with suppress(StoreError):
            self._ask(lambda _: NamedStatements(self._mine.reads[0], self.place).run("tell", self._mark), 0.0)

    def _turn_on(self, cipher: Cipher) -> None:
        if not self._encrypted:
            self._line.alone(lambda sql: hiding.turn_on(sql, cipher))
            self._encrypted = True

    def renew(self, worker: str, until: int) -> None:
        """Renew a worker's lease; called from a thread of its own, so it has a connection of its own."""
        if self._renewer is None or self._renewer.closed:
            self._renewer = self._connected()
        try:
            with named_errors(self.place):
                asked_at = since_boot()
                for (now,) in PostgresStatements(self._renewer).run("renewed", until, worker):
                    self._line.clock.heard(now, asked_at)
        except StoreError:
            self._renewer.close()
            raise

    def end_worker(self, worker: str, at: int) -> None:
        """Write that a worker left in good order."""
        self._submit(self._line.plainly, "end_worker", at, worker).result()

    def close(self) -> None:
        """Close every connection."""
        self._closed = True
        self._listening.close()
        self._hand_over()
        self._writing.shutdown()
        self._reading.shutdown()
        if self._questions is not None:
            self._questions.close()
        self._line.close()
        for connection in (self._renewer, *self._opened):
            if connection is not None:
                connection.close()

    # ------------------------------------------------------------ reading

    def _connected(self) -> Connection:
        connection = connect(self._where)
        settle(connection, self._where)
        return connection

    def _reads(self, *, again: bool = False) -> PostgresReads:
        """Return what reads on this thread, over its own connection; `again` over a new one."""
        found: tuple[Connection, PostgresReads] | None = getattr(self._mine, "reads", None)
        if found is None or again or found[0].closed:
            if found is not None:
                self._mine.reads = None  # also where no new one can be had now
                found[0].close()
                self._opened.remove(found[0])
            connection = self._connected()
            if connection.prepare_threshold is not None:  # no pooler hands this on
                connection.execute(BY_INDEX)
            self._opened.append(connection)
            found = (connection, PostgresReads(NamedStatements(connection, self.place), self.id, self._cipher))
            self._mine.reads = found
        return found[1]

    def _ask(self, question: Callable[[PostgresReads], T], patience_s: float = PATIENCE_S) -> T:
        """Answer a question; where the connection broke on a new one, as soon as there is one."""
        until, wait, again = time.monotonic() + patience_s, 0.05, False
        while True:
            try:
                return question(self._reads(again=again))
            except (StoreUnreachable, StoreBusy):
                if time.monotonic() + wait > until or self._closed:
                    raise
            again = True
            time.sleep(wait)
            wait = min(1.0, wait * 2)

    async def _read(self, question: Callable[[PostgresReads], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._reading, self._ask, question)

    async def _rows(self, name: str, *args: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a small question that the loop can ask by itself; none where it cannot, or found none."""
        asking = self._questions
        if asking is None or asking.broken:
            if self._begin_asking is None or (self._begin_asking.done() and time.monotonic() > self._asks_again_at):
                self._asks_again_at = time.monotonic() + ASKS_AGAIN_S
                self._begin_asking = self._reading.submit(self._connect_questions)
            return []
        if not asking.may_ask():
            return []
        try:
            return await asking.rows(name, *args)
        except NotAnswered:
            return []

    def _connect_questions(self) -> None:
        with suppress(StoreError, psycopg.Error):
            connection = self._connected()
            if connection.prepare_threshold is None or self._closed:  # prepared statements are the server connection's
                connection.close()
                self._asks_again_at = float("inf")
            else:
                self._questions = Questions(connection, AT_ONCE)

    def plain(self, run_id: str, place: str, stored: bytes) -> bytes:
        """Return what stored bytes say that stand at a place of a run. Raises KeyMissing, Damaged."""
        return reveal(self._cipher, run_id, place, stored)

    def chunk_name(self, run_id: str, digest: str) -> str:
        """Return the name that a chunk is stored under."""
        return digest if self._cipher is None else self._cipher.chunk_name(run_id, digest)

    def switches_now(self) -> list[Switch]:
        """Return what `switches` does, to a caller that cannot wait: as of a tenth of a second ago at the most.

        While the server is away that is what stood ten seconds ago at the most. Free reads alone go by it: what starts
        an effect looks at the switches in its own transaction.
        """
        age = time.monotonic() - self._stops_at
        if age > COPY_S:
            try:
                look = self._reading.submit(self._ask, Reads.switches, 0.0 if age < STALE_S else 2.0)
                self._stops, self._stops_at = look.result(), time.monotonic()
            except StoreUnreachable:
                if age > STALE_S:
                    raise
        return self._stops

    async def tail(self, run_id: str) -> Tail:
        """Return a run from its latest boundary to its head. Raises UnknownRun, Damaged."""
        rows = await self._rows("tail_at_once", run_id)
        found = self._answers.tail_in(run_id, rows)
        return await self._read(lambda reads: reads.tail(run_id)) if found is None else found

    async def chain(self, run_id: str) -> tuple[bytes, list[Stored], Head]:
        """Return the genesis hash, every entry and the head of a run. Raises UnknownRun, Damaged."""
        return await self._read(lambda reads: reads.chain(run_id))

    async def after(self, run_id: str, seq: int) -> list[Stored]:
        """Return the entries of a run whose number is above `seq`. Raises UnknownRun, Damaged."""
        return await self._read(lambda reads: reads.after(run_id, seq))

    async def chunk(self, run_id: str, digest: str) -> bytes:
        """Return a chunk's bytes as stored. Raises Damaged when it is missing."""
        found = self._answers.chunk_in(await self._rows("chunk_at_once", run_id, digest))
        return await self._read(lambda reads: reads.chunk(run_id, digest)) if found is None else found

    async def inbox(self, run_id: str) -> list[tuple[int, bytes]]:
        """Return the messages that were not taken, oldest first."""
        found = self._answers.inbox_in(run_id, await self._rows("inbox_at_once", run_id))
        return await self._read(lambda reads: reads.inbox(run_id)) if found is None else found

    async def with_mail(self, owner: str) -> list[str]:
        """Return the ids of the runs this owner holds for which messages wait."""
        return await self._read(lambda reads: reads.with_mail(owner))

    async def run(self, run_id: str) -> RunRow:
        """Return a run's row. Raises UnknownRun."""
        found = self._answers.run_in(await self._rows("run_row", run_id))
        return await self._read(lambda reads: reads.run(run_id)) if found is None else found

    async def resolve_id(self, prefix: str) -> str:
        """Return the one run id that begins with `prefix`. Raises UnknownRun when none or several do."""
        return await self._read(lambda reads: reads.resolve_id(prefix))

    async def runs(self, query: Query) -> list[RunRow]:
        """Return the runs that fit, newest first."""
        return await self._read(lambda reads: reads.runs(query))

    async def killed_since(self, at: int) -> list[str]:
        """Return the ids of runs that were killed since a moment, or settled after that: the latest first."""
        return await self._read(lambda reads: reads.killed_since(at))

    async def counts(self) -> dict[str, int]:
        """Return how many runs there are by status."""
        return await self._read(Reads.counts)

    async def due(self, now: int, workflows: Sequence[str], limit: int, serving: Serving = EVERYTHING) -> list[DueRun]:
        """Return runs that nobody holds and that may be claimed now, in the order of their turns."""
        apart = self._crowd.apart()
        return await self._read(lambda reads: reads.due_apart(now, workflows, limit, serving, apart))

    async def next_due(self, now: int, workflows: Sequence[str], serving: Serving = EVERYTHING) -> int | None:
        """Return when time alone makes the next run claimable."""
        return await self._read(lambda reads: reads.next_due(now, workflows, serving))

    async def due_among(self, now: int, run_ids: Sequence[str]) -> list[DueRun]:
        """Return those of these runs that nobody holds and that are due."""
        return await self._read(lambda reads: reads.due_among(now, run_ids))

    async def children(self, run_id: str, most: int, *, live: bool = False) -> list[tuple[str, str]]:
        """Return up to `most` children of a run as (id, status), the oldest first. Raises UnknownRun."""
        return await self._read(lambda reads: reads.children(run_id, most, live=live))

    async def queues(self, now: int) -> list[QueueRow]:
        """Return every queue in which a run waits or is held, by name."""
        return await self._read(lambda reads: reads.queues(now))

    async def still(self, before: int) -> list[StillRun]:
        """Return up to 100 runs that are held and to which nothing was written since before a moment."""
        return await self._read(lambda reads: reads.still(before))

    async def schedules(self) -> list[ScheduleRow]:
        """Return every schedule, by name."""
        return await self._read(lambda reads: reads.schedules())

    def changed(self) -> bool:
        """Say whether another process has made something due since this was asked last, where hints can be had."""
        return self._listening.heard()

    async def held_by(self, owner: str) -> list[DueRun]:
        """Return the runs that an owner holds."""
        return await self._read(lambda reads: reads.held_by(owner))

    async def holders(self) -> list[WorkerRow]:
        """Return the workers that hold runs, alive or not."""
        return await self._read(Reads.holders)

    async def workers(self) -> list[WorkerRow]:
        """Return every worker that was ever enlisted."""
        return await self._read(Reads.workers)

    async def effects(self, run_id: str | None = None) -> list[OpenEffect]:
        """Return the effects that are not settled, of one run or of all."""
        return await self._read(lambda reads: reads.effects(run_id))

    async def approvals(self, prefix: str = "", verdict: str | None = None) -> list[ApprovalRow]:
        """Return approvals whose id begins with `prefix`, oldest first."""
        return await self._read(lambda reads: reads.approvals(prefix, verdict))

    async def switches(self) -> list[Switch]:
        """Return what is stopped now, and by what: switches by scope, then the breakers that hold calls."""
        return await self._read(Reads.switches)

    async def waiting(self) -> dict[str, int]:
        """Return how many runs that nobody holds wait for each scope."""
        return await self._read(Reads.waiting)

    async def pools(self, day: int) -> list[PoolRow]:
        """Return every ceiling of a shared pool, and what is spent and reserved of it; days are counted from 1970."""
        return await self._read(lambda reads: reads.pools(day))

    async def overspent(self) -> dict[str, dict[str, Decimal]]:
        """Return by run id what runs have spent above their reservations, per unit; the latest run first."""
        return await self._read(Reads.overspent)

    async def pool_rows(self) -> PoolRows:
        """Return the rows of the shared pools."""
        return await self._read(Reads.pool_rows)

    async def written(self, after: int) -> list[tuple[int, str, int, bytes]]:
        """Return up to 1000 entries of all runs behind a row, as (row, run id, number, bytes), as they were written."""
        return await self._read(lambda reads: reads.written(after))

    async def once(self, tenant: str, tool: str, value: str) -> OnceRow | None:
        """Return who holds a business identity."""
        return await self._read(lambda reads: reads.once(tenant, tool, value))

    async def events(self, run_id: str, after: int) -> list[tuple[int, int, bytes]]:
        """Return up to 500 diagnostic events after event number `after`, as (number, moment, bytes)."""
        return await self._read(lambda reads: reads.events(run_id, after))

    async def undelivered(self) -> dict[str, int]:
        """Return how many messages wait in the inbox of each run that has any."""
        return await self._read(Reads.undelivered)

    async def standing(self) -> Standing:
        """Return where every chain ends, what was pruned, and the number of the last seal."""
        return await self._read(Reads.standing)

    async def prunable(self, before: int, workflow: str | None, limit: int) -> list[Prunable]:
        """Return runs that ended before a moment (milliseconds since 1970), oldest first, with what keeps them."""
        return await self._read(lambda reads: reads.prunable(before, workflow, limit))

    async def copy(self, run_id: str) -> RunCopy:
        """Return a whole run, with the bytes as stored. Raises UnknownRun, Damaged."""
        return await self._read(lambda reads: reads.copy(run_id))

    async def checks(self, now: int) -> list[Check]:
        """Return what durability, privacy and order rest on, as it is. `now` is in milliseconds since 1970."""
        return await self._on_reader(health.checks, now)

    async def pages(self) -> Check:
        """Read every table and say whether it can be read."""
        return await self._on_reader(health.pages)

    async def _on_reader(self, look: Callable[..., T], *args: Any) -> T:
        def looking() -> T:
            self._reads()
            with named_errors(self.place):
                return look(self._mine.reads[0], *args)

        return await asyncio.get_running_loop().run_in_executor(self._reading, looking)
