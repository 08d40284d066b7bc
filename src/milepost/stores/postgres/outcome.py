"""The connection that writes: one batch after the other, each once, and what became of one that was cut off."""

from __future__ import annotations

import secrets
import time
from contextlib import suppress
from itertools import groupby
from typing import TYPE_CHECKING, Any, cast

import psycopg

from milepost.errors import NotPermitted, StoreBusy, StoreFailed, StoreUnreachable
from milepost.stores.api import Append
from milepost.stores.postgres.connection import SQL, connect, named, named_errors, settle
from milepost.stores.postgres.locking import begin
from milepost.stores.postgres.server_clock import ServerClock, since_boot
from milepost.stores.postgres.statements import PostgresStatements
from milepost.stores.postgres.writing import NeedsAll, PostgresBatch, holds_all, touched
from milepost.stores.statements import Recount

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from milepost.stores.api import Operation
    from milepost.stores.encryption import Cipher
    from milepost.stores.postgres.connection import Address, Connection

RETRIES = 3
LOCKED = "55P03"
IN_THE_WAY = {"40001", "40P01", "55P03", "23505"}  # others were: with the gate held alone there are none


Written = tuple[PostgresBatch, list[Any]]


class CutOff(Exception):
    """The connection broke: `written` is what a COMMIT that was sent would have kept, None where none was.

    `xid` is the number of the transaction, empty where not even that has come back, and `batch` that of the batch.
    """

    def __init__(self) -> None:
        super().__init__()
        self.xid = ""
        self.batch = 0
        self.written: Written | None = None


class Line:
    """Writes batches, on one thread."""

    def __init__(
        self, where: Address, connection: Connection, store_id: str, cipher: Cipher | None, patience_s: float
    ) -> None:
        self._where = where
        self._connection = connection
        self._id = store_id
        self._cipher = cipher
        self._patience_s = patience_s
        self.clock = ServerClock()
        asked_at = since_boot()
        self.clock.heard(self._asked("now"), asked_at)
        self._line = secrets.token_hex(8)
        self._batch = 0  # its row is there from the first batch on
        self.stops: list[Any] | None = None  # what stood at the last batch, as rows; None where it changed that itself

    def close(self) -> None:
        """Close the connection."""
        if self._batch:
            with suppress(psycopg.Error):
                self._asked("close_line", self._line)
        self._connection.close()

    # ------------------------------------------------------------ batches

    def write(self, operations: Sequence[Operation]) -> list[Any]:
        """Write a batch; return its answers. Raises StoreBusy when nothing was written, StoreFailed when who knows.

        What a role may not do refuses itself alone: then each operation is written by itself.
        """
        try:
            batch, answers = self._written(operations)
        except NotPermitted as refusal:
            if len(operations) == 1:
                return [refusal]
            return [answer for one in operations for answer in self.write([one])]
        for moved in batch.moved.values():
            moved.head.row, moved.head.seq, moved.head.hash = moved.row, moved.seq, moved.hash
        self.stops = batch.sql.known.get("stops")
        return answers

    def _written(self, operations: Sequence[Operation]) -> Written:
        shared, apart, tries = not holds_all(operations), False, 0
        until = time.monotonic() + self._patience_s
        while True:
            try:
                return self._once(operations, shared=shared, apart=apart)
            except Recount:
                apart = True
            except NeedsAll:
                shared = False
            except CutOff as cut:
                if cut.written is None:
                    self._reconnect(until, cut.xid)
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

    def _once(self, operations: Sequence[Operation], *, shared: bool, apart: bool) -> Written:
        connection, cut = self._connection, CutOff()
        try:
            if not self._batch:  # alone, so that it can be locked by whoever asks for the first batch
                self._asked("open_line", self._line)
            numbers, ids = touched(operations)
            asked_at = since_boot()
            begun = begin(connection, numbers, ids, shared=shared, durable=True)
            self.clock.heard(begun.now, asked_at)
            cut.xid = begun.xid
            with connection.pipeline() as pipeline:
                sql = PostgresStatements(connection, pipeline, begun.known)
                batch = PostgresBatch(sql, connection, pipeline, self._id, self._cipher, shared=shared, begun=begun)
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
        try:
            self._connection.rollback()
        except psycopg.Error:
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
            self._reconnect(time.monotonic() + self._patience_s, "")
            with named_errors(self._where.place):
                PostgresStatements(self._connection).do(name, *args)

    # ------------------------------------------------------------ a connection that broke

    def _reconnect(self, until: float, xid: str) -> None:
        """Connect anew, as soon as that can be done, and end what is left of a transaction. Raises StoreBusy."""
        self._connection.close()
        wait = 0.05
        while True:
            try:
                self._connection = connect(self._where)
                settle(self._connection, self._where)
                if xid:
                    self._asked("end_of", xid)
            except (StoreUnreachable, psycopg.OperationalError) as error:
                if time.monotonic() + wait > until:
                    raise StoreBusy(self._where.place) from error
            else:
                return
            time.sleep(wait)
            wait = min(1.0, wait * 2)

    def _was_committed(self, cut: CutOff) -> bool:
        """Say whether a batch was kept. Raises StoreFailed where that cannot be found out.

        A server that took over from another one, and has not got the batch, says no: with it, it was never written.
        """
        until = time.monotonic() + self._patience_s
        try:
            while True:
                self._reconnect(until, cut.xid)
                try:
                    return bool(self._asked("latest_batch", self._line) == cut.batch)
                except psycopg.OperationalError:
                    if time.monotonic() > until:
                        raise
        except (StoreBusy, psycopg.Error) as error:
            raise StoreFailed(f"the connection broke inside COMMIT, and the server is away: {error}") from error

    def _asked(self, name: str, *args: Any) -> Any:
        cursor: psycopg.RawCursor[tuple[Any, ...]] = psycopg.RawCursor(self._connection)
        cursor.execute(SQL[name], args, prepare=False)
        row = cursor.fetchone() if cursor.description is not None else None
        return row[0] if row else None


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
