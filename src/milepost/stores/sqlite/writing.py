"""What of a batch is SQLite's own: notes, tools inside the transaction, and deleted bytes that are overwritten.

What costs in a commit are its pages. So a batch notes what it can (stores/noting.py) where it goes on from what the
batch before it knew, and is of operations that look at none of the tables which notes are about. Every other batch lets
these tables catch up before it does anything. So does one before which too many entries stand that they do not have, as
who lists approvals or budgets reads all of these, and an append that has to be decided by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from milepost.errors import Rejected
from milepost.stores.api import Append, Claim, Create, Deliver, Emit
from milepost.stores.facts import Pending
from milepost.stores.fleet import Enlist
from milepost.stores.keeping import Prune
from milepost.stores.noting import Note, encode, fold
from milepost.stores.sqlite.guarded import GuardedTx
from milepost.stores.statements import Recount
from milepost.stores.writing import Batch, Known

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import apsw

    from milepost.stores.api import Operation
    from milepost.stores.encryption import Cipher
    from milepost.stores.facts import Facts
    from milepost.stores.rows import Rows
    from milepost.stores.sqlite.statements import SqliteStatements

BEHIND_MOST = 1_024  # entries
# Operations that look at none of the tables which notes are about, nor change what stands against a start.
NOTING = frozenset({Append, Claim, Create, Deliver, Emit, Enlist})


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
        self.whole = False  # what it knows is true when it is committed

    def begin(self, operations: Iterable[type[Operation]]) -> None:
        """Look how far the tables are, and let them catch up where operations of these types ask for it."""
        facts = self.facts
        self.whole = NOTING.issuperset(operations)
        self.noting = self.whole and facts.next_row is not None
        if facts.next_row is None:
            ((last, behind),) = self.sql.run("last_row")
            facts.next_row, facts.behind = last + 1, behind
            facts.forget_pools()
        if facts.behind is not None and (not self.noting or facts.next_row - facts.behind >= BEHIND_MOST):
            self._catch_up()

    def catch_up(self) -> None:
        """Write what is noted where it belongs, and note nothing more in this batch: something is read, or changed."""
        self.noting = False
        if self.facts.behind is not None:
            self._catch_up()

    def _catch_up(self) -> None:
        sql, facts = self.sql, self.facts
        pending = facts.pending
        if pending is None:
            pending = facts.pending = self._read_notes()
        facts.behind = None
        sql.do("caught_up")
        self.pools.write()
        if pending.answers:
            answers = sorted(pending.answers.values())  # by id: neighbours stand on one page
            sql.many("answer_approval", [(verdict, by, id_) for id_, verdict, by in answers])
            pending.answers = {}

    def _read_notes(self) -> Pending:
        pools, pending = self.pools, Pending()
        folded = fold(self.sql.run("notes", self.facts.behind))
        pending.drops, pending.answers = folded.gone, folded.answers
        for step, amounts in folded.held.items():
            pending.puts[step] = [(pools.counted(row[:3]), row[3]) for row in amounts]
        for row, amount in folded.spent.items():
            counted = pools.counted(row)
            counted.spent = pools.spent_in(counted) + amount
            pending.booked[counted] = None
        return pending

    def _undo(self, known: Known) -> None:
        self.whole = self.noting = False
        super()._undo(known)

    def _append(self, append: Append) -> None:
        self.whole = False
        self.catch_up()  # what it is decided on is read
        super()._append(append)

    def _write_together(self, appends: Sequence[Append], rows: Rows) -> None:
        if not self.noting:
            self.catch_up()
            super()._write_together(appends, rows)
            return
        notes: dict[int, Note] = {}
        self.pools.together(appends, notes)
        if self.noting:  # it still is
            self._note(appends, rows, notes)
        self._write(rows, count=True)

    def _note(self, appends: Sequence[Append], rows: Rows, notes: dict[int, Note]) -> None:
        """Put notes beside the last entry of what each is about."""
        facts, journal = self.facts, rows.journal
        pending = facts.pending
        assert pending is not None, "who makes notes knows what they say"
        end = 0
        for place, append in enumerate(appends):
            end += len(append.entries)
            note = notes.get(place)
            if append.answers:
                note = note or Note([], [], [])
                note.answers = list(append.answers)
                pending.answers.update((answer[0], answer) for answer in append.answers)
            if note is None:
                continue
            if not append.entries:
                raise Recount  # there is nothing that it could stand beside
            last = journal[end - 1]
            journal[end - 1] = (*last[:-1], encode(note))
            if facts.behind is None:
                facts.behind = last[0]
                self.sql.do("fall_behind", last[0])

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
