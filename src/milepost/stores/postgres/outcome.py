"""The connection that writes: one batch after the other, each once, and what became of one that was cut off."""

from __future__ import annotations

import secrets
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, cast

import psycopg
from psycopg.pq import ExecStatus

from milepost.errors import NotPermitted, StoreBusy, StoreFailed, StoreUnreachable
from milepost.stores.api import Append
from milepost.stores.postgres.batching import IN_A_TRIP, TripStatements, WireStatements
from milepost.stores.postgres.connection import GATE, SESSION, SQL, connect, named, named_errors, settle
from milepost.stores.postgres.locking import Begun, begin, begin_on, charged
from milepost.stores.postgres.server_clock import ServerClock, since_boot
from milepost.stores.postgres.statements import PostgresStatements
from milepost.stores.postgres.wire import Wire
from milepost.stores.postgres.writing import NeedsAll, PostgresBatch, holds_all, touched
from milepost.stores.statements import Recount

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from milepost.stores.api import Operation
    from milepost.stores.encryption import Cipher
    from milepost.stores.postgres.connection import Address, Connection

RETRIES = 3
FRESH_S = 1.0
# An append with any of these looks at more than its own head and what is stopped, or is answered by the database.
ASK_FIRST = attrgetter(
    "work",
    "holds",
    "lifts",
    "waits",
    "once",
    "once_settled",
    "reserve",
    "spent",
    "overspent",
    "probe",
    "posts",
)
LOCKED = "55P03"
IN_THE_WAY = {"40001", "40P01", "55P03", "23505"}  # others were: with the gate held alone there are none


Written = tuple[PostgresBatch, list[Any]]


class CutOff(Exception):
    """The connection broke: `written` is what a COMMIT that was sent would have kept, None where none was.

    `xid` is the number of the transaction, empty where not even that has come back, and `batch` that of the batch. Of
    one that was sent as a whole, `process` is the server's process that had it: its number, and when it began.
    """

    def __init__(self) -> None:
        super().__init__()
        self.xid = ""
        self.batch = 0
        self.written: Written | None = None
        self.process: tuple[int, str] | None = None


@dataclass(frozen=True, slots=True)
class Ahead:
    """What the last batch brought for the next: a row, and that nothing was stopped. It is not kept for long.

    Rows of one run must rise: this one was taken after the run was claimed, since each batch brings a new one.
    """

    row: int
    at: float

    @classmethod
    def after(cls, row: int, stops: list[Any] | None) -> Ahead | None:
        """Return what a batch brought, None where anything is stopped."""
        return cls(row, time.monotonic()) if stops == [] else None

    def serves(self, operations: Sequence[Operation]) -> bool:
        """Say whether these are appends about which nothing else has to be asked."""
        fresh = time.monotonic() - self.at < FRESH_S
        return fresh and {*map(type, operations)} == {Append} and not any(map(any, map(ASK_FIRST, operations)))


@dataclass(slots=True)
class Trip:
    """Plain appends that were sent with their locks and their COMMIT, and what they are if it is kept.

    `error` is what kept them from being sent, and `waits` says that the network did not take all of it.
    """

    ahead: Ahead
    asked_at: float
    cut: CutOff
    written: Written | None = None
    guard: tuple[str, int] = ("", 0)
    waits: bool = False
    error: Exception | None = None


class Line:
    """Writes batches, on one thread."""

    def __init__(
        self, where: Address, connection: Connection, store_id: str, cipher: Cipher | None, patience_s: float
    ) -> None:
        self._where = where
        self._connection = connection
        self._wire = _wire_of(connection)
        self._ahead: Ahead | None = None
        self._id = store_id
        self._cipher = cipher
        self._patience_s = patience_s
        self.clock = ServerClock()
        asked_at = since_boot()
        self.clock.heard(self._asked("now"), asked_at)
        self._process = self._process_of_server()
        self._line = secrets.token_hex(8)
        self._commits = 0  # the number of a COMMIT that was sent, on the wire
        self._batch = 0  # its row is there from the first batch on
        self.stops: list[Any] | None = None  # what stood at the last batch, as rows; None where it changed that itself

    def close(self) -> None:
        """Close the connection."""
        if self._batch:
            with suppress(psycopg.Error):
                self._asked("close_line", self._line)
        self._connection.close()

    # ------------------------------------------------------------ batches

    def write(self, operations: Sequence[Operation], trip: Trip | None = None) -> list[Any]:
        """Write a batch; return its answers. Raises StoreBusy when nothing was written, StoreFailed when who knows.

        What a role may not do refuses itself alone: then each operation is written by itself. With its `trip` the batch
        is under way already; where that has arrived well, nothing is waited for.
        """
        try:
            batch, answers = self._written(operations, trip)
        except NotPermitted as refusal:
            if len(operations) == 1:
                return [refusal]
            return [answer for one in operations for answer in self.write([one])]
        for moved in batch.moved.values():
            moved.head.row, moved.head.seq, moved.head.hash = moved.row, moved.seq, moved.hash
        self.stops = batch.standing
        return answers

    def _written(self, operations: Sequence[Operation], trip: Trip | None) -> Written:
        shared, apart, tries = not holds_all(operations), False, 0
        until = time.monotonic() + self._patience_s
        trip = trip or self.depart(operations)
        while True:
            try:
                if trip is not None:
                    gone, trip = trip, None
                    with suppress(psycopg.Error, Recount):  # what it took for granted was not so: nothing was written
                        return self._returned(gone)
                self._ahead = None
                return self._once(operations, shared=shared, apart=apart)
            except Recount:
                apart = True
            except NeedsAll:
                shared = False
            except CutOff as cut:
                if cut.written is None:
                    self._reconnect(until, cut)
                elif self._was_committed(cut):
                    return cut.written
            except psycopg.Error as error:
                if error.sqlstate == LOCKED:
                    self._end_frozen()
                else:
                    shared = False
                tries += 1
                if error.sqlstate not in IN_THE_WAY or tries > RETRIES:
                    raise named(self._where.place, error) from error

    def _open_line(self) -> None:
        if not self._batch:  # alone, so that it can be locked by whoever asks for the first batch
            self._asked("open_line", self._line)

    def _once(self, operations: Sequence[Operation], *, shared: bool, apart: bool) -> Written:
        wire = self._wire
        if wire is None or any(type(one) is Append and one.work is not None for one in operations):
            return self._by_the_driver(operations, shared=shared, apart=apart)
        cut = CutOff()
        with self._undone_unless_kept(wire, cut):
            self._open_line()
            numbers, ids = touched(operations)
            asked_at = since_boot()
            wire.open()
            begun, sql = begin_on(wire, numbers, ids, operations, shared=shared)
            self.clock.heard(begun.now, asked_at)
            cut.xid = begun.xid
            batch = PostgresBatch(sql, None, self._id, self._cipher, shared=shared, begun=begun)
            written = (batch, _perform(batch, operations, apart=apart))
            self._commit(wire, sql, cut, written)
        self._ahead = Ahead.after(begun.ahead, batch.standing)
        return written

    # ------------------------------------------------------------ one trip

    def depart(self, operations: Sequence[Operation]) -> Trip | None:
        """Send plain appends with their locks and their COMMIT, without waiting; None where more has to be asked."""
        wire, ahead = self._wire, self._ahead
        if wire is None or ahead is None or not ahead.serves(operations) or holds_all(operations):
            return None
        self._ahead = None
        trip = Trip(ahead, since_boot(), CutOff())
        try:
            self._send(wire, cast("Sequence[Append]", operations), trip)
        except (psycopg.Error, Recount) as error:
            trip.error = error
        except BaseException:
            self._leave(wire)
            raise
        return trip

    def _send(self, wire: Wire, appends: Sequence[Append], trip: Trip) -> None:
        epochs = {append.head.run: append.head.epoch for append in appends}
        begun = Begun("", trip.ahead.row, 0, 0, epochs, {"stops": []})
        sql = TripStatements(wire, begun.known)
        wire.open()
        wire.send("begin")
        wire.send("gate_together", (GATE,))
        wire.start()  # it begins while the rest is put together
        trip.cut.process = self._process
        batch = PostgresBatch(sql, None, self._id, self._cipher, shared=True, begun=begun)
        batch.together(appends)
        trip.written = (batch, [None] * len(appends))
        self._batch += 1
        trip.guard = sql.go(epochs, self._line, self._batch)
        self._send_commit(wire, trip.cut, trip.written)
        trip.waits = not wire.end()

    @property
    def socket(self) -> int:
        """What can be read when something of a trip has come back."""
        return cast("Wire", self._wire).socket

    def arrived(self, trip: Trip) -> bool:
        """Take what has come back of a trip; say whether that is all there is, or that it broke."""
        if trip.error is None:
            try:
                return cast("Wire", self._wire).arrive()
            except psycopg.Error as error:
                trip.error = error
        return True

    def well(self, trip: Trip) -> bool:
        """Say whether a trip that arrived went well: then `write` waits for nothing."""
        return trip.error is None and cast("Wire", self._wire).well

    def _returned(self, trip: Trip) -> Written:
        """Return what a trip wrote, once it is back. Raises psycopg.Error, Recount where its appends did not fit."""
        wire = cast("Wire", self._wire)
        with self._undone_unless_kept(wire, trip.cut):
            if trip.error is not None:
                raise trip.error
            self._end_commit(wire)
            ((row, now, _),) = wire.rows(*trip.guard)
        self.clock.heard(now, trip.asked_at)
        self._ahead = Ahead.after(row, [])
        return cast("Written", trip.written)

    def _commit(self, wire: Wire, sql: WireStatements, cut: CutOff, written: Written) -> None:
        self._batch += 1
        sql.do("note_batch", self._line, self._batch)
        sql.flush()
        self._send_commit(wire, cut, written)
        self._end_commit(wire)

    def _send_commit(self, wire: Wire, cut: CutOff, written: Written) -> None:
        self._commits = wire.send("COMMIT")
        cut.batch, cut.written = self._batch, written

    def _end_commit(self, wire: Wire) -> None:
        wire.close()
        if (said := wire.said(self._commits)) != b"COMMIT":
            raise StoreFailed(f"the server answered COMMIT with {said.decode()}")

    @contextmanager
    def _undone_unless_kept(self, wire: Wire, cut: CutOff) -> Iterator[None]:
        """Roll back where anything is raised. Raises `cut` where the connection broke."""
        try:
            yield
        except psycopg.Error as error:
            self._leave(wire)
            if self._connection.closed:
                raise cut from error
            raise
        except BaseException:
            self._leave(wire)
            raise

    def _leave(self, wire: Wire) -> None:
        try:
            wire.abandon()
        except psycopg.Error:
            self._connection.close()
        else:
            self._roll_back()

    def _by_the_driver(self, operations: Sequence[Operation], *, shared: bool, apart: bool) -> Written:
        connection, cut = self._connection, CutOff()
        try:
            self._open_line()
            numbers, ids = touched(operations)
            asked_at = since_boot()
            begun = begin(connection, numbers, ids, charged(operations), shared=shared, durable=True)
            self.clock.heard(begun.now, asked_at)
            cut.xid = begun.xid
            with connection.pipeline() as pipeline:
                sql = PostgresStatements(connection, pipeline, begun.known)
                tools = (connection, pipeline)
                batch = PostgresBatch(sql, tools, self._id, self._cipher, shared=shared, begun=begun)
                written = (batch, _perform(batch, operations, apart=apart))
                self._batch += 1
                sql.do("note_batch", self._line, self._batch)
                cut.batch, cut.written = self._batch, written
                done = connection.execute("COMMIT", prepare=False)
        except psycopg.Error as error:
            if not connection.closed:
                self._roll_back()  # which finds out that it is closed, where the server's last word came before its end
            if connection.closed:
                raise cut from error
            raise
        except BaseException:
            self._roll_back()
            raise
        if done.statusmessage != "COMMIT":
            raise StoreFailed(f"the server answered COMMIT with {done.statusmessage}")
        return written

    def _end_frozen(self) -> None:
        """End what others hold locks by and do nothing with: their processes stand still, or are cut off."""
        with suppress(psycopg.Error):  # the next try shows what it was
            self._asked("end_frozen")

    def _roll_back(self) -> None:
        # Not by the driver, which makes the server forget at each rollback what was prepared.
        if self._connection.closed or self._connection.pgconn.exec_(b"ROLLBACK").status != ExecStatus.COMMAND_OK:
            self._connection.close()  # the server rolls back what its client has left

    # ------------------------------------------------------------ apart from batches

    def alone(self, work: Callable[[PostgresStatements], None]) -> None:
        """Do something in a transaction that holds the gate alone. Raises StoreError."""
        with named_errors(self._where.place):
            begin(self._connection, (), (), shared=False, durable=True)
            try:
                work(PostgresStatements(self._connection))
            except BaseException:
                self._roll_back()
                raise
            self._connection.execute("COMMIT")

    def plainly(self, name: str, *args: Any) -> None:
        """Run one statement that is its own transaction, and may be run twice. Raises StoreError."""
        try:
            with named_errors(self._where.place):
                PostgresStatements(self._connection).do(name, *args)
        except StoreUnreachable:  # the server was started again since the last batch
            self._reconnect(time.monotonic() + self._patience_s, CutOff())
            with named_errors(self._where.place):
                PostgresStatements(self._connection).do(name, *args)

    # ------------------------------------------------------------ a connection that broke

    def _reconnect(self, until: float, cut: CutOff) -> None:
        """Connect anew, as soon as that can be done, and end what is left of a transaction. Raises StoreBusy."""
        self._connection.close()
        wait = 0.05
        while True:
            try:
                self._connection = connect(self._where)
                settle(self._connection, self._where)
                self._wire = _wire_of(self._connection)
                self._process = self._process_of_server()
                if cut.xid:
                    self._asked("end_of", cut.xid)
                if cut.process is not None:
                    self._end_process(cut.process, until)
            except (StoreUnreachable, psycopg.OperationalError) as error:
                self._connection.close()  # one that came, and is not ready, is no connection to go on with
                if time.monotonic() + wait > until:
                    raise StoreBusy(self._where.place) from error
            else:
                return
            time.sleep(wait)
            wait = min(1.0, wait * 2)

    def _end_process(self, process: tuple[int, str], until: float) -> None:
        """End a process of the server, which may still read what it was sent, and wait until it is gone."""
        self._asked("end_process", *process)
        while self._asked("process_is_there", *process):
            if time.monotonic() > until:
                raise StoreUnreachable(self._where.place, "away", "a process of the server does not end")
            time.sleep(0.02)

    def _was_committed(self, cut: CutOff) -> bool:
        """Say whether a batch was kept. Raises StoreFailed where that cannot be found out.

        A server that took over from another one, and has not got the batch, says no: with it, it was never written.
        """
        until = time.monotonic() + self._patience_s
        try:
            while True:
                self._reconnect(until, cut)
                try:
                    return bool(self._asked("latest_batch", self._line) == cut.batch)
                except psycopg.OperationalError:
                    if time.monotonic() > until:
                        raise
        except (StoreBusy, psycopg.Error) as error:
            raise StoreFailed(f"the connection broke inside COMMIT, and the server is away: {error}") from error

    def _process_of_server(self) -> tuple[int, str]:
        cursor: psycopg.RawCursor[tuple[Any, ...]] = psycopg.RawCursor(self._connection)
        return cursor.execute(SQL["server_process"], prepare=False).fetchone() or (0, "")

    def _asked(self, name: str, *args: Any) -> Any:
        cursor: psycopg.RawCursor[tuple[Any, ...]] = psycopg.RawCursor(self._connection)
        cursor.execute(SQL[name], args, prepare=False)
        row = cursor.fetchone() if cursor.description is not None else None
        return row[0] if row else None


def _wire_of(connection: Connection) -> Wire | None:
    """Return the pipeline of a connection that nobody else will ever have, None where a pooler may hand it on."""
    if connection.prepare_threshold is None:
        return None
    connection.execute(SESSION.encode())
    connection.prepare_threshold = None
    return Wire(connection, IN_A_TRIP)


def _perform(batch: PostgresBatch, operations: Sequence[Operation], *, apart: bool) -> list[Any]:
    """Perform operations in their order; with `apart` one by one. Raises Recount where all appends do not add up."""
    if apart:
        return [batch.alone(operation) for operation in operations]
    if {*map(type, operations)} == {Append}:
        batch.together(cast("Sequence[Append]", operations))
        return [None] * len(operations)
    answers: list[Any] = []
    for plain, some in groupby(operations, lambda operation: type(operation) is Append):
        group = list(some)
        if plain and len(group) > 1:
            answers.extend(batch.group(cast("list[Append]", group)))
        else:
            answers.extend(batch.alone(operation) for operation in group)
    return answers
