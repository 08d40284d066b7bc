"""What must hold: after every entry, for every byte that leaves, in every state, and when nothing goes wrong any more.

The rules look at what is durable and at the outside ledger, never at what a worker believes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from milepost.core import entries as e
from milepost.core import lease
from milepost.core.outcome import Facts
from milepost.core.state import ENDED, RunState
from milepost.core.steps import Effect
from tests.model.explorer import Violation
from tests.model.places import Flight, Held, Row, State, Worker
from tests.model.records import Record

MOST_FAIR_STEPS = 600
Fair = Callable[[State], State | None]


class Rules:
    """The invariants, for one tool."""

    def __init__(self, facts: Facts, *, once: bool, approval: bool) -> None:
        self._facts = facts
        self._repeatable = facts.effect == "absolute"  # doing it again changes nothing more
        self._once = once
        self._approval = approval
        self._comes_to_rest: set[State] = set()

    # ------------------------------------------------------------ after every entry

    def watch(self, before: Record, entry: e.Entry, after: Record) -> None:
        """Look at one accepted entry: the record before it, and after."""
        was, now = before.state, after.state
        self._rises(was, entry, now)
        if isinstance(entry, e.EffectStarted):
            self._started(was, entry, now)
        if isinstance(entry, e.RunParked) and entry.until is not None and entry.until <= entry.at:
            raise Violation("a run rests until a moment that has come already: it would be taken up without a pause")
        old, new = before.effect, after.effect
        if new is not None and len(set(new.doubt.absences)) < len(new.doubt.absences):
            raise Violation("it asks again and again without waiting")
        if old is not None and new is not None and old.key == new.key:
            self._recovered(was, entry, old, new)
            self._terminal(entry, old, new)

    @staticmethod
    def _rises(was: RunState, entry: e.Entry, now: RunState) -> None:
        taken = isinstance(entry, e.Claimed) or (isinstance(entry, e.RunStopped) and entry.status == "killed")
        if now.epoch < was.epoch or (taken and now.epoch <= was.epoch):
            raise Violation("the epoch did not rise")

    def _started(self, was: RunState, entry: e.EffectStarted, now: RunState) -> None:
        if was.ended:
            raise Violation(f"a run that is {was.status} starts something")
        if was.cancel is not None and not entry.resend:
            raise Violation("a run that was asked to stop starts something")
        if entry.approval is not None and was.approvals[entry.approval].verdict != "approved":
            raise Violation("an approval is used that does not stand")
        effect = now.steps[entry.step]
        if self._approval and isinstance(effect, Effect) and effect.approval is None:
            raise Violation("an effect starts that nobody approved")

    @staticmethod
    def _recovered(was: RunState, entry: e.Entry, old: Effect, new: Effect) -> None:
        if old.outcome != "started" or old.doubt.attempts[-1].epoch >= was.epoch:
            return
        if new.outcome != "unknown" and not isinstance(entry, e.Claimed):
            raise Violation(f"what was started under an earlier epoch is {new.outcome} before it was unknown")

    @staticmethod
    def _terminal(entry: e.Entry, old: Effect, new: Effect) -> None:
        if old.outcome == "confirmed" and (new.outcome != "confirmed" or isinstance(entry, e.EffectConfirmed)):
            raise Violation(f"what was confirmed is written again: {new.outcome}")
        overruled = old.contradicted and new.by.startswith("person ")
        if old.outcome == "failed" and old.final and new.outcome != "failed" and not overruled:
            raise Violation(f"what had failed for good is written again: {new.outcome}")

    # ------------------------------------------------------------ for every byte that leaves

    @staticmethod
    def bytes_leave(state: State, held: Held, flight: Flight, worker: Worker) -> None:
        """Look at what is durable at the moment at which bytes leave."""
        effect = state.rows[held.run].record.effect
        attempts = effect.doubt.attempts if effect is not None and effect.key == flight.key else []
        if len(attempts) < flight.number or attempts[flight.number - 1].epoch != held.epoch:
            raise Violation("bytes leave before their `started` is durable")
        if lease.lapsed(worker.row, state.now):
            raise Violation("bytes leave under a lease that has lapsed")
        now = state.rows[held.run].record.state
        if now.epoch != held.epoch and now.owner != worker.name and now.status != "killed":
            raise Violation("bytes leave though somebody else had taken the run")

    # ------------------------------------------------------------ in every state

    def check(self, state: State) -> None:
        """Look at a state: what is recorded against what was really done."""
        applied = Counter(one.key for one in state.ledger)
        late = {one.key for one in state.ledger if one.late}
        for key, times in applied.items():
            if times > 1 and key not in late and key not in state.said and not self._repeatable:
                raise Violation("an effect is applied twice, and nobody proved or said anything")
        if self._once:
            self._one_identity(state, late)
        for row in state.rows:
            self._row(state, row, applied, late)

    def _row(self, state: State, row: Row, applied: Counter[str], late: set[str]) -> None:
        effect = row.record.effect
        if row.record.state.status == "done":
            self._done(state, row, applied)
        if effect is None:
            return
        key, times = effect.key, applied[effect.key]
        hidden = effect.outcome == "failed" and not effect.contradicted and times
        if hidden and key not in late and key not in state.said:
            raise Violation("an effect that was applied is recorded as failed")
        told = (
            {int(name.split(":")[-2]) for name in row.known if name.endswith(":returned")} if not row.inbox else set()
        )
        known = {a.number for a in effect.doubt.attempts if a.settled not in {"", "returned"}}
        if told & known and not effect.contradicted:
            raise Violation("a fenced worker saw success after all, and nothing says so")
        if effect.outcome == "confirmed" and not times and effect.by != "once" and key not in state.said:
            raise Violation("an effect that was never applied is recorded as confirmed")
        if effect.approval is not None and effect.attempt:
            approval = row.record.state.approvals[effect.approval]
            if approval.permits(approval.binding, row.record.state.seq):
                raise Violation("an approval that was used would be good for another effect")

    def _done(self, state: State, row: Row, applied: Counter[str]) -> None:
        """What landed late beside its own resend must have been found by the question that is asked before the end."""
        for key in {r.key for r in state.requests if state.rows[r.run] is row}:
            times = [one.at for one in state.ledger if one.key == key]
            quiet = [r.quiet for r in state.requests if r.key == key]
            if applied[key] < 2 or key in state.said or self._repeatable or None in quiet:
                continue
            asked = max(moment for moment in quiet if moment is not None) + (self._facts.visible_ms or 0)
            if max(times) < asked:
                raise Violation("a run is done, and nobody noticed that its effect was applied twice")

    @staticmethod
    def _one_identity(state: State, late: set[str]) -> None:
        if len(state.ledger) > 1 and not late and not state.said:
            raise Violation("a business identity is applied twice")
        holders = [
            effect
            for row in state.rows
            for effect in row.record.state.effects()
            if effect.attempt and not (effect.outcome == "failed" and (effect.final or row.record.state.ended))
        ]
        if len(holders) > 1:
            raise Violation("a business identity is started by two runs")

    # ------------------------------------------------------------ when nothing goes wrong any more

    def ends(self, state: State, fair: Fair) -> None:
        """Follow the way on which nothing more goes wrong: it comes to an end, or to a person."""
        way: list[State] = []
        following: State | None = state
        while following is not None and following not in self._comes_to_rest:
            way.append(following)
            if len(way) > MOST_FAIR_STEPS:
                raise Violation("nothing goes wrong any more, and it never comes to rest")
            following = fair(following)
        if following is None:
            self._rests(way[-1])
        self._comes_to_rest.update(way)

    @staticmethod
    def _rests(state: State) -> None:
        for row in state.rows:
            if not rests(row, state):
                raise Violation(f"a run is {row.record.state.status}, and nobody will ever look at it again")


def rests(row: Row, state: State) -> bool:
    """Say whether a run has ended with everything settled, or waits for a person, or for a run that does."""
    run = row.record.state
    unsettled = [f for f in run.effects() if (f.open or f.verify_from is not None) and not f.doubt.person]
    if row.owner is not None or row.inbox:
        return False
    if run.status == "blocked" or (run.status == "parked" and run.ask):
        return True
    if run.status in ENDED:
        return not unsettled
    holders = [claimed.run for _, claimed in state.once if state.rows[claimed.run] is not row]
    return run.status == "parked" and any(
        rests(state.rows[holder], state) and _open(state.rows[holder]) for holder in holders
    )


def _open(row: Row) -> bool:
    return any(effect.open for effect in row.record.state.effects())
