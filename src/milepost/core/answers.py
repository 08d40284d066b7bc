"""What an answer to an approval becomes. Whatever it says, it is written down: as an answer, or as why it is none.

A *yes* counts for what is asked now, within its time, for the arguments that were shown, and from somebody else than
who asked. A *no* counts wherever nothing has started yet: also to an approval that was given and not used (it is taken
back), and also after its time. Whether a signature is needed, and good, is looked at by whoever has the trust file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from milepost.core import approval as a
from milepost.core import entries as e
from milepost.core.steps import Effect

if TYPE_CHECKING:
    from milepost.core.messages import Answer
    from milepost.core.state import RunState

_CLOSED = {
    "used": (a.REPLAYED, "was used already"),
    "denied": (a.REPLAYED, "was denied already"),
    "superseded": (a.SUPERSEDED, "is superseded: other arguments, code or rules stand there now"),
    "expired": (a.EXPIRED, "expired"),
}


def refusal(state: RunState, message: Answer, now: int) -> tuple[str, str] | None:
    """Return why an answer does not count, as a stable word and a sentence; None where it may."""
    found = state.approvals.get(message.approval)
    name = f"approval {message.approval}"
    if found is None:
        return a.NOT_ASKED, f"{name} is not asked here"
    if found.verdict in _CLOSED:
        code, why = _CLOSED[found.verdict]
        return code, f"{name} {why}"
    if message.digest and message.digest != found.digest:
        shown = f"{message.digest[:12]}, and it is asked for {found.digest[:12]}"
        return a.WRONG_DIGEST, f"{name} was shown with arguments of digest {shown}"
    if not message.approved:
        return None
    if found.verdict == "approved":
        return a.REPLAYED, f"{name} is approved already"
    if found.expired(now):
        return a.EXPIRED, f"{name} expired"
    if a.same_person(message.by, found.requester):
        return a.SELF_APPROVAL, f"{name} was asked for {found.requester!r}, who may not approve it"
    return None


def refused(message: Answer, now: int, code: str, why: str) -> e.MessageRefused:
    """Return the entry of an answer that does not count."""
    return e.MessageRefused(at=now, kind="answer", why=why, by=message.by, code=code, about=message.approval)


def journal(state: RunState, message: Answer, now: int) -> list[e.Entry]:
    """Return the entries that an answer becomes."""
    against = refusal(state, message, now)
    if against is not None:
        return [refused(message, now, *against)]
    approval = state.approvals[message.approval]
    answered = e.ApprovalAnswered(
        at=now,
        id=message.approval,
        approved=message.approved,
        by=message.by,
        why=message.why,
        said_at=message.at,
        signature=message.signature,
    )
    if message.approved:
        return [answered]
    effect = state.steps.get(approval.step)
    if type(effect) is not Effect or effect.outcome != "not_started":
        return [answered]  # it waits no more: its time ended, or it was given up
    why = f"denied by {message.by}: {message.why}"
    failed = e.EffectFailed(
        at=now, step=approval.step, attempt=0, why=why, reason="denied", final=True, by=f"person {message.by}"
    )
    return [answered, failed]
