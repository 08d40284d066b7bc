"""Every error Milepost raises, in one tree.

Each class has a stable `code` (safe to match on and to alert on), the facts as attributes, and a message that ends with
the next step. This module imports nothing of ours, so that every floor may raise from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta

Reason = Literal["time", "signal", "child", "approval", "authority", "budget", "breaker", "switch", "unknown", "person"]


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a run, or one call of it, waits for.

    `until` is when it looks again by itself (None: only an event helps); `ask` says what a person may type.
    """

    reason: Reason
    until: datetime | None = None
    ask: str = ""


class MilepostError(Exception):
    """The root of the tree. `code` is a stable slug."""

    code = "error"


# ---------------------------------------------------------------- what a tool may raise to say what it knows


class NotSent(MilepostError):
    """Nothing left this machine: the attempt failed and may be tried again, after `retry_after` at the earliest."""

    code = "not_sent"

    def __init__(self, why: str, *, retry_after: str | timedelta | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.retry_after = retry_after


class Rejected(MilepostError):
    """The outside system refused before acting: the effect failed, and for good."""

    code = "rejected"

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


# ---------------------------------------------------------------- what a segment may see


class StepFailed(MilepostError):
    """A step failed; recorded, and raised identically whenever the segment is re-entered."""

    code = "step_failed"

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path
        self.why = why


class Denied(StepFailed):
    """A person denied the approval that this effect asked for, or a rule of the policy denies it."""

    code = "denied"


class InvalidArguments(MilepostError):
    """Arguments do not fit a tool's parameters. Nothing was recorded."""

    code = "invalid_arguments"

    def __init__(self, tool: str, why: str) -> None:
        super().__init__(f"{tool}: {why}")
        self.tool = tool
        self.why = why

    def for_model(self) -> str:
        """Return the text to hand back to the model that made the arguments."""
        return (
            f"The arguments for {self.tool} are not valid: {self.why}. Nothing was done. Correct them and call again."
        )


class InvalidValue(MilepostError):
    """A value cannot be stored and read back as the type that was declared for it."""

    code = "invalid_value"

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what}: {why}. Declare a type that can hold it, or convert it before it is handed over.")
        self.what = what
        self.why = why


# ---------------------------------------------------------------- programming mistakes, each naming the mend


class NoRun(MilepostError):
    """A tool was called outside a run."""

    code = "no_run"

    def __init__(self, tool: str) -> None:
        super().__init__(
            f"{tool} was called outside a run, where nothing would be recorded. Call {tool}.direct(…) instead."
        )
        self.tool = tool


class NestedStep(MilepostError):
    """A tool was called inside a tool."""

    code = "nested_step"

    def __init__(self, tool: str, inside: str) -> None:
        super().__init__(
            f"{tool} was called inside {inside}. A tool is one recorded act: call {tool} from the segment, "
            f"or use {tool}.direct(…) to make it part of {inside}."
        )
        self.tool = tool
        self.inside = inside


class StrayTask(MilepostError):
    """A recorded call was made in an asyncio task that is no branch of the run."""

    code = "stray_task"

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} was called in an asyncio task that is no branch of the run, so its place in the record depends "
            "on timing. Use run.gather(…) or run.map(…); for a time limit use 'async with asyncio.timeout(…)', because "
            "asyncio.wait_for makes a task of its own before Python 3.12."
        )
        self.what = what


class NotAwaited(MilepostError):
    """A segment ended although it had made calls that it never awaited."""

    code = "not_awaited"

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__(f"called but never awaited: {', '.join(paths)}. Nothing was sent. Add the missing 'await'.")
        self.paths = tuple(paths)


class InvalidDeclaration(MilepostError):
    """A tool, a workflow or an app is declared in a way that cannot be honoured."""

    code = "invalid_declaration"


# ---------------------------------------------------------------- what a caller may see


class StartConflict(MilepostError):
    """The key was used before, with other input or another workflow."""

    code = "start_conflict"

    def __init__(self, key: str, run_id: str, why: str) -> None:
        super().__init__(f"key {key!r} already names run {run_id}, {why}. Use another key, or the same input.")
        self.key = key
        self.run_id = run_id


class Diverged(MilepostError):
    """The code asks for something else than what is recorded at the same place."""

    code = "diverged"

    def __init__(self, path: str, recorded: str, asked: str) -> None:
        super().__init__(
            f"at {path} the record says {recorded}, the code now asks for {asked}. Nothing was sent. Deploy the code "
            "that made the record, or see docs/living-with-code-changes.md."
        )
        self.path = path
        self.recorded = recorded
        self.asked = asked


class EpochLost(MilepostError):
    """Another process claimed or killed the run; this one may no longer write to it."""

    code = "epoch_lost"

    def __init__(self, run_id: str, held: int) -> None:
        super().__init__(f"run {run_id} is no longer held under epoch {held}: it was claimed or killed elsewhere")
        self.run_id = run_id
        self.held = held


class RunHeld(MilepostError):
    """Another living process holds the run."""

    code = "run_held"

    def __init__(self, run_id: str, owner: str) -> None:
        super().__init__(f"run {run_id} is held by {owner}, which is alive. Wait for it, or stop that process.")
        self.run_id = run_id
        self.owner = owner


class Parked(MilepostError):
    """An attached run's call must wait; see `waiting`."""

    code = "parked"

    def __init__(self, run_id: str, waiting: Waiting) -> None:
        super().__init__(f"run {run_id} waits for {waiting.reason}. {waiting.ask}".rstrip())
        self.run_id = run_id
        self.waiting = waiting


class NeedsPerson(MilepostError):
    """Only a person can move the run; the message holds the commands to type."""

    code = "needs_person"

    def __init__(self, run_id: str, waiting: Waiting) -> None:
        super().__init__(f"run {run_id} waits for {waiting.reason} and needs a person. {waiting.ask}".rstrip())
        self.run_id = run_id
        self.waiting = waiting


class RunEnded(MilepostError):
    """The run ended without a result; `status` says how and `why` says for what reason."""

    code = "run_ended"

    def __init__(self, run_id: str, status: str, why: str) -> None:
        super().__init__(f"run {run_id} {status}: {why}")
        self.run_id = run_id
        self.status = status
        self.why = why


class RunFailed(RunEnded):
    """The run failed. `milepost retry RUN` re-enters the failed segment and keeps its finished steps."""

    code = "run_failed"


class RunCancelled(RunEnded):
    """The run was cancelled."""

    code = "run_cancelled"


class RunKilled(RunEnded):
    """The run was killed."""

    code = "run_killed"


class RunBlocked(RunEnded):
    """The run is blocked: nothing automatic moves it. `reason` is the stable code of the block."""

    code = "run_blocked"

    def __init__(self, run_id: str, reason: str, why: str) -> None:
        super().__init__(run_id, "is blocked", f"{reason}: {why}")
        self.reason = reason


class Incompatible(MilepostError):
    """Today's code may not go on with the run; `differences` say what must be declared, migrated or put back."""

    code = "incompatible"

    def __init__(self, run_id: str, differences: Sequence[str]) -> None:
        super().__init__(
            f"run {run_id} stays blocked: {'; '.join(differences)}. Compare both sides with: milepost show {run_id}"
        )
        self.run_id = run_id
        self.differences = tuple(differences)


class TookTooLong(MilepostError):
    """The caller's own patience ended; the run goes on."""

    code = "took_too_long"

    def __init__(self, run_id: str, status: str) -> None:
        super().__init__(f"run {run_id} is still {status}; only the waiting ended. Look with: milepost show {run_id}")
        self.run_id = run_id
        self.status = status


class UnknownRun(MilepostError):
    """No run has this id, or several begin with it."""

    code = "unknown_run"

    def __init__(self, asked: str, matches: Sequence[str] = ()) -> None:
        found = f"{asked!r} fits several runs: {', '.join(matches)}" if matches else f"no run {asked!r} in this store"
        super().__init__(f"{found}. List them with: milepost runs")
        self.asked = asked
        self.matches = tuple(matches)


class UnknownStep(MilepostError):
    """The run has no step that fits, or the step is not in the state that the verb needs."""

    code = "unknown_step"

    def __init__(self, run_id: str, path: str, why: str) -> None:
        super().__init__(f"{path} of run {run_id}: {why}. List them with: milepost effects {run_id}")
        self.run_id = run_id
        self.path = path
        self.why = why


class UnknownBoundary(MilepostError):
    """The run has no boundary of this name or number."""

    code = "unknown_boundary"

    def __init__(self, run_id: str, asked: str, known: Sequence[str]) -> None:
        super().__init__(f"run {run_id} has no boundary {asked!r}; it has {', '.join(known)}, the oldest first")
        self.run_id = run_id
        self.asked = asked
        self.known = tuple(known)


class NotReversible(MilepostError):
    """A run cannot go back to a boundary, or be forked there; `reasons` says why. Nothing was done."""

    code = "not_reversible"

    def __init__(self, run_id: str, boundary: str, reasons: Sequence[str]) -> None:
        super().__init__(f"run {run_id} cannot go on from boundary {boundary}, nothing was done: {'; '.join(reasons)}")
        self.run_id = run_id
        self.boundary = boundary
        self.reasons = tuple(reasons)


class UnknownApproval(MilepostError):
    """No approval with this id is waiting."""

    code = "unknown_approval"

    def __init__(self, asked: str, why: str) -> None:
        super().__init__(f"approval {asked}: {why}. See what waits with: milepost approvals")
        self.asked = asked


class UnknownWorkflow(MilepostError):
    """The app does not register the workflow that a run needs."""

    code = "unknown_workflow"

    def __init__(self, name: str) -> None:
        super().__init__(f"no workflow {name!r} is registered with this app. Add it to App(workflows=[…]).")
        self.name = name


class WrongStatus(MilepostError):
    """The verb does not apply to a run in this status."""

    code = "wrong_status"

    def __init__(self, run_id: str, status: str, needs: str) -> None:
        super().__init__(
            f"run {run_id} is {status}; this needs a run that is {needs}. Look with: milepost show {run_id}"
        )
        self.run_id = run_id
        self.status = status


class Refused(MilepostError):
    """What a person asked for is refused as things stand. Nothing was changed."""

    code = "refused"


class ExtraMissing(MilepostError):
    """This needs a package that is not installed, because its extra was not asked for."""

    code = "extra_missing"

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} need the extra {extra!r}. Install it: pip install 'milepost[{extra}]'")
        self.extra = extra


class UnknownScope(MilepostError):
    """What is to be stopped is no scope."""

    code = "unknown_scope"

    def __init__(self, scope: str) -> None:
        super().__init__(f"{scope!r} is no scope. Write all, tool:NAME, workflow:NAME or tenant:NAME.")
        self.scope = scope


class NothingStopped(MilepostError):
    """Nothing that can be thawed stands on the scope."""

    code = "nothing_stopped"

    def __init__(self, scope: str) -> None:
        super().__init__(f"{scope} is neither frozen nor held by its breaker. See what is, with: milepost switches")
        self.scope = scope


class Stopped(MilepostError):
    """A stop file stands beside the store: nothing starts until it is lifted."""

    code = "stopped"

    def __init__(self, place: str, by: str, why: str) -> None:
        super().__init__(f"{place} was stopped by {by}: {why}. Lift it with: milepost stop --lift --why …")
        self.place = place
        self.by = by
        self.why = why


# ---------------------------------------------------------------- the store and the record


class StoreError(MilepostError):
    """The store cannot be used as it is."""

    code = "store_error"


class StoreMissing(StoreError):
    """There is no store at this place."""

    code = "store_missing"

    def __init__(self, place: str) -> None:
        super().__init__(f"there is no store at {place}. Create it with: milepost init --store {place}")
        self.place = place


class NotAStore(StoreError):
    """The file is something else, or it is damaged beyond opening."""

    code = "not_a_store"

    def __init__(self, place: str, why: str) -> None:
        super().__init__(f"{place} is not a Milepost store: {why}. Nothing was changed. Check the path.")
        self.place = place


class NewerSchema(StoreError):
    """The store, or an entry in it, was written by a newer version of Milepost."""

    code = "newer_schema"

    def __init__(self, what: str, found: int, known: int) -> None:
        super().__init__(
            f"{what} has schema {found}, this version knows up to {known}. Upgrade Milepost here; nothing was changed."
        )
        self.found = found
        self.known = known


class UnsafeLibrary(StoreError):
    """The SQLite library has the write-ahead-log reset bug (3.7.0 to 3.51.2)."""

    code = "unsafe_library"

    def __init__(self, version: str) -> None:
        super().__init__(
            f"SQLite {version} can corrupt a write-ahead log. Install apsw 3.54 or later, which brings its own library."
        )
        self.version = version


class StoreBusy(StoreError):
    """Another process held the write lock for too long. Nothing was written."""

    code = "store_busy"

    def __init__(self, place: str) -> None:
        super().__init__(
            f"{place} stayed locked by another process. Nothing was written; try again, or look with: milepost doctor"
        )
        self.place = place


class StoreFailed(StoreError):
    """A commit raised, so it is not known whether it was written: this process stops writing and must reopen."""

    code = "store_failed"

    def __init__(self, why: str) -> None:
        super().__init__(
            f"a commit failed ({why}), so what it held is unknown. Mend the disk, then start the process again."
        )
        self.why = why


class Damaged(StoreError):
    """The record of a run does not verify; nothing is sent on its word."""

    code = "damaged"

    def __init__(self, run_id: str, why: str, *, seq: int | None = None) -> None:
        where = f" at entry {seq}" if seq is not None else ""
        super().__init__(
            f"the record of run {run_id} does not verify{where}: {why}. Nothing was sent. Keep the file, restore a "
            "backup, and compare with: milepost verify"
        )
        self.run_id = run_id
        self.why = why
        self.seq = seq


class IllegalOutcome(MilepostError):
    """An outcome may not change in this way; see the table in milepost.core.outcome."""

    code = "illegal_outcome"

    def __init__(self, outcome: str, event: str) -> None:
        super().__init__(f"an effect that is {outcome} cannot {event}. This is a defect in Milepost: please report it.")
        self.outcome = outcome
        self.event = event


class MalformedEntry(MilepostError):
    """Stored bytes are no entry that this version can read."""

    code = "malformed_entry"

    def __init__(self, why: str) -> None:
        super().__init__(f"stored bytes are not a valid entry: {why}")
        self.why = why
