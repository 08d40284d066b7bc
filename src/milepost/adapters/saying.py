"""What a model, and a person, is told of a call that waits or did not happen.

A model acts on words. Told that something failed, it calls again; so an outcome that nobody knows is never put into the
words of a failure. It is told what is known, who settles what is not, and that calling again is not its part. Of what
certainly did not happen it is told just that.

    confirmed   the tool's own result; nothing is said here
    failed      it certainly did not happen, and why
    unknown     it may have happened; it is being found out, or a person does that; do not repeat it
    waiting     it has not begun; it begins by itself once what it waits for is there; do not repeat it

The host, in contrast, repeats the call's id as often as it likes: that is how it hears of the outcome.
"""

from __future__ import annotations

from datetime import datetime

from milepost.definitions.call import Failed
from milepost.errors import Reason, Waiting

_STAYS = "Do not make this call again, also not in other words: it is kept, and its result follows once there is one."
_WAITS: dict[Reason, str] = {
    "approval": "a person has to approve it first",
    "authority": "it needs a permission that has not been granted yet",
    "budget": "it needs more budget than is left",
    "breaker": "its provider is not answering at the moment, and calls to it are held back",
    "switch": "an operator has put calls like this one on hold",
    "person": "a person has to look at it first",
    "time": "its time has not come yet",
    "signal": "something it depends on has not arrived yet",
    "child": "something it depends on has not ended yet",
}


def to_model(outcome: Waiting | Failed, tool: str) -> str:
    """Return what a model is told of a call of `tool` that has no result. It never invites to repeat an unknown one."""
    if isinstance(outcome, Failed):
        return f"{tool} certainly did not happen, nothing was done: {outcome.why}"
    if outcome.reason == "unknown":
        return (
            f"The outcome of {tool} is not known yet: it may have happened. {_settles(outcome)} {_STAYS} "
            "Treat it neither as done nor as not done."
        )
    return f"{tool} has not been done yet: {_WAITS[outcome.reason]}. {_STAYS}"


def to_person(run_id: str, waiting: Waiting) -> str:
    """Return what a run waits for, in a line, and what a person may type, in the next one where there is something."""
    if waiting.reason == "unknown":
        what = "it is not known whether a call happened"
    else:
        what = f"a call waits: {_WAITS[waiting.reason]}"
    when = "" if waiting.until is None else f"; it looks again by itself at {_moment(waiting.until)}"
    asks = f"\n{waiting.ask}" if waiting.ask else f"\nmilepost show {run_id}"
    return f"run {run_id}: {what}{when}.{asks}"


def _settles(waiting: Waiting) -> str:
    if waiting.ask:
        return "A person is finding out what came of it."
    return "What came of it is being found out."


def _moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
