"""The parts of a state: what is stored, who works, what is under way outside, and what may still go wrong."""

from __future__ import annotations

from typing import NamedTuple

from tests.model.desk import Put
from tests.model.records import Record

TICK = 1_000


class Row(NamedTuple):
    """What the store holds of one run. `known` are the ids of all messages that ever came, `waits` what it rests on."""

    record: Record
    owner: str | None = None
    due: int | None = 0
    inbox: tuple[tuple[int, bytes], ...] = ()
    known: frozenset[str] = frozenset()
    waits: tuple[str, ...] = ()


class Claimed(NamedTuple):
    """Who holds a business identity."""

    run: int
    step: str
    digest: str
    outcome: str
    result: bytes | None


class Flight(NamedTuple):
    """An attempt under way. It is `sent` once its bytes left; `lapsed`: the lease, since `started` was queued."""

    number: int
    key: str
    sent: bool = False
    lapsed: bool = False


class Held(NamedTuple):
    """A worker's hold of a run: its own view of it, and what it has queued. `base` is the view before a `started`."""

    run: int
    epoch: int
    view: Record
    base: Record
    dead: frozenset[str]
    queue: tuple[Put, ...] = ()
    flight: Flight | None = None
    dropped: bool = False
    mailed: frozenset[int] = frozenset()
    lapsed: bool = False


class Worker(NamedTuple):
    """A process. `lease` is how long it believes to have, `row` what the store says."""

    name: str
    mode: str = "up"
    lease: int = 0
    row: int = 0
    held: Held | None = None


class Request(NamedTuple):
    """Bytes that left. `quiet` is the moment since which their sender cannot act any more, by the truth."""

    run: int
    key: str
    number: int
    worker: str
    sent: int
    quiet: int | None = None
    fate: str = "out"


class Applied(NamedTuple):
    """An effect in the outside ledger. `late` says that it lies beyond all that the tool's author declared."""

    key: str
    at: int
    late: bool


class State(NamedTuple):
    """Everything.

    `left` counts down what may still go wrong and what the operator may still do; `said` names the keys of which a
    person has said what is true.
    """

    now: int
    rows: tuple[Row, ...]
    workers: tuple[Worker, ...]
    left: tuple[tuple[str, int], ...]
    requests: tuple[Request, ...] = ()
    ledger: tuple[Applied, ...] = ()
    once: tuple[tuple[str, Claimed], ...] = ()
    switches: frozenset[str] = frozenset()
    said: frozenset[str] = frozenset()

    def may(self, what: str) -> bool:
        """Say whether this may still happen."""
        return dict(self.left).get(what, 0) > 0

    def spend(self, what: str) -> State:
        """Count one of these down."""
        return self._replace(left=tuple((name, n - (name == what)) for name, n in self.left))

    def with_row(self, run: int, row: Row) -> State:
        """Replace what is stored of a run."""
        return self._replace(rows=(*self.rows[:run], row, *self.rows[run + 1 :]))

    def with_worker(self, at: int, worker: Worker) -> State:
        """Replace a worker."""
        return self._replace(workers=(*self.workers[:at], worker, *self.workers[at + 1 :]))
