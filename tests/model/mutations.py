"""Every guard of the protocol, taken away one at a time: what a mutation replaces, and where its bug must be found.

A mutation replaces the function itself, everywhere it was imported to, for the time of one exploration. Each one is the
mistake that somebody might make who changes the code: a check left out, a rule made simpler, a step forgotten.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import msgspec

from milepost.core import append, decide, inbox, outcome, state
from milepost.core import entries as e
from milepost.core import lease as leases
from milepost.core import messages as m
from milepost.core.outcome import Facts, Resend
from milepost.core.steps import Effect
from milepost.errors import EpochLost
from milepost.runtime import effects, gates
from milepost.runtime.session import Session
from tests.model import desk
from tests.model.rules import Rules
from tests.model.store import Store

Patches = Iterator[Any]


@dataclass(frozen=True)
class Mutation:
    """One guard less, the scenario within which its bug must be found, and the rule that it must break first."""

    name: str
    within: str
    finds: str
    patches: Callable[[], Patches]


def replaced(original: Any, replacement: Any) -> Patches:
    """Yield patches that put a replacement wherever the original was imported to."""
    name = original.__name__
    for module in [module for key, module in sys.modules.items() if key.startswith(("milepost.", "tests.model."))]:
        if getattr(module, name, None) is original:
            yield mock.patch.object(module, name, replacement)


@contextmanager
def without(mutation: Mutation) -> Generator[None]:
    """Take the guard away while this lasts. Raises AssertionError where there is nothing to replace."""
    patches = list(mutation.patches())
    assert patches, mutation.name
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in reversed(patches):
            patch.stop()


# ---------------------------------------------------------------- the mistakes


def _epoch_ignored() -> Patches:
    yield from replaced(append.epoch_lost, lambda _held, _found: False)


def _kill_raises_no_epoch() -> Patches:
    kill = Store.kill

    def killed(self: Store, state: Any, run: int) -> Any:
        with mock.patch.object(append, "next_epoch", lambda epoch: epoch):
            return kill(self, state, run)

    yield mock.patch.object(Store, "kill", killed)
    yield mock.patch.object(Rules, "_rises", staticmethod(lambda *_: None))  # to see what comes of it


def _kill_forgets_what_is_to_be_asked_again() -> Patches:
    yield from replaced(append.settles_later, lambda outcome: outcome in {"started", "unknown"})


def _switch_ignored() -> Patches:
    yield from replaced(append.switched_off, lambda _scopes, _switches: None)


def _identity_not_claimed() -> Patches:
    yield from replaced(append.identity_taken, lambda _holder: False)


def _identity_kept_by_what_ended() -> Patches:
    yield mock.patch.object(Session, "_let_go", lambda _self, _entry: [])


def _lease_ignored_at_send() -> Patches:
    yield from replaced(leases.may_send, lambda _until, _now: True)


def _renewal_brings_the_lease_back() -> Patches:
    send = effects.send

    async def sent(*args: Any, lapses: int | None = None, **more: Any) -> None:  # noqa: ARG001
        await send(*args, **more)

    yield mock.patch.object(effects, "send", sent)


def _lapsed_lease_drops_the_run() -> Patches:
    def dropped(session: Session, effect: Any, number: int, why: str, again_ms: int | None = 0) -> None:
        session.evidence(effect, number, "not_sent", why=why)
        session.drop(EpochLost(session.run_id, session.head.epoch))
        raise EpochLost(session.run_id, session.head.epoch)

    yield mock.patch.object(effects, "_unsent", dropped)


def _sends_before_started_is_durable() -> Patches:
    class AtOnce(desk.Answer):
        def __await__(self) -> Generator[Any, None, None]:
            return iter(())  # type: ignore[return-value]

    yield mock.patch.object(desk, "Answer", AtOnce)


def _started_is_not_started() -> Patches:
    def recovered(run: state.RunState, world: decide.World) -> list[e.Entry]:
        return [
            e.EffectFailed(
                at=world.now, step=f.step, attempt=f.attempt, why="", reason="not_sent", final=False, retry_at=world.now
            )
            for f in run.effects()
            if f.outcome == "started"
        ]

    yield from replaced(decide.recover, recovered)


def _started_stays_started() -> Patches:
    yield from replaced(decide.recover, lambda _run, _world: [])


def _lapsed_is_dead() -> Patches:
    recover = decide.recover

    def recovered(run: state.RunState, world: decide.World) -> list[e.Entry]:
        everybody = {attempt.owner for effect in run.effects() for attempt in effect.doubt.attempts}
        world.dead = frozenset(everybody)
        return recover(run, world)

    yield from replaced(decide.recover, recovered)


def _absence_counts_before_quiet() -> Patches:
    def since(attempts: list[outcome.Attempt]) -> int:
        return max((a.started_at if a.quiet_at is None else a.quiet_at for a in attempts), default=0)

    yield from replaced(outcome.quiet_since, since)


def _absence_counts_before_it_could_show() -> Patches:
    question = outcome._question
    yield mock.patch.object(
        outcome, "_question", lambda facts, doubt, now: question(msgspec.structs.replace(facts, visible_ms=0), doubt, now)
    )


def _one_absence_is_enough() -> Patches:
    yield mock.patch.object(outcome, "ABSENCES_NEEDED", 1)


def _absence_counts_where_nothing_is_declared() -> Patches:
    question = outcome._question

    def asked(facts: Facts, doubt: outcome.Doubt, now: int) -> outcome.Move:
        return question(msgspec.structs.replace(facts, visible_ms=facts.visible_ms or 1_000), doubt, now)

    yield mock.patch.object(outcome, "_question", asked)


def _key_never_expires() -> Patches:
    yield from replaced(outcome.key_valid_until, lambda _facts, _attempts: 10**12)


def _key_is_not_looked_at_again() -> Patches:
    yield mock.patch.object(effects, "may_resend", lambda _facts, _attempts, _now: True)


def _retry_consumes_unknown() -> Patches:
    move = outcome.next_move

    def moved(facts: Facts, doubt: outcome.Doubt, now: int) -> outcome.Move:
        return Resend() if facts.effect == "irreversible" and not doubt.person else move(facts, doubt, now)

    yield from replaced(outcome.next_move, moved)


def _ended_run_resends() -> Patches:
    move_for = decide.move_for

    def moved(effect: Any, world: decide.World) -> outcome.Move:
        world.ended = False
        return move_for(effect, world)

    yield from replaced(decide.move_for, moved)


def _resent_is_not_verified() -> Patches:
    yield from _after(e.EffectConfirmed, lambda effect: setattr(effect, "verify_from", None))


def _verified_before_it_could_show() -> Patches:
    verify = decide.verify_move
    yield from replaced(
        decide.verify_move,
        lambda facts, effect, now: verify(msgspec.structs.replace(facts, visible_ms=-10_000), effect, now),
    )


def _approval_is_not_consumed() -> Patches:
    rule = state._RULES[e.EffectStarted]

    def started(run: state.RunState, entry: Any) -> None:
        rule(run, entry)
        if entry.approval is not None:
            run.approvals[entry.approval].verdict = "approved"

    yield mock.patch.dict(state._RULES, {e.EffectStarted: started})


def _approval_is_not_asked_for() -> Patches:
    yield from replaced(gates.gate, lambda _session, _step, _effect: None)


def _earlier_attempt_is_forgotten() -> Patches:
    yield from replaced(gates.earlier_unsettled, lambda _effect, _number: False)


def _cancelled_run_goes_on() -> Patches:
    yield mock.patch.object(decide, "_stopping", lambda _run, _world: None)
    yield from replaced(gates.gate, lambda _session, _step, _effect: None)


def _evidence_is_not_kept() -> Patches:
    yield mock.patch.object(Session, "evidence", lambda *_args, **_more: None)


def _contradiction_is_overlooked() -> Patches:
    yield mock.patch.object(inbox, "_contradiction", lambda *_args, **_more: [])


def _a_moment_that_has_come_wakes_the_run() -> Patches:
    due = Session._effect_due

    def due_then(self: Session, effect: Any, world: Any) -> list[int]:
        if effect.outcome == "failed" and not effect.final and effect.retry_at is not None:
            return [effect.retry_at]
        return due(self, effect, world)

    yield mock.patch.object(Session, "_effect_due", due_then)


def _evidence_settles_what_is_settled() -> Patches:
    rule = inbox._RULES[m.Evidence]

    def evidence(run: state.RunState, message: Any, now: int) -> list[e.Entry]:
        effect = run.steps.get(message.step)
        if message.saw != "returned" or not isinstance(effect, Effect) or effect.outcome != "confirmed":
            return rule(run, message, now)
        return [e.EffectConfirmed(at=now, step=effect.step, attempt=message.attempt, result=message.value)]

    yield mock.patch.dict(inbox._RULES, {m.Evidence: evidence})


def _failure_of_an_ended_run_is_not_final() -> Patches:
    rule = inbox._RULES[m.Evidence]

    def evidence(run: state.RunState, message: Any, now: int) -> list[e.Entry]:
        return [
            msgspec.structs.replace(entry, final=False) if isinstance(entry, e.EffectFailed) else entry
            for entry in rule(run, message, now)
        ]

    yield mock.patch.dict(inbox._RULES, {m.Evidence: evidence})


def _after(kind: type[e.Entry], change: Callable[[Any], None]) -> Patches:
    rule = state._RULES[kind]

    def applied(run: state.RunState, entry: Any) -> None:
        rule(run, entry)
        change(run.steps[entry.step])

    yield mock.patch.dict(state._RULES, {kind: applied})


TWICE = "an effect is applied twice, and nobody proved or said anything"
HIDDEN = "an effect that was applied is recorded as failed"
UNNOTICED = "a run is done, and nobody noticed that its effect was applied twice"
NEVER_RESTS = "nothing goes wrong any more, and it never comes to rest"
OTHER_OWNER = "bytes leave though somebody else had taken the run"
STARTS = "a run that is killed starts something"
FROZEN = "irreversible, a worker is frozen past its lease"
DIE = "irreversible, both workers die"
ASKED = "queryable, a worker is frozen past its lease"
LATE = "queryable, an effect lands later than declared"
KEYED = "keyed, slow workers"
APPROVED = "irreversible, approved or denied"
CANCELLED = "one identity, two runs, one cancelled"

ALL = [
    Mutation("an append ignores the epoch", FROZEN, OTHER_OWNER, _epoch_ignored),
    Mutation("a kill does not raise the epoch", "irreversible, killed", STARTS, _kill_raises_no_epoch),
    Mutation("a kill forgets what is to be asked about once more", "queryable, killed", "a run is killed, and nobody will ever look at it again", _kill_forgets_what_is_to_be_asked_again),
    Mutation("a switch is not checked", "irreversible, held", "something starts though its tool is held", _switch_ignored),
    Mutation("an identity is not claimed", CANCELLED, "a business identity is started by two runs", _identity_not_claimed),
    Mutation("an identity is kept by a run that ended", CANCELLED, NEVER_RESTS, _identity_kept_by_what_ended),
    Mutation("the lease is not looked at before sending", FROZEN, "bytes leave under a lease that has lapsed", _lease_ignored_at_send),
    Mutation("renewing brings a lapsed lease back", FROZEN, OTHER_OWNER, _renewal_brings_the_lease_back),
    Mutation("a lapsed lease lets go of a run that nobody took", FROZEN, NEVER_RESTS, _lapsed_lease_drops_the_run),
    Mutation("bytes leave before started is durable", DIE, "bytes leave before their `started` is durable", _sends_before_started_is_durable),
    Mutation("started at recovery is taken for not started", DIE, "what was started under an earlier epoch is failed before it was unknown", _started_is_not_started),
    Mutation("started at recovery stays started", DIE, "what was started under an earlier epoch is started before it was unknown", _started_stays_started),
    Mutation("a lapsed worker is taken for a dead one", ASKED, HIDDEN, _lapsed_is_dead),
    Mutation("an absence counts before the attempt is quiet", ASKED, HIDDEN, _absence_counts_before_quiet),
    Mutation("an absence counts before the effect must show", "queryable, effects take long to show", HIDDEN, _absence_counts_before_it_could_show),
    Mutation("one absence is enough", "queryable, one read is stale", HIDDEN, _one_absence_is_enough),
    Mutation("an absence counts where no bound is declared", "queryable, nothing is declared", HIDDEN, _absence_counts_where_nothing_is_declared),
    Mutation("a key is good for ever", KEYED, TWICE, _key_never_expires),
    Mutation("a key is not looked at once more before sending", KEYED, TWICE, _key_is_not_looked_at_again),
    Mutation("a retry consumes unknown", DIE, TWICE, _retry_consumes_unknown),
    Mutation("a run that ended resends", "keyed, killed", STARTS, _ended_run_resends),
    Mutation("what was sent again is not asked about once more", LATE, UNNOTICED, _resent_is_not_verified),
    Mutation("it is asked about once more too early", LATE, UNNOTICED, _verified_before_it_could_show),
    Mutation("an approval is not consumed", APPROVED, "an approval that was used would be good for another effect", _approval_is_not_consumed),
    Mutation("an approval is not asked for", APPROVED, "an effect starts that nobody approved", _approval_is_not_asked_for),
    Mutation("a resend that was refused settles the attempt before it", "keyed, killed", HIDDEN, _earlier_attempt_is_forgotten),
    Mutation("a cancelled run goes on", "irreversible, rejected or not sent", "a run that was asked to stop starts something", _cancelled_run_goes_on),
    Mutation("what a fenced worker saw is not kept", ASKED, NEVER_RESTS, _evidence_is_not_kept),
    Mutation("a contradiction is overlooked", "irreversible, a person says it did not happen", "a fenced worker saw success after all, and nothing says so", _contradiction_is_overlooked),
    Mutation("evidence settles what is settled", ASKED, "a transition that is not in the table", _evidence_settles_what_is_settled),
    Mutation("a moment that has come keeps waking the run", "irreversible, held", "a run rests until a moment that has come already: it would be taken up without a pause", _a_moment_that_has_come_wakes_the_run),
    Mutation("what failed in a run that ended may be tried again", "one identity, two runs, one killed", NEVER_RESTS, _failure_of_an_ended_run_is_not_final),
]
