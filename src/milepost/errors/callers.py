"""What a caller may see: how a run ended, what is not there, what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milepost.errors.tree import MilepostError, Waiting

if TYPE_CHECKING:
    from collections.abc import Sequence


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
