"""Short ways to say what happened to a run: entries with every field that a test does not care about filled in."""

from decimal import Decimal
from typing import Any

import msgspec

from milepost.core import entries as e
from milepost.core.state import RunState, fold

RUN = "run-1"
STEP = ":0"
PATH = "pay/charge#1"
NULL = msgspec.Raw(b"null")


def boundary(**changes: Any) -> e.Boundary:
    """Return a boundary at which segment `pay` is to be entered."""
    facts: dict[str, Any] = {
        "about": "a" * 64, "manifest": "m" * 64, "visit": 0, "segment": "pay", "state": msgspec.Raw(b"7"),
    }  # fmt: skip
    return e.Boundary(**{**facts, **changes})


def created(at: int = 0, **changes: Any) -> e.RunCreated:
    return e.RunCreated(at=at, run=RUN, boundary=boundary(**changes))


def claimed(at: int = 1, epoch: int = 1, owner: str = "worker-1") -> e.Claimed:
    return e.Claimed(at=at, epoch=epoch, owner=owner)


def planned(
    at: int = 10, step: str = STEP, effect: str = "keyed", path: str = PATH, once: str | None = None
) -> e.EffectPlanned:
    return e.EffectPlanned(
        at=at, step=step, path=path, tool="charge", version="1", effect=effect, digest="d1", args=msgspec.Raw(b"{}"),
        key="k1", once=once,
    )  # fmt: skip


def started(at: int = 10, attempt: int = 1, step: str = STEP, effect: str = "keyed", **changes: Any) -> e.EffectStarted:
    """Return the start of an attempt; the first one brings the plan, a later one is a retry, or a resend if so said."""
    facts: dict[str, Any] = {"epoch": 1, "deadline": at + 1_000}
    if attempt == 1:
        facts["plan"] = planned(at, step, effect, path=PATH if step == STEP else f"pay/charge{step}")
    return e.EffectStarted(at=at, step=step, attempt=attempt, **{**facts, **changes})


def confirmed(at: int = 20, attempt: int = 1, step: str = STEP, **changes: Any) -> e.EffectConfirmed:
    return e.EffectConfirmed(at=at, step=step, attempt=attempt, **{"result": msgspec.Raw(b'"ok"'), **changes})


def failed(
    at: int = 20, attempt: int = 1, step: str = STEP, reason: str = "not_sent", **changes: Any
) -> e.EffectFailed:
    facts: dict[str, Any] = {"why": "no route", "final": False, "retry_at": at + 100}
    return e.EffectFailed(at=at, step=step, attempt=attempt, reason=reason, **{**facts, **changes})


def lost(
    at: int = 20, attempt: int = 1, step: str = STEP, *, quiet_at: int | None = None, died: bool = False
) -> e.EffectUnknown:
    return e.EffectUnknown(at=at, step=step, attempt=attempt, why="no answer", quiet_at=quiet_at, died=died)


def found(at: int, answer: str, step: str = STEP, **changes: Any) -> e.FindingRecorded:
    return e.FindingRecorded(at=at, step=step, answer=answer, **changes)


def absent(at: int = 50) -> list[e.Entry]:
    """Return how an attempt that was lost at 20 was proven absent."""
    return [
        found(30, "did_not_happen"),
        found(at, "did_not_happen"),
        failed(at, reason="absent", retry_at=at, by="finding"),
    ]


def usd(amount: int | str) -> dict[str, Decimal]:
    return {"usd": Decimal(amount)}


def run(*entries: e.Entry, **at_start: Any) -> RunState:
    """Return the state of a run that was created, claimed by worker-1, and then saw these entries."""
    return fold(RUN, [created(**at_start), claimed(), *entries])


def effect(state: RunState, step: str = STEP) -> Any:
    """Return the record of a step."""
    return state.steps[step]
