"""The checker: what journals say about the outside world, against what the outside world says itself.

Whoever tests for lost or repeated effects keeps a ledger *outside*: one line for each effect that was really applied.
After the crashes, `check` reads every run of a store and compares. It folds the entries by a reading of its own, not by
the runtime's, so that a defect in the one does not hide in the other.

The rules, each a `Violation.rule`:

  repeated       an effect that must not repeat was applied more than once
  unrecorded     something was applied of which no journal knows
  not_started    something was applied by an attempt whose `started` no journal holds
  altered        something was applied with other arguments than the recorded ones
  lost           it was applied, and its journal says that it did not begin, or, in a run that ended, only that it began
  failed         it was applied, and its journal says that it failed; a recorded contradiction excuses it
  phantom        its journal says confirmed, and it was not applied
  rewritten      a final outcome was written over, which only a contradiction allows
  started_twice  one attempt has two `started`
  left_open      a boundary was written while an effect before it was started or unknown
  epoch          epochs do not rise, or an attempt began under another epoch than its owner's
  damaged        the chain, an entry or a chunk does not verify

A world that sees the idempotency key writes it into its ledger. One that does not (a table in the store's own
transaction, a mailbox) writes the arguments instead, and is compared by them: so give such effects arguments that tell
them apart.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from milepost.core import codec
from milepost.core import entries as e
from milepost.errors import MilepostError
from milepost.operations.inspection import Inspector
from milepost.stores.api import Query

if TYPE_CHECKING:
    from milepost.stores.api import RunRow, Store

Rule = Literal[
    "repeated",
    "unrecorded",
    "not_started",
    "altered",
    "lost",
    "failed",
    "phantom",
    "rewritten",
    "started_twice",
    "left_open",
    "epoch",
    "damaged",
]
ALL_RUNS = 1_000_000
ENDED = frozenset({"failed", "cancelled", "killed"})


@dataclass(frozen=True, slots=True)
class Applied:
    """One line of the outside ledger: an effect that was applied.

    `key` is the idempotency key that it came with, empty where the world does not see one; then `args` are what it is
    known by. `attempt` is 0 where the world does not know it, `at` the moment in milliseconds since 1970.
    """

    tool: str
    key: str = ""
    attempt: int = 0
    at: int = 0
    args: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that must never be: the rule it breaks, where, what was seen. `run_id` is empty where no run knows."""

    rule: Rule
    run_id: str
    path: str
    why: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.path or '?'} of run {self.run_id or '?'}: {self.why}"


async def check(
    store: Store, ledger: Iterable[Applied], *, repeats: Collection[str] = (), unseen: Collection[str] = ()
) -> list[Violation]:
    """Compare every run of a store with the outside ledger, and return what must never be: an empty list is the proof.

    Effects of the class `read` may be applied again, and so may those of the tools named in `repeats` (a PUT without a
    precondition, say). The tools named in `unseen` leave no line in this ledger, so that a missing line says nothing
    about them. Raises StoreError where the store cannot be read.
    """
    violations: list[Violation] = []
    every: list[Told] = []
    ended: set[str] = set()
    for row in await store.runs(Query(limit=ALL_RUNS)):
        reading = Reading(row)
        violations.extend(await _read(store, reading))
        every.extend(reading.told)
        if reading.ended:
            ended.add(row.id)
    violations.extend(_match(every, ledger))
    for told in every:
        violations.extend(_judge(told, ended=told.run_id in ended))
        if len(told.lines) > 1 and told.plan.effect != "read" and told.plan.tool not in repeats:
            when = ", ".join(f"by attempt {line.attempt} at {line.at}" for line in told.lines)
            violations.append(told.broke("repeated", f"applied {len(told.lines)} times: {when}"))
        # What another step confirmed under the same identity has its line there.
        if told.outcome == "confirmed" and not told.lines and told.plan.tool not in unseen and told.by != "once":
            violations.append(told.broke("phantom", f"confirmed by {told.by}, and the ledger has no line of it"))
    return violations


@dataclass(slots=True)
class Told:
    """One effect as its journal tells it, with the ledger's lines that belong to it."""

    run_id: str
    plan: e.EffectPlanned
    outcome: str = "not_started"
    final: bool = False
    by: str = ""
    attempts: list[int] = field(default_factory=list)
    contradicted: bool = False
    lines: list[Applied] = field(default_factory=list)

    def broke(self, rule: Rule, why: str) -> Violation:
        """Return a violation at this effect."""
        return Violation(rule, self.run_id, self.plan.path, why)


class Reading:
    """Reads the entries of one run in order."""

    def __init__(self, row: RunRow) -> None:
        self.run_id = row.id
        self.told: list[Told] = []
        self.violations: list[Violation] = []
        self.ended = False
        self._open: dict[str, Told] = {}
        self._epoch = 0

    def read(self, entry: e.Entry) -> None:
        """Take one entry. Raises KeyError for one that speaks of an effect which was never planned."""
        match entry:
            case e.RunCreated() | e.Checkpointed() | e.Rewound() | e.RunDone():
                self.ended = isinstance(entry, e.RunDone)
                self._end_segment()
            case e.RewindAsked():
                self.ended = False
                self._end_segment()
            case e.Claimed(epoch=epoch):
                self._rise(epoch)
            case e.RunStopped():
                self._stopped(entry)
            case e.EffectPlanned():
                self._plan(entry)
            case e.EffectStarted():
                self._started(entry)
            case e.EffectConfirmed(step=step, by=by):
                self._settle(step, "confirmed", by, final=True)
            case e.EffectFailed(step=step, by=by, final=final):
                self._settle(step, "failed", by, final=final)
            case e.EffectUnknown(step=step):
                self._settle(step, "unknown", "", final=False)
            case e.Contradicted():
                self._contradicted(entry)
            case e.SegmentFailed() | e.Retried():
                self.ended = False
                self._leave([step for step, told in self._open.items() if told.outcome == "failed"])
            case _:
                pass  # nothing about an effect's outcome

    def _end_segment(self) -> None:
        for told in self._open.values():
            if told.outcome in {"started", "unknown"}:
                self.violations.append(told.broke("left_open", f"its segment ended while it was {told.outcome}"))
        self._leave(list(self._open))

    def _leave(self, steps: list[str]) -> None:
        """Close these places: the next call there is another effect."""
        for step in steps:
            del self._open[step]

    def _contradicted(self, entry: e.Contradicted) -> None:
        if entry.step:
            self._open[entry.step].contradicted = True
            return
        for told in self.told:  # its segment has ended since, so its place says nothing any more: its path does
            if told.plan.tool == entry.tool and told.plan.path in entry.evidence.split():
                told.contradicted = True

    def _stopped(self, stopped: e.RunStopped) -> None:
        self.ended = stopped.status in ENDED
        if stopped.status != "killed":
            return
        self._rise(stopped.epoch)
        for told in self._open.values():
            told.outcome = "unknown" if told.outcome == "started" else told.outcome

    def _rise(self, epoch: int) -> None:
        if epoch <= self._epoch:
            self.violations.append(Violation("epoch", self.run_id, "", f"epoch {epoch} came after epoch {self._epoch}"))
        self._epoch = epoch

    def _plan(self, plan: e.EffectPlanned) -> Told:
        told = self._open[plan.step] = Told(self.run_id, plan)
        self.told.append(told)
        return told

    def _started(self, entry: e.EffectStarted) -> None:
        told = self._plan(entry.plan) if entry.plan is not None else self._open[entry.step]
        if entry.attempt in told.attempts:
            self.violations.append(told.broke("started_twice", f"attempt {entry.attempt} was started twice"))
        if entry.epoch != self._epoch:
            why = f"attempt {entry.attempt} began under epoch {entry.epoch}, its owner's is {self._epoch}"
            self.violations.append(told.broke("epoch", why))
        if told.final:
            why = f"it was {told.outcome} for good when attempt {entry.attempt} began"
            self.violations.append(told.broke("rewritten", why))
        told.attempts.append(entry.attempt)
        told.outcome = "unknown" if entry.resend else "started"

    def _settle(self, step: str, outcome: str, by: str, *, final: bool) -> None:
        told = self._open[step]
        if told.final and not told.contradicted:
            self.violations.append(told.broke("rewritten", f"it was {told.outcome} for good, and then {outcome}"))
        told.outcome, told.by, told.final = outcome, by, final


async def _read(store: Store, reading: Reading) -> list[Violation]:
    """Read one run whole; what does not verify is read as far as it goes."""
    run_id = reading.run_id
    damage = (await Inspector(store).verify(run_id)).damage
    try:
        _, entries, _ = await store.chain(run_id)
        for stored in entries:
            reading.read(codec.decode(stored.plain))
    except MilepostError as error:
        damage = damage or str(error)
    except KeyError as error:
        damage = damage or f"an entry speaks of {error}, which was never planned"
    broken = [] if damage is None else [Violation("damaged", run_id, "", damage)]
    return [*broken, *reading.violations]


def _match(every: list[Told], ledger: Iterable[Applied]) -> list[Violation]:
    """Give each line to the effect that it belongs to; return the lines that belong to none, or to none that began."""
    by_key = {(told.plan.tool, told.plan.key): told for told in every}
    by_args = {(told.plan.tool, _canonical(told.plan.args)): told for told in every}
    violations = []
    for line in ledger:
        args = None if line.args is None else msgspec.json.encode(line.args, order="deterministic")
        told = by_key.get((line.tool, line.key)) if line.key else by_args.get((line.tool, args or b""))
        if told is None:
            known_by = f"key {line.key}" if line.key else f"arguments {line.args}"
            violations.append(Violation("unrecorded", "", line.tool, f"applied at {line.at} under {known_by}"))
            continue
        told.lines.append(line)
        if not told.attempts or (line.attempt and line.attempt not in told.attempts):
            why = f"applied at {line.at} by attempt {line.attempt or '?'}; started were {told.attempts or 'none'}"
            violations.append(told.broke("not_started", why))
        if args is not None and args != _canonical(told.plan.args):
            why = f"applied with {args.decode()}, recorded were {bytes(told.plan.args).decode()}"
            violations.append(told.broke("altered", why))
    return violations


def _judge(told: Told, *, ended: bool) -> list[Violation]:
    """Compare what was applied with what is said of it."""
    if not told.lines:
        return []
    at = told.lines[0].at
    if told.outcome == "failed" and not told.contradicted and told.plan.effect != "read":
        return [told.broke("failed", f"failed by {told.by}, and it was applied at {at}")]
    if told.outcome == "not_started" or (told.outcome == "started" and ended):
        return [told.broke("lost", f"it was applied at {at}, and its journal says {told.outcome}")]
    return []


def _canonical(args: msgspec.Raw) -> bytes:
    return msgspec.json.encode(msgspec.json.decode(args), order="deterministic")
