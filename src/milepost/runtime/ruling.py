"""What today's policy says of a call, asked at the edge: before each attempt, each resend, and each try of a free read.

  allow             the call may go on; rule and policy stand in its `started`
  ask               a person is asked, as where the tool itself wants an approval; a free read that needs one is
                    recorded as an effect, so that the question and the answer have their place in the record
  deny              recorded as failed, final, by the rule; the segment sees Denied
  deny, by default  the step waits, and says what to type: no rule allows it, a rule cannot be answered, or the file is
                    unfit

A resend is never *failed* by a policy: what it is about may have happened. It is held back, whatever the answer is, and
lets itself be resolved by a person meanwhile. Outcomes that are settled stay as they are.

Where no policy is configured, everything is allowed here: scopes, `approval=` and budgets decide alone.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from milepost.core import entries as e
from milepost.core import messages
from milepost.core.outcome import key_valid_until
from milepost.core.policy import Request, Verdict
from milepost.core.provenance import heard
from milepost.definitions.rules import InvalidPolicy, in_force
from milepost.errors import Waiting
from milepost.stores.api import Deliver, Post, Query

if TYPE_CHECKING:
    from milepost.core.budget import Amounts
    from milepost.core.steps import Effect
    from milepost.definitions.arguments import Bound
    from milepost.definitions.rules import PolicyFile
    from milepost.definitions.tools import Tool
    from milepost.runtime.engine import Engine
    from milepost.runtime.session import Session

log = logging.getLogger("milepost")
NO_POLICY = Verdict("allow")
CHECK = "milepost policy check"
BY_RULE = "(policy rule "
RECHECK_MS = 600_000  # where nothing tells that a run waits for the policy: an attached run has no such status


class WorstCase(msgspec.Struct, gc=False):  # as _Plain a struct: each call makes one, and that runs no Python
    """What a call costs at worst, worked out once for one look at the gate: the policy and the budget see the same."""

    _tool: Tool[..., Any]
    _bound: Bound
    _found: Amounts | None = None

    def amounts(self) -> Amounts:
        """Return it per unit, {} for a call that is free. Raises InvalidValue for what is no amount."""
        found = self._found
        if found is None:
            found = self._found = self._tool.cost_of(self._bound)
        return found


def verdict_on(session: Session, step: Any, worst: WorstCase | None = None) -> Verdict:
    """Return what today's policy says of a call (a ToolStep, or an effect that may be sent again)."""
    policy = session.engine.policy
    if policy is None:
        return NO_POLICY
    found = policy.current()
    tool, worst = step.tool, worst or WorstCase(step.tool, step.bound)
    if not isinstance(found, InvalidPolicy):
        kind = (tool.name, tool.effect, tool.risk, tool.scopes, session.tenant, session.about.workflow)
        verdict = found.quickly(kind, _Plain(session, step, worst))
        if verdict is not None:
            return verdict
    return policy.decided(found, request_of(session, tool, step.bound, step.id, worst))


def request_of(
    session: Session, tool: Tool[..., Any], bound: Bound, step: str, worst: WorstCase | None = None
) -> Request:
    """Return a call as rules see it."""
    about = session.about
    return Request(
        tool.name,
        tool.version,
        tool.effect,
        tool.risk,
        tool.scopes,
        session.tenant,
        about.workflow,
        session.state.segment or "",
        about.authority.principal,
        _Views(session, bound, step, worst or WorstCase(tool, bound)),
    )


class _Plain(msgspec.Struct, gc=False):
    """What plain comparisons may ask of a call, by its path; None for what is not there, or not of a plain type.

    It says what `_Views` does, and is spared the making of all that nobody asks for.
    """

    _session: Session
    _step: Any
    _worst: WorstCase

    def __call__(self, path: tuple[str, ...]) -> Any:
        if path[0] == "args":
            return self._step.bound.plain(path[1])
        cost = self._worst.amounts()
        if len(path) == 2:  # noqa: PLR2004  all of it, which is COST
            return cost
        _, which, unit = path
        if which == "cost":
            return float(cost[unit]) if unit in cost else None
        ledger = self._session.state.ledger
        if unit not in ledger.granted and unit not in cost:
            return None
        left, own = ledger.left(unit), ledger.reserved.get(self._step.id)
        return float(left if own is None else left + own.get(unit, 0))


class _Views(Mapping[str, "Callable[[], Any]"]):
    """What conditions may ask of a call. It is made for every call, and only what a condition names is worked out."""

    __slots__ = ("_bound", "_session", "_step", "_worst")

    def __init__(self, session: Session, bound: Bound, step: str, worst: WorstCase) -> None:
        self._session = session
        self._bound = bound
        self._step = step
        self._worst = worst

    def __getitem__(self, name: str) -> Callable[[], Any]:
        return _VIEWS[name].__get__(self)  # type: ignore[no-any-return]

    def __iter__(self) -> Iterator[str]:
        return iter(_VIEWS)

    def __len__(self) -> int:
        return len(_VIEWS)

    def args(self) -> Any:
        return msgspec.json.decode(self._bound.data)

    def authority(self) -> dict[str, Any]:
        session = self._session
        held = session.state.held(session.about.authority)
        about = {
            "principal": held.principal, "tenant": held.tenant, "scopes": held.scopes, "expires_at": held.expires_at,
        }  # fmt: skip
        return {name: value for name, value in about.items() if value is not None}

    def budget(self) -> dict[str, Any]:
        """Return what is left for the call and what it costs at worst. As floats: CEL knows no exact fractions.

        What the call itself has reserved already is left for it.
        """
        ledger = self._session.state.ledger
        own = ledger.reserved.get(self._step, {})
        cost = self._worst.amounts()
        return {
            "left": {unit: float(ledger.left(unit) + own.get(unit, 0)) for unit in {*ledger.granted, *cost}},
            "cost": {unit: float(amount) for unit, amount in cost.items()},
        }

    def provenance(self) -> dict[str, Any]:
        return {"after": list(heard(self._session.state, self._step))}


_VIEWS: dict[str, Any] = {
    "args": _Views.args,
    "authority": _Views.authority,
    "budget": _Views.budget,
    "provenance": _Views.provenance,
}


# ---------------------------------------------------------------- what follows from a denial


def waiting_for(session: Session, verdict: Verdict, path: str) -> Waiting:
    """Return what a step waits for that is denied by default."""
    policy = session.engine.policy
    assert policy is not None, "only a policy denies"
    under = f" under version {verdict.policy.partition('+')[0]}" if verdict.policy else ""
    return Waiting("authority", None, f"{CHECK} {policy.path}: {path} is denied{under}: {verdict.why}")


def why_denied(verdict: Verdict) -> str:
    """Return what the segment and the record are told of a denial by a rule."""
    return f"denied by policy rule {verdict.rule!r}{': ' if verdict.why else ''}{verdict.why}"


def deny(session: Session, effect: Effect, before: list[e.Entry], verdict: Verdict) -> None:
    """Record that a rule denies an effect, for good. `before` is its plan, where that is not recorded yet."""
    now, by = session.engine.clock.now(), f"policy {verdict.rule}"
    answered = [
        e.ApprovalAnswered(at=now, id=asked.id, approved=False, by=by, why=why_denied(verdict))
        for asked in session.state.approvals.of(effect.step)
        if asked.open
    ]
    spent = None
    if effect.effect == "read":  # a try that was lost may have been charged
        spent = session.state.ledger.reserved.get(effect.step)
    failed = e.EffectFailed(
        at=now,
        step=effect.step,
        attempt=effect.attempt,
        why=why_denied(verdict),
        reason="denied",
        final=True,
        by=by,
        policy=verdict.policy,
        spent=spent,
    )
    session.put(*before, *answered, failed)


# ---------------------------------------------------------------- resends


def may_send_again(session: Session, step: Any, effect: Effect) -> bool:
    """Say whether an effect may go again now; where not, it is held back until the policy is another one."""
    step.verdict = verdict = verdict_on(session, step)
    if verdict.answer == "allow" or (verdict.answer == "ask" and effect.approval is not None):
        session.held.pop(effect.step, None)
        return True
    policy = session.engine.policy
    assert policy is not None, "only a policy refuses"
    if verdict.answer == "ask":
        why = f"policy rule {verdict.rule!r} asks for an approval, which {effect.path} was sent without"
    else:
        why = waiting_for(session, verdict, effect.path).ask if verdict.waits else why_denied(verdict)
    ask = (
        f"{effect.path} is not sent again: {why}. Change {policy.path} ({CHECK} {policy.path}), or "
        f"milepost resolve {session.run_id} {effect.path} --happened VALUE | --did-not-happen | --rejected"
    )
    session.held[effect.step] = (policy.turns, Waiting("authority", None, ask))
    return False


def held_back(session: Session, step: str) -> Waiting | None:
    """Return what an effect waits for that today's policy does not let go again, None where it may be tried."""
    policy = session.engine.policy
    found = session.held.get(step)
    return found[1] if found is not None and policy is not None and found[0] == policy.turns else None


def held_until(session: Session, effect: Effect, now: int) -> list[int] | None:
    """Return when something else may be done about an effect that is held back; None where it is not held back."""
    if held_back(session, effect.step) is None:
        return None
    facts = session.facts[effect.tool]
    moments = [key_valid_until(facts, effect.doubt.attempts)]  # long ago where it has no key
    if session.attached:
        moments.append(now + RECHECK_MS)
    return [at for at in moments if at > now]


def resting(session: Session) -> Waiting | None:
    """Return what a run waits for whose unknown effects are held back by the policy."""
    held = [held_back(session, effect.step) for effect in session.state.unsettled()]
    asks = [waiting.ask for waiting in held if waiting is not None]
    return Waiting("authority", None, "; ".join(asks)) if asks else None


# ---------------------------------------------------------------- today's policy, for runs that wait


async def wake(engine: Engine) -> None:
    """Where the policy became another one, let everything look again that waits for it, here and in the store."""
    policy = engine.policy
    if policy is None:
        return
    found = policy.current()
    if policy.turns == engine.policy_told:
        return
    engine.policy_told = policy.turns
    if isinstance(found, InvalidPolicy):
        log.error("%s", found)
    else:
        log.info("policy: %s", in_force(policy))
    for session in list(engine.sessions.values()):
        session.changed()
    for row in await engine.store.runs(Query(status="parked", limit=sys.maxsize)):
        if is_waited_for(row.reason, row.ask) and row.workflow in engine.known:
            await engine.writer.durable(Deliver(recheck(engine, policy, row.id, row.epoch)))


def is_waited_for(reason: str | None, ask: str | None) -> bool:
    """Say whether it is the policy that a parked run waits for."""
    return reason in {"authority", "approval"} and (CHECK in (ask or "") or BY_RULE in (ask or ""))


def recheck(engine: Engine, policy: PolicyFile, run_id: str, epoch: int) -> Post:
    """Return the message that lets a run look at today's policy once more."""
    now = engine.clock.now()
    message = messages.Recheck(at=now, by=engine.worker)
    return Post(run_id, f"recheck:{engine.worker}:{epoch}:{policy.turns}", messages.encode(message), now)


def parked(session: Session, waiting: Waiting, told: int) -> None:
    """Let a run look once more where the policy became another one while it was being parked: `wake` did not see it.

    `told` is how often this process had told of another policy before.
    """
    engine = session.engine
    if engine.policy is not None and engine.policy_told != told and is_waited_for(waiting.reason, waiting.ask):
        engine.post(recheck(engine, engine.policy, session.run_id, session.head.epoch))
