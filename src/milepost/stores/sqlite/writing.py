"""What of a batch is SQLite's own: tools inside the transaction, and deleted bytes that are overwritten."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from milepost.errors import Rejected
from milepost.stores.keeping import Prune
from milepost.stores.sqlite.guarded import GuardedTx
from milepost.stores.writing import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import apsw

    from milepost.stores.api import Append, Operation
    from milepost.stores.encryption import Cipher
    from milepost.stores.facts import Facts
    from milepost.stores.sqlite.statements import SqliteStatements


class RolledBack(Exception):
    """A transactional tool's statement took the whole transaction back, with all that stood before it in the batch."""

    def __init__(self, append: Append) -> None:
        super().__init__()
        self.append = append


class SqliteBatch(Batch):
    """Writes one batch through a connection that is inside a transaction, all but what is `refused` already."""

    def __init__(
        self,
        sql: SqliteStatements,
        connection: apsw.Connection,
        store_id: str,
        cipher: Cipher | None,
        refused: Sequence[Operation],
        facts: Facts,
    ) -> None:
        super().__init__(sql, store_id, cipher, facts)
        self.connection = connection
        self.refused = refused
        self.whole = False  # all of it was written together

    def alone(self, operation: Operation) -> Any:
        """Perform one operation as a part of its own; return its answer, or the error that refused it."""
        if any(operation is one for one in self.refused):
            return Rejected("a statement of it rolled the whole transaction back: use OR ABORT or OR FAIL")
        if type(operation) is not Prune:
            return super().alone(operation)
        # What is deleted is overwritten in the file, too: whoever asked for it to be gone did not mean "until it is
        # found".
        kept_before = self.connection.pragma("secure_delete")
        self.connection.pragma("secure_delete", True)
        try:
            return super().alone(operation)
        finally:
            self.connection.pragma("secure_delete", kept_before)

    def work(self, append: Append, work: Callable[[Any], list[bytes]]) -> list[bytes]:
        """Run a transactional tool inside this transaction; return what it says came of it."""
        tx = GuardedTx(self.connection)
        try:
            return work(tx)
        finally:
            tx.end()
            if not self.connection.in_transaction:
                raise RolledBack(append)
