"""Named statements through libpq's pipeline: prepared once a connection, sent in binary, answered in their order.

What nobody waits for an answer to is only put into the buffer: it leaves with the next question. After a statement that
failed the server skips all others up to the next sync; the error shows at the next answer that is taken. Only where no
pooler stands between, for a prepared statement is one of the server's connection.

Whoever must not wait sends what is prepared already, says `end`, and takes what has come (`arrive`) whenever the socket
can be read. `close` does the same, and waits.
"""

from __future__ import annotations

import select
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg import errors
from psycopg.pq import ConnStatus, ExecStatus, Format, PipelineStatus

from milepost.stores.postgres.connection import SQL
from milepost.stores.postgres.encoding import decoder, encoder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from psycopg.pq.abc import PGconn, PGresult

    from milepost.stores.postgres.connection import Connection

BROKE = "the connection broke"
READABLE = select.POLLIN | select.POLLERR | select.POLLHUP


@dataclass(frozen=True, slots=True)
class Prepared:
    """A statement that the server knows: how its parameters are sent and its columns are read."""

    name: bytes
    encodes: list[Callable[[Any], bytes]]
    formats: list[Format]
    decodes: list[Callable[[bytes], Any]]


class Wire:
    """One connection's pipeline."""

    def __init__(self, connection: Connection, names: Iterable[str] = ()) -> None:
        self._pg: PGconn = connection.pgconn
        self._encoding = connection.info.encoding
        self._prepared: dict[str, Prepared] = {}
        self._sent = 0  # statements and their preparations, since the pipeline began
        self._taken = 0
        self._kept: dict[int, PGresult] = {}
        self._ended = self._has_arrived = self._inside = False
        self._failed: Exception | None = None
        self.open()
        # COMMIT too, so that the batch whose COMMIT goes out says no more than that.
        self._prepare(*dict.fromkeys(["COMMIT", *names]))
        self.close()

    # ------------------------------------------------------------ a batch

    def open(self) -> None:
        """Begin a pipeline."""
        self._pg.enter_pipeline_mode()
        self._sent = self._taken = 0
        self._ended = self._has_arrived = self._inside = False
        self._failed = None
        self._kept.clear()

    def start(self) -> None:
        """Let the server begin with what was sent so far, without waiting for anything."""
        self._pg.flush()

    def end(self) -> bool:
        """Send all, and that it is all; say whether it left. Where the network takes no more now, `close` waits."""
        self._pg.pipeline_sync()
        self._ended = True
        return not self._pg.flush()

    @property
    def well(self) -> bool:
        """Whether all has arrived, and nothing of it failed."""
        return self._has_arrived and self._failed is None

    @property
    def socket(self) -> int:
        """What can be read when an answer has come."""
        return self._pg.socket

    def left(self) -> bool:
        """Send on what the network did not take before; say whether all of it left. Raises psycopg.Error."""
        return not self._pg.flush()

    def come(self) -> Iterator[PGresult]:
        """Take what has come, one answer after the other, without counting it. Raises psycopg.Error where it broke."""
        pg, ends = self._pg, 0
        pg.consume_input()
        while ends < 2 and not pg.is_busy():  # noqa: PLR2004  one stands behind each answer, and then there is no other
            result = pg.get_result()
            if result is None:
                ends += 1
            else:
                ends = 0
                yield result
        if pg.status == ConnStatus.BAD:
            raise errors.OperationalError(BROKE)

    def arrive(self) -> bool:
        """Take what has come, behind `end`; say whether that is all. Raises psycopg.Error where it broke."""
        if not self._has_arrived:
            self._pg.consume_input()
            self._take_what_came()
        return self._has_arrived

    def close(self) -> None:
        """End the pipeline, after all that was sent was answered. Raises what the first failed statement raised."""
        if not self._ended:
            self.end()
        while not self._take_what_came():
            self._wait()
        self._pg.exit_pipeline_mode()
        if self._failed is not None:
            raise self._failed

    def _take_what_came(self) -> bool:
        pg = self._pg
        while not self._has_arrived and not pg.is_busy():
            result = pg.get_result()
            if result is None:  # it stands behind each answer, and for ever behind the last of a connection that broke
                if not self._inside and pg.status == ConnStatus.BAD:
                    raise errors.OperationalError(BROKE)
                self._inside = False
            elif result.status == ExecStatus.PIPELINE_SYNC:
                self._has_arrived = True
            else:
                if self._inside:
                    raise errors.InternalError("one statement had two results")
                self._taken += 1
                self._inside = True
                if self._failed is None and result.status == ExecStatus.FATAL_ERROR:
                    self._failed = errors.error_from_result(result, self._encoding)
                self._kept[self._taken] = result
        return self._has_arrived

    def abandon(self) -> None:
        """End the pipeline, whatever became of what was sent. Raises psycopg.Error where the connection broke."""
        if self._pg.pipeline_status == PipelineStatus.OFF:
            return
        try:
            self.close()
        except errors.DatabaseError:
            if self._pg.pipeline_status != PipelineStatus.OFF:
                raise

    # ------------------------------------------------------------ statements

    def send(self, name: str, args: Sequence[Any] = ()) -> int:
        """Send a statement; return the number by which `rows` and `count` know its answer."""
        known = self._prepared.get(name) or self._prepare(name)
        values = [None if arg is None else encode(arg) for encode, arg in zip(known.encodes, args, strict=True)]
        self._pg.send_query_prepared(known.name, values, known.formats, result_format=Format.BINARY)
        self._sent += 1
        return self._sent

    def rows(self, name: str, number: int) -> list[tuple[Any, ...]]:
        """Return the rows of an answer."""
        return self.rows_of(name, self._answer(number))

    def rows_of(self, name: str, result: PGresult) -> list[tuple[Any, ...]]:
        """Return the rows of an answer to a statement."""
        decodes = self._prepared[name].decodes
        value = result.get_value
        return [
            tuple([None if (found := value(row, at)) is None else decode(found) for at, decode in enumerate(decodes)])
            for row in range(result.ntuples)
        ]

    def count(self, number: int) -> int:
        """Return how many rows a statement changed."""
        return self._answer(number).command_tuples or 0

    def said(self, number: int) -> bytes:
        """Return what the server calls what it did."""
        return self._answer(number).command_status or b""

    def _prepare(self, *names: str) -> Prepared:
        """Let the server prepare statements; return what it said of the last."""
        for name in names:
            self._pg.send_prepare(name.encode(), SQL[name])
            self._pg.send_describe_prepared(name.encode())
            self._sent += 2
        asked = self._sent - 2 * len(names)
        for at, name in enumerate(names, 1):
            about = self._answer(asked + 2 * at)
            self._kept.pop(asked + 2 * at - 1, None)
            encodes = [encoder(about.param_type(at)) for at in range(about.nparams)]
            decodes = [decoder(about.ftype(at)) for at in range(about.nfields)]
            self._prepared[name] = Prepared(name.encode(), encodes, [Format.BINARY] * len(encodes), decodes)
        return self._prepared[names[-1]]

    # ------------------------------------------------------------ answers

    def _answer(self, number: int) -> PGresult:
        if number not in self._kept:
            self._pg.send_flush_request()
            while self._taken < number:
                result = self._next()
                self._taken += 1
                self._end_of_result()
                if result.status in {ExecStatus.FATAL_ERROR, ExecStatus.PIPELINE_ABORTED}:
                    raise errors.error_from_result(result, self._encoding)
                self._kept[self._taken] = result
        return self._kept.pop(number)

    def _end_of_result(self) -> None:
        if self._next_or_none() is not None:
            raise errors.InternalError("one statement had two results")

    def _next(self) -> PGresult:
        while True:  # a None stands behind each answer, and was taken
            found = self._next_or_none()
            if found is not None:
                return found

    def _next_or_none(self) -> PGresult | None:
        pg = self._pg
        pg.flush()
        while pg.is_busy():
            self._wait()
        return pg.get_result()

    def _wait(self) -> None:
        """Wait until something has come, and send meanwhile what is left to be sent."""
        pg = self._pg
        waiting = pg.flush()
        poll = select.poll()
        poll.register(pg.socket, READABLE | (select.POLLOUT if waiting else 0))
        for _, ready in poll.poll():
            if ready & ~select.POLLOUT:
                pg.consume_input()
