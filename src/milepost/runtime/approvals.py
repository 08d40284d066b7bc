"""Approvals at the edge: whether one is needed, whether the one that stands is good, and what a person is asked.

What is approved is one call as it would be made now. So the request is looked for by all that it is bound to: where the
policy, the tool's version or the arguments are others, or its time has run out, nothing stands there, and a person is
asked anew under another id. What stood there before is closed in the same append; where an effect starts that needs no
approval any more, in the transaction of its `started`.

With a trust file, an answer counts only with the signature of an operator who may approve. It is looked at twice: when
the answer arrives, and, from the record, when the approval is about to be used. What this process could write by itself
therefore permits nothing, neither does what another one wrote, nor a key that was revoked in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from milepost.core import answers
from milepost.core import entries as e
from milepost.core import messages as m
from milepost.core.approval import Approval, Binding, approval_id
from milepost.core.approval_entries import ApprovalClosed
from milepost.core.duration import to_ms
from milepost.core.steps import Effect
from milepost.errors import Waiting
from milepost.runtime import ruling

if TYPE_CHECKING:
    from milepost.core.state import RunState
    from milepost.runtime.branch import ToolStep
    from milepost.runtime.session import Session


class Operators(Protocol):
    """Whose signatures count."""

    def refused(self, name: str, statement: bytes, signature: str, now: int) -> tuple[str, str] | None:
        """Return why a signature is not accepted, as a stable word and a sentence; None where it is."""


def waiting_for(session: Session, step: ToolStep, effect: Effect | None) -> Waiting | None:
    """Return what a step waits for that needs an approval it does not have; None where it may go on.

    Sets what its next attempt consumes, or what a person is to be asked first.
    """
    step.approval = step.asking = None
    tool, verdict = step.tool, step.verdict
    asked = verdict.answer == "ask"
    asks = asked or (tool.approval is not False and tool.needs_approval(step.bound))
    if not asks or (effect is not None and effect.approval is not None):
        return None
    now, binding = session.engine.clock.now(), binding_of(step)
    found = _standing(session, binding, now)
    if found is not None and found.verdict == "approved":
        step.approval = found.id
        return None
    if found is not None:
        id_, expires_at = found.id, found.expires_at
    else:
        step.asking = _question(session, step, binding, now)
        id_, expires_at = step.asking.id, step.asking.expires_at
    by = f" {ruling.BY_RULE}{verdict.rule!r})" if asked else ""
    until = None if expires_at is None else session.engine.moment(expires_at)
    return Waiting("approval", until, f"milepost approve {id_}, or milepost deny {id_} --why …{by}")


def binding_of(step: ToolStep) -> Binding:
    """Return what an approval of this call is bound to now."""
    tool = step.tool
    return Binding(step.id, tool.name, tool.version, tool.effect, step.bound.digest, step.verdict.policy)


def _standing(session: Session, call: Binding, now: int) -> Approval | None:
    """Return the approval of exactly this call, asked or given, that may still be answered or used."""
    for approval in session.state.approvals.of(call.step):
        if approval.stands(call, now) and (approval.verdict == "asked" or _distrust(session, approval) is None):
            return approval
    return None


def _question(session: Session, step: ToolStep, binding: Binding, now: int) -> e.ApprovalAsked:
    state, verdict = session.state, step.verdict
    asked = verdict.answer == "ask"
    ttl = verdict.expires_ms if asked and verdict.expires_ms is not None else session.engine.approval_ttl_ms
    requester = session.about.authority.principal
    place = f"{state.generation}/{len(state.approvals.of(step.id))}"
    return e.ApprovalAsked(
        at=now,
        step=step.id,
        id=approval_id(session.run_id, state.visit, place, binding, requester, now + ttl),
        tool_version=binding.version,
        digest=binding.digest,
        rule=verdict.rule if asked else "",
        policy=binding.policy,
        tool=binding.tool,
        effect=binding.effect,
        expires_at=now + ttl,
        requester=requester,
        why=verdict.why if asked else "",
    )


def stale(session: Session, step: ToolStep, keep: str | None) -> Sequence[e.Entry]:
    """Return the entries that close what was asked or given for a step, all but the one to `keep`."""
    closed: list[e.Entry] = []
    for approval in session.state.approvals.of(step.id):
        if approval.open and approval.id != keep:
            now = session.engine.clock.now()
            standing, why = _why_closed(session, step, approval, now)
            closed.append(ApprovalClosed(at=now, id=approval.id, standing=standing, why=why))
    return closed


def _why_closed(session: Session, step: ToolStep, approval: Approval, now: int) -> tuple[str, str]:
    if approval.expired(now):
        return "expired", "its time ran out"
    was, is_ = approval.binding, binding_of(step)
    changed = [
        f"{what} is {new or 'none'}, and was {old or 'none'}"
        for what, old, new in (
            ("the policy", was.policy, is_.policy),
            ("the tool's version", was.version, is_.version),
            ("the digest of the arguments", was.digest[:12], is_.digest[:12]),
            ("the tool's class", was.effect, is_.effect),
        )
        if old != new
    ]
    if changed:
        return "superseded", "; ".join(changed)
    distrust = _distrust(session, approval) if approval.verdict == "approved" else None
    return "superseded", "it is not asked for any more" if distrust is None else distrust[1]


def before_use(state: RunState, step: str) -> Callable[[], None]:
    """Return what gives the approvals of a step back what they were, for when a `started` is refused."""
    own = state.approvals.of(step)
    if not own:
        return _nothing
    were = [(approval, approval.verdict) for approval in own]

    def give_back() -> None:
        for approval, verdict in were:
            approval.verdict = verdict

    return give_back


def _nothing() -> None:
    """Give nothing back."""


def lapses(waits: Mapping[str, Waiting]) -> Iterator[tuple[str, int]]:
    """Yield when each request that is waited for runs out, by step: then a person is asked anew."""
    for step, waiting in waits.items():
        if waiting.reason == "approval" and waiting.until is not None:
            yield step, to_ms(waiting.until)


# ---------------------------------------------------------------- signatures


def note_use(session: Session, step: ToolStep, start: asyncio.Future[object]) -> None:
    """Note the start that uses an approval, until it is known to be written or refused."""
    if step.approval is not None:
        session.starting[step.id] = start


async def decided(session: Session, message: m.AnyMessage) -> None:
    """Wait until it is known whether the approval that an answer speaks of is used: its start is being written.

    In memory it is used already. Where the start is refused it is given back, and a *no* must not have been too late.
    """
    found = session.state.approvals.get(message.approval) if isinstance(message, m.Answer) else None
    while found is not None and (start := session.starting.get(found.step)) is not None and not start.done():
        await asyncio.wait([start])


def unfit(session: Session, message: m.AnyMessage) -> list[e.Entry]:
    """Return the refusal of an answer that could be taken, and is not signed by anybody who may give it."""
    operators, now = session.engine.operators, session.engine.clock.now()
    if operators is None or not isinstance(message, m.Answer):
        return []
    if answers.refusal(session.state, message, now) is not None:
        return []  # it is refused anyway, and for a better reason
    approval = session.state.approvals[message.approval]
    statement = approval.statement(
        session.engine.store.id,
        session.run_id,
        approved=message.approved,
        by=message.by,
        why=message.why,
        at=message.at,
    )
    refused = operators.refused(message.by, statement, message.signature, now)
    return [] if refused is None else [answers.refused(message, now, *refused)]


def _distrust(session: Session, approval: Approval) -> tuple[str, str] | None:
    """Return why a recorded approval is not believed."""
    operators = session.engine.operators
    if operators is None:
        return None
    said = approval.said(session.engine.store.id, session.run_id)
    return operators.refused(approval.by, said, approval.signature, session.engine.clock.now())
