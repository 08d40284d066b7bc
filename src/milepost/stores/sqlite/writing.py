"""What of a batch is SQLite's own: notes, tools inside the transaction, and deleted bytes that are overwritten.

What costs in a commit are its pages. So a batch notes what it can (stores/noting.py) where it goes on from what the
batch before it knew. Every other batch lets the tables catch up before it does anything: it may look at them. So does
one before which too many entries stand that they do not have, as who lists approvals or budgets reads all of these.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from milepost.core.pools import NOTHING
from milepost.errors import Rejected
from milepost.stores.keeping import Prune
from milepost.stores.noting import Note, encode, fold
from milepost.stores.sqlite.guarded import GuardedTx
from milepost.stores.statements import Recount
from milepost.stores.writing import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import apsw

    from milepost.stores.api import Append, Operation
    from milepost.stores.encryption import Cipher
    from milepost.stores.facts import Facts
    from milepost.stores.rows import Rows
    from milepost.stores.sqlite.statements import SqliteStatements

BEHIND_MOST = 1_024  # entries


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

    def begin(self, *, plain: bool) -> None:
        """Look how far the tables are, and let them catch up where that has to be. `plain`: it is appends alone."""
        facts = self.facts
        self.noting = plain and facts.next_row is not None
        if facts.next_row is None:
            ((last, behind),) = self.sql.run("last_row")
            facts.next_row, facts.behind = last + 1, behind
        if facts.behind is not None and (not self.noting or facts.next_row - facts.behind >= BEHIND_MOST):
            self._catch_up()

    def catch_up(self) -> None:
        """Write what is noted where it belongs, and note nothing more in this batch: something is read, or changed."""
        self.noting = False
        if self.facts.behind is not None:
            self._catch_up()

    def _catch_up(self) -> None:
        sql = self.sql
        folded = fold(sql.run("notes", self.facts.behind))
        self.facts.behind = None
        sql.do("caught_up")
        if folded.gone:
            sql.many("drop_reserved", list(folded.gone))
        held = [(*row[:3], *step, row[3]) for step, rows in folded.held.items() for row in rows]
        if held:
            sql.many("put_reserved", held)
        spent = []
        for row, amount in folded.spent.items():
            before = sql.run("spent_of", *row)
            spent.append((*row, f"{(Decimal(before[0][0]) if before else NOTHING) + amount:f}"))
        if spent:
            sql.many("put_spent", spent)
        if folded.answers:
            answers = sorted(folded.answers.values())  # by id: neighbours stand on one page
            sql.many("answer_approval", [(verdict, by, id_) for id_, verdict, by in answers])

    def _write_together(self, appends: Sequence[Append], rows: Rows) -> None:
        if not self.noting:
            super()._write_together(appends, rows)
            return
        notes: dict[int, Note] = {}
        self.pools.together(appends, notes)
        if self.noting:  # it still is
            for place, append in enumerate(appends):
                if append.answers:
                    notes.setdefault(place, Note()).answers = append.answers
            if notes:
                self._note(appends, rows, notes)
        self._write(rows, count=True)

    def _note(self, appends: Sequence[Append], rows: Rows, notes: dict[int, Note]) -> None:
        """Put notes beside the last entry of what each is about."""
        journal: list[tuple[Any, ...]] = []
        end = 0
        for place, append in enumerate(appends):
            end += len(append.entries)
            note = notes.get(place)
            if note is None:
                continue
            if not append.entries:
                raise Recount  # there is nothing that it could stand beside
            journal.extend([(*row, None) for row in rows.journal[len(journal) : end - 1]])
            last = rows.journal[end - 1]
            journal.append((*last, encode(note)))
            if self.facts.behind is None:
                self.facts.behind = last[0]
                self.sql.do("fall_behind", last[0])
        journal.extend([(*row, None) for row in rows.journal[len(journal) :]])
        rows.entries, rows.journal = "insert_noting", journal

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
