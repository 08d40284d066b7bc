"""One batch of operations, one transaction.

Appends are first tried optimistically: all rows are gathered, written with one `executemany` a table, and the counts of
changed rows are compared with what they must be. Where a count is wrong (a lost epoch, an identity that is taken), or
where an operation needs an answer from the database, the batch is rolled back and redone one operation at a time, each
in a savepoint, so that one refusal never touches another. Numbers and hashes are given as entries are written: a
refusal breaks nothing queued behind it. Heads in memory change only after the commit succeeded.

A batch that is `noting` writes nothing to the tables of which noting.py speaks: it notes it beside the entries.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from weakref import ref

from msgspec.structs import astuple

from milepost.core import append as rules
from milepost.core.chain import genesis, link
from milepost.errors import EpochLost, MilepostError, UnknownRun
from milepost.stores import pruning, turns
from milepost.stores.api import (
    Append,
    Claim,
    Create,
    Created,
    Deliver,
    Emit,
    Head,
    Kill,
    Killed,
    NewRun,
    Once,
    OnceRow,
    OnceSettled,
    OnceTaken,
    Operation,
    Post,
    Throw,
)
from milepost.stores.facts import Facts
from milepost.stores.fleet import Declare, Enlist, Tick
from milepost.stores.keeping import MarkSeal, Prune, TakeIn
from milepost.stores.pooling import Pools
from milepost.stores.pools import PoolShort, SetCeiling
from milepost.stores.rows import Moved, Rows
from milepost.stores.statements import Recount
from milepost.stores.stopping import Stops

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from milepost.stores.encryption import Cipher
    from milepost.stores.statements import Statements

BESIDE = attrgetter("approvals", "answers", "taken", "posts", "lease", "release")
SYSTEM_RUN = 0
SYSTEM_ID = "system"


class Known(NamedTuple):
    """What a batch had written at a mark: where heads are, the next row, and how far tables are behind."""

    moved: dict[int, Moved]
    next_row: int | None
    behind: int | None


class Batch(ABC):
    """Writes one batch through statements that run inside a transaction."""

    noting = False

    def __init__(
        self, sql: Statements, store_id: str, cipher: Cipher | None = None, facts: Facts | None = None
    ) -> None:
        self.sql = sql
        self.store_id = store_id
        self.cipher = cipher
        self.moved: dict[int, Moved] = {}
        self.facts = facts or Facts()
        enter, catch_up = _reaching(self)
        self.stops = Stops(sql, enter, cipher, self.facts)
        self.pools = Pools(sql, enter, self.facts, catch_up)

    # ------------------------------------------------------------ the optimistic try

    def together(self, appends: Sequence[Append]) -> None:
        """Write plain appends at once. Raises Recount when any of them would have been refused."""
        rows = Rows(noted=self.noting)
        for append in appends:
            self._gather(append, rows)
        try:
            self._write_together(appends, rows)
            self._claim_identities(appends)
            self._settle_identities(appends)
            for append in appends:
                if any(BESIDE(append)):
                    self._beside(append)
            self.sql.add_up()
        except (PoolShort, UnknownRun) as error:  # a message for a run that is not there refuses its own append alone
            raise Recount from error
        self.moved.update(rows.heads)

    def _write_together(self, appends: Sequence[Append], rows: Rows) -> None:
        self._write(rows, count=True)
        self.pools.together(appends)

    def catch_up(self) -> None:
        """Write what is noted where it belongs. Nothing is, in a store that makes no notes."""
        self.noting = False

    def _gather(self, append: Append, rows: Rows) -> None:
        if append.work is not None or self.stops.concern(append):
            raise Recount
        self._number(append, append.entries, rows)
        self._project(append, rows)

    def _project(self, append: Append, rows: Rows) -> None:
        run = append.head.run
        if append.chunks:
            rows.chunks.extend((run, digest, body) for digest, body in append.chunks.items())
        for effect in append.effects:
            rows.effects[run, effect.step] = None if effect.outcome is None else (run, *astuple(effect))
        if append.status is not None:
            s = append.status
            rows.status[run] = (s.status, s.reason, s.until, s.ask, s.why, s.at, run)

    def _number(self, append: Append, entries: Sequence[bytes], rows: Rows) -> Moved:
        head, run = append.head, append.head.run
        moved = rows.heads.get(run)
        if moved is None:
            before = self.moved.get(run)
            moved = Moved(head, head.row, head.seq, head.hash) if before is None else _after(before)
            rows.heads[run] = moved
        if moved.head is not head:
            raise Recount  # two owners of one run in one batch: let the epochs decide
        row, seq, digest, previous = self.next_row, moved.seq, moved.hash, moved.row
        if append.boundary is not None:
            moved.boundary = row + append.boundary
        if self.cipher is not None:
            entries = [self.cipher.seal(head.run_id, f"entry {n}", body) for n, body in enumerate(entries, seq + 1)]
        note = rows.note
        for body in entries:
            seq += 1
            digest = link(digest, body)
            rows.journal.append((row, run, seq, previous, body, digest, *note))
            previous = row
            row += 1
        self.facts.next_row = row
        moved.row, moved.seq, moved.hash, moved.segment, moved.at = previous, seq, digest, head.segment, append.at
        return moved

    def _write(self, rows: Rows, *, count: bool) -> None:
        many = self.sql.many
        heads = [
            (m.row, m.seq, m.hash, m.boundary, m.segment, m.at, key, m.head.epoch) for key, m in rows.heads.items()
        ]
        (self.sql.each if count else many)("advance_head", heads)
        many(rows.entries, rows.journal)
        if rows.chunks:
            many("insert_chunk", rows.chunks)
        if rows.effects:
            put = [row for row in rows.effects.values() if row is not None]
            drop = [key for key, row in rows.effects.items() if row is None]
            if put:
                many("put_effect", put)
            if drop:
                many("drop_effect", drop)
        if rows.status:
            many("put_status", rows.status.values())

    def _claim_identities(self, appends: Sequence[Append]) -> None:
        claims = [_claim_of(append, append.once) for append in appends if append.once is not None]
        if claims:
            self.sql.each("claim_once", claims)

    def _settle_identities(self, appends: Sequence[Append]) -> None:
        """Write what became of identities, in the order in which it was said: neighbours of one kind together."""
        said = [(append.head.run, settled) for append in appends for settled in append.once_settled]
        if not said:
            return
        for released, some in groupby(said, lambda one: one[1].outcome is None):
            if released:
                keys = [(s.tenant, s.tool, s.value, run, s.step) for run, s in some]
                self.sql.many("release_once", keys)
            else:
                rows = [(s.outcome, s.result, s.tenant, s.tool, s.value, run, s.step) for run, s in some]
                self.sql.many("settle_once", rows)
        self.stops.settled([(append.at, one) for append in appends for one in append.once_settled])

    def _beside(self, append: Append) -> None:
        many = self.sql.many
        head = append.head
        for row in append.approvals:
            shown = (row.id, head.run, row.step, row.path, row.tool, row.args, row.asked_at, row.verdict)
            many("put_approval", [shown])
        if append.answers and not self.noting:
            many("answer_approval", [(verdict, by, id_) for id_, verdict, by in append.answers])
        if append.taken:
            many("take_message", [(id_,) for id_ in append.taken])
        for post in append.posts:
            self._deliver(post)
        if append.lease is not None:
            worker, until = append.lease
            many("renew_worker", [(until, worker)])
        if append.release is not None:
            now, due = append.release
            many("release_run", [(now, due, head.run, append.patience)])
            if append.waits:
                self.stops.wait(head.run, append.waits, append.at, due)

    def group(self, appends: Sequence[Append]) -> list[Any]:
        """Write appends at once, or one by one where they do not add up; return their answers."""
        known = self._mark()
        try:
            self.together(appends)
        except Recount:
            self._undo(known)
            return [self.alone(append) for append in appends]
        self.sql.keep()
        return [None] * len(appends)

    def _mark(self) -> Known:
        self.sql.mark()
        return Known(dict(self.moved), self.facts.next_row, self.facts.behind)

    def _undo(self, known: Known) -> None:
        """Take back what was written since a mark, and everything that may have been read or decided since then."""
        self.sql.undo()
        self.moved, self.facts.next_row, self.facts.behind = known
        self.stops.forget()
        self.pools.forget()

    # ------------------------------------------------------------ one by one

    def alone(self, operation: Operation) -> Any:
        """Perform one operation as a part of its own; return its answer, or the error that refused it."""
        known = self._mark()
        try:
            answer = self._perform(operation)
        except MilepostError as refusal:
            self._undo(known)
            return refusal
        self.sql.keep()
        return answer

    def _perform(self, operation: Operation) -> Any:
        match operation:
            case Append():
                return self._append(operation)
            case Create(run=run):
                return self.create(run)
            case Claim():
                return self._claim(operation)
            case Deliver(post=post):
                return self._deliver(post)
            case Kill():
                return self._kill(operation)
            case Enlist(worker=worker):
                row = (worker.id, worker.host, worker.pid, worker.started_at, worker.lease_until)
                self.sql.do("put_worker", *row)
                return None
            case MarkSeal():
                return pruning.mark(self, operation)
            case Prune():
                return pruning.prune(self, operation)
            case TakeIn():
                return pruning.take_in(self, operation)
            case SetCeiling():
                return self.pools.set(operation)
            case Emit(events=events):
                rows = [(at, body, run_id) for run_id, at, body in events]
                self.sql.many("insert_event", rows)
                return None
            case Throw():
                return self.stops.throw(operation)
            case Declare():
                return turns.declare(self.sql, operation)
            case Tick():
                return turns.tick(self, operation)

    def _append(self, append: Append) -> None:
        head, rows = append.head, Rows()
        if append.scopes:
            self.stops.check(append)
        found = self._row("head_of", head.run)
        if rules.epoch_lost(head.epoch, None if found is None else found[0]):
            raise EpochLost(head.run_id, head.epoch)
        self.pools.reserve(append)
        entries = [*append.entries]
        if append.work is not None:
            entries.extend(self.work(append, append.work))
        self._number(append, entries, rows)
        self._project(append, rows)
        if append.once is not None:
            self._claim_identity(append)
        self._write(rows, count=False)
        self.pools.settle(append)
        self.stops.apply(append)
        self._settle_identities([append])
        self._beside(append)
        self.moved.update(rows.heads)

    @abstractmethod
    def work(self, append: Append, work: Callable[[Any], list[bytes]]) -> list[bytes]:
        """Run a transactional tool inside this transaction; return what it says came of it."""

    def system_entry(self, body: bytes, at: int) -> None:
        """Append to the journal of the store itself, whose head is read in the transaction: nobody owns it."""
        found = self._row("head_of", SYSTEM_RUN)
        if found is None:
            made = (SYSTEM_RUN, SYSTEM_ID, "", "", 0, None, "", None, None, "", None, "{}", at, at, "", 0, None)
            self.sql.do("insert_run", *made)
            first = genesis(self.store_id, SYSTEM_ID)
            self.sql.do("insert_head", SYSTEM_RUN, 0, 0, 0, first, 0, None, at)
            found = (0, 0, 0, first, 0, None)
        epoch, row, seq, digest, _, segment = found
        append = Append(Head(SYSTEM_RUN, SYSTEM_ID, epoch, row, seq, digest, segment), [body], at)
        rows = Rows()
        self._number(append, append.entries, rows)
        self._write(rows, count=False)

    def _claim_identity(self, append: Append) -> None:
        once = append.once
        assert once is not None
        row = self._row("once_of", once.tenant, once.tool, once.value)
        own = (append.head.run_id, once.step)
        if once.again and row is not None and rules.holds_identity(*own, row[0], row[1], row[3]):
            return
        if rules.identity_taken(row):
            raise OnceTaken(OnceRow(*row))
        self.sql.many("claim_once", [_claim_of(append, once)])

    def create(self, new: NewRun) -> Created:
        """Create a run, or find the one that its key names."""
        if new.key is not None:
            found = self._row("run_by_key", int(new.attached), new.key)
            if found is not None:
                return Created(found[1], fresh=False, workflow=found[2], digest=found[3])
        if self._row("run_number", new.id) is not None:
            return Created(new.id, fresh=False, workflow=new.workflow, digest=new.digest)
        pruning.refuse_pruned(self.sql, new.id, None if new.key is None else (int(new.attached), new.key))
        run = cast("int", self._value("next_run"))
        parent = None if new.parent is None else self._parent(new)
        row = self.next_row
        digest = link(genesis(self.store_id, new.id), new.entry)
        made = (
            run, new.id, new.workflow, new.version, int(new.attached), new.key, new.digest, new.due, parent,
            new.principal, new.tenant, new.tags, new.at, new.at, new.place.queue, new.place.priority,
            new.place.group,
        )  # fmt: skip
        self.sql.do("insert_run", *made)
        self.sql.many("insert_entry", [(row, run, 1, None, new.entry, digest)])
        self.sql.do("insert_head", run, 0, row, 1, digest, row, new.segment, new.at)
        if new.chunks:
            self.sql.many("insert_chunk", [(run, name, body) for name, body in new.chunks.items()])
        self.facts.next_row = row + 1
        return Created(new.id, fresh=True, workflow=new.workflow, digest=new.digest)

    def _parent(self, new: NewRun) -> int:
        parent = self.run_number(new.parent or "")
        found = self._row("head_of", parent)
        if new.parent_epoch is not None and (found is None or found[0] != new.parent_epoch):
            raise EpochLost(new.parent or "", new.parent_epoch)
        return parent

    def _claim(self, claim: Claim) -> Head:
        run = self.run_number(claim.run_id)
        found = self._row("owner_of", run)
        assert found is not None
        if rules.claim_lost(found[0], claim.owner_was):
            raise EpochLost(claim.run_id, 0)
        turns.admit(self.sql, claim, run, str(found[1]))
        self.sql.do("claim_run", claim.owner, claim.at, run)
        self.sql.do("waits_no_more", run)
        return self._raise_epoch(run, claim.run_id, claim.at, claim.entry)

    def _raise_epoch(self, run: int, run_id: str, at: int, entry: Any) -> Head:
        found = self._row("head_of", run)
        assert found is not None
        held, row, seq, digest, _, segment = found
        epoch = rules.next_epoch(held)
        self.sql.do("raise_epoch", epoch, run)
        self.moved.pop(run, None)  # the old owner's head, wherever this batch has moved it, is appended to no more
        append = Append(Head(run, run_id, epoch, row, seq, digest, segment), [entry(epoch)], at)
        rows = Rows()
        self._number(append, append.entries, rows)
        self._write(rows, count=False)
        moved = rows.heads[run]
        return Head(run, run_id, epoch, moved.row, moved.seq, moved.hash, segment)

    def _deliver(self, post: Post) -> bool:
        run = self.run_number(post.run_id)
        fresh = bool(self.sql.changed("deliver", run, post.message_id, post.body, int(post.patient)))
        if fresh:
            turns.wake(self.sql, run, post)
        return fresh

    def _kill(self, kill: Kill) -> Killed:
        root = self.run_number(kill.run_id)
        killed = Killed([], [])
        for run, run_id, status in self.sql.run("children_of", root):
            effects = self.sql.run("open_effects", run)
            open_paths = tuple(str(row[2]) for row in effects if row[5] in {"started", "unknown"})
            if not rules.may_be_killed(str(status)):
                continue
            owner = self._value("owner_of", run)
            if owner is not None and owner not in killed.owners:
                killed.owners.append(owner)
            self._raise_epoch(
                cast("int", run), str(run_id), kill.at, lambda epoch, paths=open_paths: kill.entry(epoch, paths)
            )
            self.sql.do("lose_effects", "killed while in flight", run)
            self.sql.do("waits_no_more", run)
            freed = self.sql.run("release_failed", run)
            self.sql.do("drop_unbegun", run)
            self.sql.do("void_approvals", run)
            self.stops.settled([(kill.at, OnceSettled(*cast("tuple[str, str, str]", one), None)) for one in freed])
            self.pools.killed(cast("int", run))
            due = kill.at if any(rules.settles_later(str(row[5])) for row in effects) else None
            why = kill.why if self.cipher is None else self.cipher.seal_text(str(run_id), "why", kill.why)
            self.sql.do("stop_run", "killed", why, due, kill.at, run)
            killed.runs.append(str(run_id))
            killed.unknown.extend((str(run_id), path) for path in open_paths)
        parent = self._value("parent_of", root)
        if parent is not None and kill.run_id in killed.runs:
            self._deliver(kill.tell(parent))
        return killed

    # ------------------------------------------------------------ small reads inside the transaction

    @property
    def next_row(self) -> int:
        """The row that the next entry takes."""
        if self.facts.next_row is None:
            self.facts.next_row = cast("int", self._value("last_row")) + 1
        return self.facts.next_row

    def _row(self, name: str, *args: Any) -> Any:
        rows = self.sql.run(name, *args)
        return rows[0] if rows else None

    def _value(self, name: str, *args: Any) -> Any:
        row = self._row(name, *args)
        return None if row is None else row[0]

    def used_rows(self, count: int) -> None:
        """Take note of rows of the journal that were written beside this batch's own."""
        self.facts.next_row = self.next_row + count

    def run_number(self, run_id: str) -> int:
        """Return a run's number. Raises UnknownRun."""
        run = self._value("run_number", run_id)
        if run is None:
            raise UnknownRun(run_id)
        return cast("int", run)


def _reaching(batch: Batch) -> tuple[Callable[[bytes, int], None], Callable[[], None]]:
    """Return a batch's `system_entry` and `catch_up`, without holding the batch.

    In a cycle all rows of a batch would outlive it, and the collector of cycles would look for them every few batches.
    """
    itself = ref(batch)

    def enter(body: bytes, at: int) -> None:
        cast("Batch", itself()).system_entry(body, at)

    def catch_up() -> None:
        cast("Batch", itself()).catch_up()

    return enter, catch_up


def _claim_of(append: Append, once: Once) -> tuple[Any, ...]:
    return (once.tenant, once.tool, once.value, append.head.run, once.step, once.digest)


def _after(moved: Moved) -> Moved:
    """Return a copy to move on from: the original stands until the group that uses the copy is written."""
    return Moved(moved.head, moved.row, moved.seq, moved.hash)
