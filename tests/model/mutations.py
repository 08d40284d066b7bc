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

import msgspec
import pytest

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

Patches = Iterator[tuple[Any, Any, Any]]  # where it stands, under which name, and what takes its place

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


@dataclass(frozen=True)
class Mutation:
    """One guard less, the scenario within which its bug must be found, and the rule that it must break first."""

    name: str
    within: str
    finds: str
    patches: Callable[[], Patches]


ALL: list[Mutation] = []


def mistake(name: str, *, within: str, finds: str) -> Callable[[Callable[[], Patches]], Callable[[], Patches]]:
    """Add a mistake to the list: what takes a guard away."""

    def add(patches: Callable[[], Patches]) -> Callable[[], Patches]:
        ALL.append(Mutation(name, within, finds, patches))
        return patches

    return add


def replaced(original: Any, replacement: Any) -> Patches:
    """Yield patches that put a replacement wherever the original was imported to."""
    name = original.__name__
    for module in [module for key, module in sys.modules.items() if key.startswith(("milepost.", "tests.model."))]:
        if getattr(module, name, None) is original:
            yield module, name, replacement


@contextmanager
def without(mutation: Mutation) -> Generator[None]:
    """Take the guard away while this lasts. Raises AssertionError where there is nothing to replace."""
    patches = list(mutation.patches())
    assert patches, mutation.name
    with pytest.MonkeyPatch.context() as patched:
        for place, name, replacement in patches:
            if isinstance(place, dict):
                patched.setitem(place, name, replacement)
            else:
                patched.setattr(place, name, replacement)
        yield


# ---------------------------------------------------------------- the mistakes


@mistake("an append ignores the epoch", within=FROZEN, finds=OTHER_OWNER)
def _epoch_ignored() -> Patches:
    yield from replaced(append.epoch_lost, lambda _held, _found: False)


@mistake("a kill does not raise the epoch", within="irreversible, killed", finds=STARTS)
def _kill_raises_no_epoch() -> Patches:
    kill = Store.kill

    def killed(self: Store, state: Any, run: int) -> Any:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(append, "next_epoch", lambda epoch: epoch)
            return kill(self, state, run)

    yield Store, "kill", killed
    yield Rules, "_rises", staticmethod(lambda *_: None)  # to see what comes of it


@mistake(
    "a kill forgets what is to be asked about once more",
    within="queryable, killed",
    finds="a run is killed, and nobody will ever look at it again",
)
def _kill_forgets_what_is_to_be_asked_again() -> Patches:
    yield from replaced(append.settles_later, lambda outcome: outcome in {"started", "unknown"})


@mistake("a switch is not checked", within="irreversible, held", finds="something starts though its tool is held")
def _switch_ignored() -> Patches:
    yield from replaced(append.switched_off, lambda _scopes, _switches: None)


@mistake("an identity is not claimed", within=CANCELLED, finds="a business identity is started by two runs")
def _identity_not_claimed() -> Patches:
    yield from replaced(append.identity_taken, lambda _holder: False)


@mistake("an identity is kept by a run that ended", within=CANCELLED, finds=NEVER_RESTS)
def _identity_kept_by_what_ended() -> Patches:
    yield Session, "_let_go", lambda *_: []


@mistake("the lease is not looked at before sending", within=FROZEN, finds="bytes leave under a lease that has lapsed")
def _lease_ignored_at_send() -> Patches:
    yield from replaced(leases.may_send, lambda _until, _now: True)


@mistake("renewing brings a lapsed lease back", within=FROZEN, finds=OTHER_OWNER)
def _renewal_brings_the_lease_back() -> Patches:
    send = effects.send

    async def sent(*args: Any, lapses: int | None = None, **more: Any) -> None:
        await send(*args, **more)

    yield effects, "send", sent


@mistake("a lapsed lease lets go of a run that nobody took", within=FROZEN, finds=NEVER_RESTS)
def _lapsed_lease_drops_the_run() -> Patches:
    def dropped(
        session: Session, effect: Any, number: int, why: str, again_ms: int | None = 0, tried: Any = ()
    ) -> None:
        session.evidence(effect, number, "not_sent", why=why)
        session.drop(EpochLost(session.run_id, session.head.epoch))
        raise EpochLost(session.run_id, session.head.epoch)

    yield effects, "_unsent", dropped


@mistake("bytes leave before started is durable", within=DIE, finds="bytes leave before their `started` is durable")
def _sends_before_started_is_durable() -> Patches:
    class AtOnce(desk.Answer):
        def __await__(self) -> Generator[Any, None, None]:
            return iter(())  # type: ignore[return-value]

    yield desk, "Answer", AtOnce


@mistake(
    "started at recovery is taken for not started",
    within=DIE,
    finds="what was started under an earlier epoch is failed before it was unknown",
)
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


@mistake(
    "started at recovery stays started",
    within=DIE,
    finds="what was started under an earlier epoch is started before it was unknown",
)
def _started_stays_started() -> Patches:
    yield from replaced(decide.recover, lambda _run, _world: [])


@mistake("a lapsed worker is taken for a dead one", within=ASKED, finds=HIDDEN)
def _lapsed_is_dead() -> Patches:
    recover = decide.recover

    def recovered(run: state.RunState, world: decide.World) -> list[e.Entry]:
        everybody = {attempt.owner for effect in run.effects() for attempt in effect.doubt.attempts}
        world.dead = frozenset(everybody)
        return recover(run, world)

    yield from replaced(decide.recover, recovered)


@mistake("an absence counts before the attempt is quiet", within=ASKED, finds=HIDDEN)
def _absence_counts_before_quiet() -> Patches:
    def since(attempts: list[outcome.Attempt]) -> int:
        return max((a.started_at if a.quiet_at is None else a.quiet_at for a in attempts), default=0)

    yield from replaced(outcome.quiet_since, since)


@mistake("an absence counts before the effect must show", within="queryable, effects take long to show", finds=HIDDEN)
def _absence_counts_before_it_could_show() -> Patches:
    question = outcome._question
    yield (
        outcome,
        "_question",
        lambda facts, doubt, now: question(msgspec.structs.replace(facts, visible_ms=0), doubt, now),
    )


@mistake("one absence is enough", within="queryable, one read is stale", finds=HIDDEN)
def _one_absence_is_enough() -> Patches:
    yield outcome, "ABSENCES_NEEDED", 1


@mistake("an absence counts where no bound is declared", within="queryable, nothing is declared", finds=HIDDEN)
def _absence_counts_where_nothing_is_declared() -> Patches:
    question = outcome._question

    def asked(facts: Facts, doubt: outcome.Doubt, now: int) -> outcome.Move:
        return question(msgspec.structs.replace(facts, visible_ms=facts.visible_ms or 1_000), doubt, now)

    yield outcome, "_question", asked


@mistake("a key is good for ever", within=KEYED, finds=TWICE)
def _key_never_expires() -> Patches:
    yield from replaced(outcome.key_valid_until, lambda _facts, _attempts: 10**12)


@mistake("a key is not looked at once more before sending", within=KEYED, finds=TWICE)
def _key_is_not_looked_at_again() -> Patches:
    yield effects, "may_resend", lambda *_: True


@mistake("a retry consumes unknown", within=DIE, finds=TWICE)
def _retry_consumes_unknown() -> Patches:
    move = outcome.next_move

    def moved(facts: Facts, doubt: outcome.Doubt, now: int) -> outcome.Move:
        return Resend() if facts.effect == "irreversible" and not doubt.person else move(facts, doubt, now)

    yield from replaced(outcome.next_move, moved)


@mistake("a run that ended resends", within="keyed, killed", finds=STARTS)
def _ended_run_resends() -> Patches:
    move_for = decide.move_for

    def moved(effect: Any, world: decide.World) -> outcome.Move:
        world.ended = False
        return move_for(effect, world)

    yield from replaced(decide.move_for, moved)


@mistake("what was sent again is not asked about once more", within=LATE, finds=UNNOTICED)
def _resent_is_not_verified() -> Patches:
    yield from _after(e.EffectConfirmed, lambda effect: setattr(effect, "verify_from", None))


@mistake("it is asked about once more too early", within=LATE, finds=UNNOTICED)
def _verified_before_it_could_show() -> Patches:
    verify = decide.verify_move
    yield from replaced(
        decide.verify_move,
        lambda facts, effect, now: verify(msgspec.structs.replace(facts, visible_ms=-10_000), effect, now),
    )


@mistake(
    "an approval is not consumed", within=APPROVED, finds="an approval that was used would be good for another effect"
)
def _approval_is_not_consumed() -> Patches:
    rule = state._RULES[e.EffectStarted]

    def started(run: state.RunState, entry: Any) -> None:
        rule(run, entry)
        if entry.approval is not None:
            run.approvals[entry.approval].verdict = "approved"

    yield state._RULES, e.EffectStarted, started


@mistake("an approval is not asked for", within=APPROVED, finds="an effect starts that nobody approved")
def _approval_is_not_asked_for() -> Patches:
    yield from replaced(gates.gate, lambda _session, _step, _effect: None)


@mistake("a resend that was refused settles the attempt before it", within="keyed, killed", finds=HIDDEN)
def _earlier_attempt_is_forgotten() -> Patches:
    yield from replaced(gates.earlier_unsettled, lambda _effect, _number: False)


@mistake(
    "a cancelled run goes on",
    within="irreversible, rejected or not sent",
    finds="a run that was asked to stop starts something",
)
def _cancelled_run_goes_on() -> Patches:
    yield decide, "_stopping", lambda *_: None
    yield from replaced(gates.gate, lambda _session, _step, _effect: None)


@mistake("what a fenced worker saw is not kept", within=ASKED, finds=NEVER_RESTS)
def _evidence_is_not_kept() -> Patches:
    yield Session, "evidence", lambda *_, **__: None


@mistake(
    "a contradiction is overlooked",
    within="irreversible, a person says it did not happen",
    finds="a fenced worker saw success after all, and nothing says so",
)
def _contradiction_is_overlooked() -> Patches:
    yield inbox, "_contradiction", lambda *_, **__: []


@mistake(
    "a moment that has come keeps waking the run",
    within="irreversible, held",
    finds="a run rests until a moment that has come already: it would be taken up without a pause",
)
def _a_moment_that_has_come_wakes_the_run() -> Patches:
    due = Session.effect_due

    def due_then(self: Session, effect: Any, world: Any) -> list[int]:
        if effect.outcome == "failed" and not effect.final and effect.retry_at is not None:
            return [effect.retry_at]
        return due(self, effect, world)

    yield Session, "effect_due", due_then


@mistake("evidence settles what is settled", within=ASKED, finds="a transition that is not in the table")
def _evidence_settles_what_is_settled() -> Patches:
    rule = inbox._RULES[m.Evidence]

    def evidence(run: state.RunState, message: Any, now: int) -> list[e.Entry]:
        effect = run.steps.get(message.step)
        if message.saw != "returned" or not isinstance(effect, Effect) or effect.outcome != "confirmed":
            return rule(run, message, now)
        return [e.EffectConfirmed(at=now, step=effect.step, attempt=message.attempt, result=message.value)]

    yield inbox._RULES, m.Evidence, evidence


@mistake(
    "what failed in a run that ended may be tried again", within="one identity, two runs, one killed", finds=NEVER_RESTS
)
def _failure_of_an_ended_run_is_not_final() -> Patches:
    rule = inbox._RULES[m.Evidence]

    def evidence(run: state.RunState, message: Any, now: int) -> list[e.Entry]:
        return [
            msgspec.structs.replace(entry, final=False) if isinstance(entry, e.EffectFailed) else entry
            for entry in rule(run, message, now)
        ]

    yield inbox._RULES, m.Evidence, evidence


def _after(kind: type[e.Entry], change: Callable[[Any], None]) -> Patches:
    rule = state._RULES[kind]

    def applied(run: state.RunState, entry: Any) -> None:
        rule(run, entry)
        change(run.steps[entry.step])

    yield state._RULES, kind, applied
