"""The statements of a batch on the wire: what can be known beforehand is, and what can be written at once is.

A hundred runs that start, or are claimed, ask each the same few questions and write each a row in the same few tables.
The rules stay those of one operation (stores/writing.py); here their questions are answered from what came with the
locks (`foreseeing`), and what they write is kept back and merged.

A part (between `mark` and `keep` or `undo`) is kept back until it is over. Where it has to ask something that is not
known, a savepoint is set, and what it wrote so far is sent before the question; where it is refused before that, there
is nothing to take back. Parts that are kept are merged with the ones before, one statement a table, where their order
cannot matter: they are of different runs, and each writes its tables in the order of `RANK`.
"""

from __future__ import annotations

from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any

from milepost.stores.postgres.statements import BULK, CHANGES, KEYS, apart
from milepost.stores.statements import Recount

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from milepost.stores.postgres.wire import Wire

# Statements that may be merged: their order, and which column is the run.
RANK = {
    "insert_run": 0,
    "insert_head": 0,
    "claim_run": 2,
    "waits_no_more": 0,
    "raise_epoch": 1,
    "advance_head": 6,
    "insert_entry": 1,
    "insert_chunk": 0,
    "put_effect": 0,
    "drop_effect": 0,
    "put_status": 6,
    "release_run": 2,
}
ORDER = {name: at for at, name in enumerate(RANK)}
COMMUTE = {"insert_entry", "insert_chunk"}  # nothing that is merged looks at these tables
# Which question does a row of a statement make stale: its name, and by which columns it asks.
STALE = {
    "insert_run": (("run_by_key", (4, 5)), ("run_number", (1,))),
    "insert_head": (("head_of", (0,)),),
    "advance_head": (("head_of", (6,)),),
    "raise_epoch": (("head_of", (1,)),),
    "claim_run": (("owner_of", (2,)),),
    "put_status": (("owner_of", (6,)),),
    "release_run": (("owner_of", (2,)),),
}
# These touch nothing that is known beforehand, but for what CHANGES says.
HARMLESS = {
    "note_batch",
    *COMMUTE, "put_effect", "drop_effect", "waits_no_more", "put_approval", "answer_approval", "take_message",
    "deliver", "insert_event", "put_worker", "renew_worker", "claim_once", "settle_once", "release_once", "lock_turns",
    "wake_run", "wake_patiently", "wait_for", "put_reserved", "drop_reserved", "take_reserved", "put_spent",
    "put_overspent", "set_switch", "lift_switch", "put_breaker", "drop_breaker", "due_by_then", "due_only_then",
}  # fmt: skip

Known = dict[tuple[str, tuple[Any, ...]], list[Any]]
Part = list[tuple[str, "Collection[Any]"]]


class WireStatements:
    """Statements of one batch. `Statements` says what each method does."""

    __slots__ = ("_counted", "_part", "_pending", "_pending_runs", "_saved", "_wire", "known", "numbers")

    def __init__(self, wire: Wire, known: dict[str, list[Any]]) -> None:
        self._wire = wire
        self.known: dict[Any, list[Any]] = {(name, ()): rows for name, rows in known.items()}
        self.numbers: list[int] = []  # of runs that are going to be made
        self._counted: list[tuple[int, int]] = []
        self._part: Part | None = None
        self._saved = False
        self._pending: dict[str, list[Any]] = {}
        self._pending_runs: set[int] = set()

    # ------------------------------------------------------------ questions

    def run(self, name: str, /, *args: Any) -> list[Any]:
        """Run a statement and return its rows."""
        found = self.known.get((name, args))
        if found is not None:
            return found
        if name == "next_run" and self.numbers:
            return [(self.numbers.pop(),)]
        self._before_asking()
        self._changes(name, [args])
        return self._wire.rows(name, self._wire.send(name, args))

    def changed(self, name: str, /, *args: Any) -> int:
        """Run a statement and return how many rows it changed."""
        self._before_asking(writes=True)
        self._changes(name, [args])
        return self._wire.count(self._wire.send(name, args))

    def each(self, name: str, rows: Collection[Any], /) -> None:
        """Send a statement that must change one row of the table for each of these: `add_up` says whether it has."""
        if name == "advance_head":  # the epochs of heads that are locked were compared already
            self.many(name, rows)
            return
        self._before_asking(writes=True)
        self._changes(name, rows)
        self._counted.append((self._send(name, rows), len(rows)))

    def add_up(self) -> None:
        """Raise Recount where an `each` has not changed what it must."""
        counted, self._counted = self._counted, []
        for number, expected in counted:
            if self._wire.count(number) != expected:
                raise Recount

    # ------------------------------------------------------------ writing

    def do(self, name: str, /, *args: Any) -> None:
        """Send a statement whose answer nobody needs."""
        if name in BULK:
            self.many(name, [args])
            return
        self._changes(name, [args])
        self._put(name, args)

    def many(self, name: str, rows: Collection[Any], /) -> int:
        """Send a statement for all rows; return how many there are, as none of their answers has come yet."""
        if rows:
            self._changes(name, rows)
            self._put(name, rows, many=True)
        return len(rows)

    def _put(self, name: str, given: Any, *, many: bool = False) -> None:
        if self._part is not None and not self._saved:
            self._part.append((name, given if many else _Single(given)))
            return
        self.flush()
        self._out(name, given if many else _Single(given))

    def _out(self, name: str, given: Collection[Any]) -> None:
        if isinstance(given, _Single):
            self._wire.send(name, given)
        elif name in KEYS and len(given) > 1:
            for some in apart(given, KEYS[name]):
                self._send(name, some)
        else:
            self._send(name, given)

    def _send(self, name: str, rows: Collection[Any]) -> int:
        return self._wire.send(name, list(zip(*rows, strict=True)))

    def _changes(self, name: str, rows: Collection[Any]) -> None:
        known = self.known
        if not known or name in ASKS:
            return
        if (of_all := CHANGES.get(name)) is not None:
            known.pop((of_all, ()), None)
        if (stale := STALE.get(name)) is not None:
            for question, columns in stale:
                for row in rows:
                    known.pop((question, tuple([row[at] for at in columns])), None)
        elif name not in HARMLESS:
            known.clear()

    def flush(self) -> None:
        """Send what was kept back of parts that are kept."""
        if self._pending:
            for name in sorted(self._pending, key=ORDER.__getitem__):
                self._out(name, self._pending[name])
            self._pending = {}
            self._pending_runs = set()

    # ------------------------------------------------------------ parts

    def mark(self) -> None:
        """Begin a part that may be taken back."""
        self._part, self._saved = [], False

    def undo(self) -> None:
        """Take back what was written since the mark."""
        self._counted.clear()
        if self._saved:
            self.known.clear()
            self._wire.send("undo")
            self._wire.send("keep")
        self._part, self._saved = None, False

    def keep(self) -> None:
        """Keep what was written since the mark."""
        part, saved = self._part, self._saved
        self._part, self._saved = None, False
        if saved:
            self._wire.send("keep")
        elif part:
            runs = _mergeable(part)
            if runs is None or not runs.isdisjoint(self._pending_runs):
                self.flush()
            if runs is None:
                for name, given in part:
                    self._out(name, given)
            else:
                self._pending_runs |= runs
                for name, rows in part:
                    self._pending.setdefault(name, []).extend(rows)

    def _before_asking(self, *, writes: bool = False) -> None:
        self.flush()
        if self._part is not None and not self._saved and (self._part or writes):
            self._wire.send("mark")
            for name, given in self._part:
                self._out(name, given)
            self._saved = True

    @contextmanager
    def instant(self) -> Iterator[None]:
        """Let everything that is read inside be as of one instant: a batch holds its locks."""
        yield


class _Single(tuple[Any, ...]):
    """The parameters of a statement that is no array's."""

    __slots__ = ()


# What one statement does in a trip, and how many columns each of these has; with their guard and their line.
MOST = {"advance_head": 8, "insert_entry": 6, "put_effect": 10, "drop_effect": 2}
NO_EFFECT = (None,) * 9
NONE = {name: [()] * columns for name, columns in MOST.items()}
# All that plain appends may send: it is prepared before, as nobody waits for the server where they are sent.
IN_A_TRIP = (
    "begin", "gate_together", "guard", "trip", "trip_of_one", *MOST, "insert_chunk", "put_status", "put_approval",
    "answer_approval", "take_message", "renew_worker", "release_run", "note_batch",
)  # fmt: skip


class TripStatements(WireStatements):
    """Statements of plain appends, which are sent with their locks: they are kept back until all of them are known."""

    __slots__ = ("_all",)

    def __init__(self, wire: Wire, known: dict[str, list[Any]]) -> None:
        super().__init__(wire, known)
        self._all: list[tuple[str, Collection[Any]]] = []

    def run(self, name: str, /, *args: Any) -> list[Any]:
        """Answer what is known. Raises Recount for what has to be asked, as nothing can be in a trip."""
        found = self.known.get((name, args))
        if found is None:
            raise Recount
        return found

    def changed(self, name: str, /, *args: Any) -> int:  # noqa: ARG002  as in WireStatements
        """Raise Recount: how many rows a statement changes has to be asked."""
        raise Recount

    def _out(self, name: str, given: Collection[Any]) -> None:
        self._all.append((name, given))

    def go(self, epochs: dict[int, int], line: str, batch: int) -> tuple[str, int]:
        """Send all of it, behind its guard; return which answer brings the next batch's row and the time."""
        rows = dict(self._all)
        if len(rows) == len(self._all) and rows.keys() <= MOST.keys():
            if len(epochs) == 1 and (values := _of_one(rows)) is not None:
                return "trip_of_one", self._wire.send("trip_of_one", [*values, line, batch])
            columns = [list(zip(*rows[name], strict=True)) if name in rows else NONE[name] for name in MOST]
            return "trip", self._wire.send("trip", [*chain.from_iterable(columns), line, batch])
        guard = self._wire.send("guard", ([*epochs], [*epochs.values()]))
        for name, given in self._all:
            super()._out(name, given)
        self._wire.send("note_batch", (line, batch))
        return "guard", guard


def _of_one(rows: dict[str, Any]) -> list[Any] | None:
    """Return what one run writes as `trip_of_one` takes it, None where it has more effects than that takes."""
    (head,) = rows["advance_head"]
    entries, put, drop = rows.get("insert_entry", ()), rows.get("put_effect", ()), rows.get("drop_effect", ())
    if len(put) > 1 or len(drop) > 1:
        return None
    row, _, seq, previous = entries[0][:4] if entries else (1, 0, 1, None)
    return [
        *head, row - 1, seq - 1, previous, [one[4] for one in entries], [one[5] for one in entries],
        *(put[0][1:] if put else NO_EFFECT), drop[0][1] if drop else None,
    ]  # fmt: skip


ASKS = {
    "run_by_key", "run_number", "pruned_of", "pruned_key", "next_run", "last_row", "head_of", "owner_of", "place_of",
    "stops", "once_of", "ceilings", "anybody_waits", "reserved_of", "spent_of", "held_in", "begun_in", "begun_in_group",
    "recent_in", "recent_in_group", "who_waits", "children_of", "open_effects", "parent_of", "children",
    "live_children", "schedule",
}  # fmt: skip


def _mergeable(part: Sequence[tuple[str, Collection[Any]]]) -> set[int] | None:
    """Return the runs of a part that may be merged with others, None for one that may not."""
    at, seen, runs = -1, set(), set()
    for name, rows in part:
        if name not in RANK or name in seen or isinstance(rows, _Single):
            return None
        seen.add(name)
        if name not in COMMUTE:
            if ORDER[name] < at:
                return None
            at = ORDER[name]
            if len(rows) > 1 and name in KEYS:
                return None
        column = RANK[name]
        runs |= {row[column] for row in rows}
    return runs
