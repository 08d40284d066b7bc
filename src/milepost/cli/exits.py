"""Exit codes: what each means, and which error of the tree ends a command with which code."""

from __future__ import annotations

import click

from milepost import errors
from milepost.errors import MilepostError

OK = 0
FOUND_DAMAGE = 1
USAGE = 2
NOT_FOUND = 3
STORE = 4
REFUSED = 5
NO_RESULT = 6
STILL_GOING = 7
DEFECT = 70
INTERRUPTED = 130

MEANINGS = {
    OK: "done",
    FOUND_DAMAGE: "damage found, or a check failed (verify, doctor, check)",
    USAGE: "the command line, a value or the App is wrong",
    NOT_FOUND: "no such run, step, boundary, approval or workflow, or several fit",
    STORE: "the store is missing, no store, newer, busy or failed",
    REFUSED: "refused as things stand, or only a person can go on",
    NO_RESULT: "the awaited run failed, was cancelled, killed or blocked",
    STILL_GOING: "the wait ended first; the run goes on",
    DEFECT: "a defect in Milepost: please report it",
    INTERRUPTED: "interrupted",
}

# The first class that fits decides: what stands above a line is more exact than what stands below it.
_BY_CLASS: tuple[tuple[type[BaseException], int], ...] = (
    (errors.Damaged, FOUND_DAMAGE),
    (errors.MalformedEntry, FOUND_DAMAGE),
    (errors.IllegalOutcome, FOUND_DAMAGE),
    (errors.StoreError, STORE),
    (errors.UnknownRun, NOT_FOUND),
    (errors.UnknownStep, NOT_FOUND),
    (errors.UnknownApproval, NOT_FOUND),
    (errors.UnknownWorkflow, NOT_FOUND),
    (errors.UnknownBoundary, NOT_FOUND),
    (errors.NothingStopped, NOT_FOUND),
    (errors.WrongStatus, REFUSED),
    (errors.Refused, REFUSED),
    (errors.Stopped, REFUSED),
    (errors.StartConflict, REFUSED),
    (errors.NotReversible, REFUSED),
    (errors.NeedsPerson, REFUSED),
    (errors.Parked, REFUSED),
    (errors.RunHeld, REFUSED),
    (errors.Incompatible, REFUSED),
    (errors.EpochLost, REFUSED),
    (errors.RunEnded, NO_RESULT),
    (errors.TookTooLong, STILL_GOING),
    (MilepostError, USAGE),
    (click.ClickException, USAGE),
    (click.Abort, INTERRUPTED),
    (KeyboardInterrupt, INTERRUPTED),
    (OSError, STORE),
)


def code_of(error: BaseException) -> int:
    """Return the exit code that an error ends a command with."""
    return next((code for kind, code in _BY_CLASS if isinstance(error, kind)), DEFECT)


def table() -> str:
    """Return the codes and their meanings, one a line."""
    return "\n".join(f"{code:>5}  {meaning}" for code, meaning in MEANINGS.items())
