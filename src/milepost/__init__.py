"""Milepost runs AI agents so that they can be killed at any instruction and resumed with one consistent result.

The public names, nothing else. Each is loaded when it is first asked for, so that what needs none of them (the command
line's help) does not wait for all of them; a type checker sees plain imports.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from milepost.app import App
    from milepost.core.authority import Authority
    from milepost.core.breaker import Breaker
    from milepost.core.duration import Duration
    from milepost.core.retry import Retry
    from milepost.definitions import http
    from milepost.definitions.call import (
        Call,
        Confirmed,
        Failed,
        Finding,
        Outcome,
        Step,
        Tx,
        conflict,
        did_not_happen,
        happened,
        rejected,
        still_unknown,
    )
    from milepost.definitions.run import AttachedRun, Handle, Run, RunView
    from milepost.definitions.tools import Cost, Effect, Tool, tool
    from milepost.definitions.workflows import Next, Prompt, Segment, Workflow, done, fail, go, prompt, workflow
    from milepost.errors import (
        Damaged,
        Denied,
        Diverged,
        EpochLost,
        IllegalOutcome,
        Incompatible,
        InvalidArguments,
        InvalidDeclaration,
        InvalidValue,
        MalformedEntry,
        MilepostError,
        NeedsPerson,
        NestedStep,
        NewerSchema,
        NoRun,
        NotAStore,
        NotAwaited,
        NotReversible,
        NotSent,
        Parked,
        Rejected,
        RunBlocked,
        RunCancelled,
        RunEnded,
        RunFailed,
        RunHeld,
        RunKilled,
        StartConflict,
        StepFailed,
        StoreBusy,
        StoreError,
        StoreFailed,
        StoreMissing,
        StrayTask,
        TookTooLong,
        UnknownApproval,
        UnknownBoundary,
        UnknownRun,
        UnknownStep,
        UnknownWorkflow,
        UnsafeLibrary,
        Waiting,
        WrongStatus,
    )

__version__ = "0.1.0"

__all__ = [
    "App",
    "AttachedRun",
    "Authority",
    "Breaker",
    "Call",
    "Confirmed",
    "Cost",
    "Damaged",
    "Denied",
    "Diverged",
    "Duration",
    "Effect",
    "EpochLost",
    "Failed",
    "Finding",
    "Handle",
    "IllegalOutcome",
    "Incompatible",
    "InvalidArguments",
    "InvalidDeclaration",
    "InvalidValue",
    "MalformedEntry",
    "MilepostError",
    "NeedsPerson",
    "NestedStep",
    "NewerSchema",
    "Next",
    "NoRun",
    "NotAStore",
    "NotAwaited",
    "NotReversible",
    "NotSent",
    "Outcome",
    "Parked",
    "Prompt",
    "Rejected",
    "Retry",
    "Run",
    "RunBlocked",
    "RunCancelled",
    "RunEnded",
    "RunFailed",
    "RunHeld",
    "RunKilled",
    "RunView",
    "Segment",
    "StartConflict",
    "Step",
    "StepFailed",
    "StoreBusy",
    "StoreError",
    "StoreFailed",
    "StoreMissing",
    "StrayTask",
    "TookTooLong",
    "Tool",
    "Tx",
    "UnknownApproval",
    "UnknownBoundary",
    "UnknownRun",
    "UnknownStep",
    "UnknownWorkflow",
    "UnsafeLibrary",
    "Waiting",
    "Workflow",
    "WrongStatus",
    "conflict",
    "did_not_happen",
    "done",
    "fail",
    "go",
    "happened",
    "http",
    "prompt",
    "rejected",
    "still_unknown",
    "tool",
    "workflow",
]

_HOMES = {
    "milepost.app": "App",
    "milepost.core.authority": "Authority",
    "milepost.core.breaker": "Breaker",
    "milepost.core.duration": "Duration",
    "milepost.core.retry": "Retry",
    "milepost.definitions.call": (
        "Call Confirmed Failed Finding Outcome Step Tx conflict did_not_happen happened rejected still_unknown"
    ),
    "milepost.definitions.run": "AttachedRun Handle Run RunView",
    "milepost.definitions.tools": "Cost Effect Tool tool",
    "milepost.definitions.workflows": "Next Prompt Segment Workflow done fail go prompt workflow",
    "milepost.errors": (
        "Damaged Denied Diverged EpochLost IllegalOutcome Incompatible InvalidArguments InvalidDeclaration "
        "InvalidValue MalformedEntry MilepostError NeedsPerson NestedStep NewerSchema NoRun NotAStore "
        "NotAwaited NotReversible NotSent Parked Rejected RunBlocked RunCancelled RunEnded RunFailed RunHeld "
        "RunKilled StartConflict StepFailed StoreBusy StoreError StoreFailed StoreMissing StrayTask "
        "TookTooLong UnknownApproval UnknownBoundary UnknownRun UnknownStep UnknownWorkflow UnsafeLibrary "
        "Waiting WrongStatus"
    ),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}

if not TYPE_CHECKING:  # where a checker sees it, every misspelt name would pass

    def __getattr__(name: str) -> Any:
        if name == "http":
            return import_module("milepost.definitions.http")
        if name not in _HOME:
            msg = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(msg)
        value = globals()[name] = getattr(import_module(_HOME[name]), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
