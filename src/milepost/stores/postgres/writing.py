"""What of a batch is PostgreSQL's own: who may write at the same time.

Every batch holds the gate, most of them together: `shared`. Such a batch has locked the heads of all its runs, in the
order of their numbers, before it reads anything; so nobody else claims, wakes or writes to these runs meanwhile. Behind
the heads it locks the pools that it charges: batches of different pools are written together. What
concerns runs that nobody can name beforehand, or that changes what all look at (a switch that is thrown, a kill of a
family, a ceiling, a wait for an identity), holds the gate alone: then it is decided as in a store of one writer. A
batch that finds out too late that it would have needed the gate alone raises NeedsAll and is done again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from milepost.stores.api import Append, Claim, Create, Deliver, Emit
from milepost.stores.fleet import Enlist
from milepost.stores.postgres.batching import WireStatements
from milepost.stores.postgres.guarded import GuardedTx
from milepost.stores.statements import Recount
from milepost.stores.writing import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from psycopg import Pipeline

    from milepost.stores.api import Head, Operation
    from milepost.stores.encryption import Cipher
    from milepost.stores.postgres.connection import Connection
    from milepost.stores.postgres.locking import Begun
    from milepost.stores.postgres.statements import PostgresStatements

MAY_SHARE = (Append, Claim, Create, Deliver, Emit, Enlist)
PLACES = 1 << 16  # places for entries in one number of mp_batches
# What an append that is not written together with others may change for runs beside its own.
ALONE_NEEDS_ALL = ("once", "once_settled", "probe", "tried")


class NeedsAll(Exception):
    """This batch has to hold the gate alone."""


def holds_all(operations: Sequence[Operation]) -> bool:
    """Say whether a batch must hold the gate alone, as far as can be told before anything was read."""
    entries = 0
    for operation in operations:
        if type(operation) not in MAY_SHARE:
            return True
        if type(operation) is Append:
            entries += len(operation.entries)
            if operation.holds or operation.lifts or operation.waits:
                return True
    return entries + len(operations) >= PLACES


def touched(operations: Sequence[Operation]) -> tuple[set[int], set[str]]:
    """Return the runs whose heads a batch has to lock, by number and by id."""
    numbers: set[int] = set()
    ids: set[str] = set()
    for operation in operations:
        match operation:
            case Append():
                numbers.add(operation.head.run)
                ids.update(post.run_id for post in operation.posts)
            case Claim(run_id=run_id):
                ids.add(run_id)
            case Deliver(post=post):
                ids.add(post.run_id)
            case Create(run=run) if run.parent is not None:
                ids.add(run.parent)
            case _:
                pass
    return numbers, ids


class PostgresBatch(Batch):
    """Writes one batch through a connection whose transaction has its locks."""

    sql: PostgresStatements | WireStatements

    def __init__(
        self,
        sql: PostgresStatements | WireStatements,
        tools: tuple[Connection, Pipeline] | None,
        store_id: str,
        cipher: Cipher | None,
        *,
        shared: bool,
        begun: Begun,
    ) -> None:
        super().__init__(sql, store_id, cipher)
        self._tools = tools  # what a transactional tool is given; None for a batch that has none
        self._shared = shared
        self._epochs = begun.epochs
        self.facts.next_row = begun.first_row

    @property
    def standing(self) -> list[Any] | None:
        """What is stopped, as rows, where the batch has not changed it itself."""
        if isinstance(self.sql, WireStatements):
            return self.sql.known.get(("stops", ()))
        return self.sql.known.get("stops")

    def together(self, appends: Sequence[Append]) -> None:
        """Write plain appends at once. Raises Recount when any of them would have been refused."""
        if self._shared and any(append.once_settled for append in appends) and self.sql.run("anybody_waits"):
            raise NeedsAll
        if any(self._epochs.get(append.head.run) != append.head.epoch for append in appends):
            raise Recount
        super().together(appends)

    def alone(self, operation: Operation) -> Any:
        """Perform one operation as a part of its own; return its answer, or the error that refused it."""
        if self._shared and type(operation) is Append and any(getattr(operation, name) for name in ALONE_NEEDS_ALL):
            raise NeedsAll
        return super().alone(operation)

    def _raise_epoch(self, run: int, run_id: str, at: int, entry: Any) -> Head:
        self._epochs.pop(run, None)  # whoever comes behind this in the batch is compared with what is stored
        return super()._raise_epoch(run, run_id, at, entry)

    def work(self, append: Append, work: Callable[[Any], list[bytes]]) -> list[bytes]:  # noqa: ARG002  as in Batch
        """Run a transactional tool inside this transaction; return what it says came of it."""
        assert self._tools is not None, "batches with such tools are written by the driver"
        tx = GuardedTx(*self._tools)
        try:
            return work(tx)
        finally:
            tx.end()
