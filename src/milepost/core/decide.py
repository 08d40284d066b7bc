"""What to do next with a run: a pure function of its record, of what the world shows today, and of the time.

`decide` is called when a run was just loaded or when nothing of it is in flight. It returns what to append and then
what to perform; whoever calls it appends first. No model is asked, nothing is read from a transcript.

The order of its questions is the order of caution:
  1. a started effect found at recovery is unknown, always;
  2. a run that is blocked does nothing at all; of one that ended, only the unknown effects are settled;
  3. what was cancelled or is out of time stops at this boundary, after its effects are settled; what today's code may
     not go on with is blocked as it is;
  4. one that is taken back undoes, and does nothing else until its boundary is written;
  5. only then is the segment entered.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from milepost.core import entries as e
from milepost.core.outcome import Ask, Facts, Move, Person, ProvenAbsent, Resend, Wait, next_move
from milepost.core.steps import Effect
from milepost.errors import Damaged

if TYPE_CHECKING:
    from collections.abc import Mapping

    from milepost.core.state import RunState

ASK_A_PERSON = "milepost resolve {run} {path} --happened VALUE | --did-not-happen | --rejected, with --why"


@dataclass(slots=True)
class World:
    """What a decision may look at besides the record.

    `facts` are the tools' declarations by name; `dead` the owners that are proven dead; `blocks` why today's code may
    not go on with the run; `migrates` the versions that a migration must lead it through first; `code` names today's
    manifest; nothing is entered before `begins_at`; `deadline` and moments are milliseconds since 1970.
    """

    now: int
    facts: Mapping[str, Facts] = field(default_factory=dict)
    dead: frozenset[str] = frozenset()
    blocks: tuple[str, ...] = ()
    deadline: int | None = None
    attached: bool = False
    ended: bool = False
    migrates: tuple[str, ...] = ()
    code: str = ""
    begins_at: int | None = None


@dataclass(frozen=True, slots=True)
class Enter:
    """Enter the segment, from its first line; recorded steps answer from the record."""

    segment: str


@dataclass(frozen=True, slots=True)
class Migrate:
    """Lead the run through these versions, at its boundary, before anything is entered."""

    versions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Settle:
    """Find out what happened to these effects, and do nothing else."""

    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing can move before `until`, or before an event."""

    reason: str
    until: int | None
    ask: str = ""


@dataclass(frozen=True, slots=True)
class Release:
    """Nothing is to be done with this run."""


@dataclass(frozen=True, slots=True)
class GoBack:
    """Undo what was done since the boundary of visit `to`, newest first; then write that boundary anew."""

    to: int


Perform = Enter | Migrate | Settle | Rest | Release | GoBack


@dataclass(frozen=True, slots=True)
class Decision:
    """What to append, and what to perform once that is durable."""

    append: tuple[e.Entry, ...]
    perform: Perform


def recover(state: RunState, world: World) -> list[e.Entry]:
    """Return the entries that a new owner appends before anything else: started is unknown, dead is quiet."""
    entries: list[e.Entry] = []
    for effect in state.effects():
        if not effect.open:
            continue
        attempt = effect.doubt.attempts[-1]
        died = attempt.owner in world.dead
        if effect.outcome == "started":
            why = "the worker died while it was in flight" if died else "the run was taken over while it was in flight"
            quiet_at = world.now if died else None
            unknown = e.EffectUnknown(
                at=world.now, step=effect.step, attempt=attempt.number, why=why, quiet_at=quiet_at, died=died
            )
            entries.append(unknown)
            continue
        for earlier in effect.doubt.attempts:
            if earlier.quiet_at is None and earlier.owner in world.dead:
                quieted = e.AttemptQuieted(
                    at=world.now, step=effect.step, attempt=earlier.number, quiet_at=world.now, died=True
                )
                entries.append(quieted)
    return entries


def decide(state: RunState, world: World) -> Decision:
    """Decide the next act. Call it on a state to which `recover`'s entries were applied."""
    if state.status == "blocked":
        return Decision((), Release())
    stop = None if state.ended else _stopping(state, world)
    given_up: tuple[Effect, ...] = ()
    if stop is not None and not world.attached:  # a host, if it comes back, calls it again
        given_up = tuple(effect for effect in state.effects() if effect.open and effect.effect == "read")
    settle = tuple(
        effect.step
        for effect in state.effects()
        if (effect.open or effect.verify_from is not None) and effect not in given_up
    )
    if settle and (state.ended or world.attached or stop is not None):
        return Decision((), _settling(state, world, settle))
    if state.ended:
        return Decision((), Release())
    if world.attached and stop is None:
        return Decision((), Rest("signal", None, f"the host of run {state.run} drives it"))
    if stop is not None:
        return Decision((*(given_up_read(effect, world.now) for effect in given_up), stop), Release())
    return _going_on(state, world)


def given_up_read(effect: Effect, now: int) -> e.EffectFailed:
    """Return the end of a read in doubt whose segment is left: it changed nothing, and nobody will call it again."""
    return e.EffectFailed(
        at=now,
        step=effect.step,
        attempt=effect.doubt.attempts[-1].number,
        why="its segment is left, and a read changes nothing",
        reason="absent",
        final=True,
        by="finding",
    )


def _going_on(state: RunState, world: World) -> Decision:
    if world.blocks:
        why = "; ".join(world.blocks)
        stopped = e.RunStopped(at=world.now, status="blocked", code="incompatible", why=why, manifest=world.code)
        return Decision((stopped,), Release())
    if state.rewind is not None:
        return Decision((), GoBack(state.rewind.to))
    for not_before in (world.begins_at, state.retry_at):
        if not_before is not None and world.now < not_before:
            return Decision((), Rest("time", not_before))
    if state.segment is None:
        raise Damaged(state.run, "it has not ended, and its boundary names no segment to enter")
    if world.migrates:
        return Decision((), Migrate(world.migrates))
    return Decision((), Enter(state.segment))


def _stopping(state: RunState, world: World) -> e.RunStopped | None:
    if state.cancel is not None:
        by, why = state.cancel
        return e.RunStopped(at=world.now, status="cancelled", code="cancelled", why=why, by=by)
    if world.deadline is not None and world.now >= world.deadline:
        why = "its deadline passed before it was done"
        return e.RunStopped(at=world.now, status="failed", code="deadline", why=why)
    return None


def _settling(state: RunState, world: World, steps: tuple[str, ...]) -> Perform:
    moves = [(effect, move_for(effect, world)) for effect in state.effects() if effect.step in steps]
    if any(may_act(effect, move) for effect, move in moves):
        return Settle(steps)
    return rest_on(state.run, moves)


def may_act(effect: Effect, move: Move) -> bool:
    """Say whether something is to be done about an effect now: also to record, once, that only a person helps."""
    if isinstance(move, Person):
        return not effect.doubt.person and not move.passing
    if isinstance(move, Resend):
        return effect.effect != "read"  # whoever waits for a read calls it again, and pays for it again
    return isinstance(move, Ask | ProvenAbsent)


def move_for(effect: Effect, world: World) -> Move:
    """Return what may be done about an unsettled effect, or one that is to be asked about once more."""
    facts = world.facts.get(effect.tool)
    if facts is None:
        return Person(f"tool {effect.tool!r} is not listed by the code that runs now", passing=True)
    if facts.version and facts.version != effect.version:
        why = f"it was sent by version {effect.version!r} of {effect.tool!r}, the code has {facts.version!r}"
        return Person(why, passing=True)
    if effect.outcome == "confirmed" and effect.verify_from is not None:
        return verify_move(facts, effect, world.now)
    if world.ended and effect.effect == "read":
        return ProvenAbsent(final=True, why="the run ended, and a read changes nothing")
    if world.ended and not effect.doubt.person:
        # Nothing is sent for a run that ended: its effects are only looked up.
        if not facts.reconcilable:
            return Person("the run ended, and the tool has no reconciler")
        facts = msgspec.structs.replace(facts, effect="queryable")
    return next_move(facts, effect.doubt, world.now)


def verify_move(facts: Facts, effect: Effect, now: int) -> Move:
    """Return when to ask once more about an effect that was sent again after it was proven absent."""
    if not facts.reconcilable:
        return Person("it was sent again, and the tool has no reconciler that could say whether it happened twice")
    quiet = max((attempt.quiet_at or 0 for attempt in effect.doubt.attempts), default=0)
    due = max(quiet + (facts.visible_ms or 0), effect.doubt.ask_at)
    return Ask() if now >= due else Wait(due)


def rest_on(run: str, moves: list[tuple[Effect, Move]]) -> Rest:
    """Return what a run waits for whose effects can all not be settled now."""
    persons = [effect for effect, move in moves if isinstance(move, Person)]
    untils = [move.until for _, move in moves if isinstance(move, Wait) and move.until is not None]
    until = min(untils, default=None)
    if persons:
        ask = "; ".join(ASK_A_PERSON.format(run=run, path=effect.path) for effect in persons)
        return Rest("unknown", until, ask)
    return Rest("unknown", until)
