"""Run states as values: two records of which the protocol cannot tell one from the other are one.

Entries pass through the real codec and the real `RunState.apply`. A record is never changed after it was made; what is
learnt once about it (which entry leads where) is kept.
"""

from __future__ import annotations

import copy
from typing import Any

from milepost.core import codec
from milepost.core.approval import Approvals
from milepost.core.budget import Ledger
from milepost.core.outcome import Doubt
from milepost.core.state import RunState
from milepost.core.steps import Effect


class Record:
    """One state of a run."""

    __slots__ = ("after", "state")

    def __init__(self, state: RunState) -> None:
        self.state = state
        self.after: dict[bytes, Record] = {}

    @property
    def effect(self) -> Effect | None:
        """The one effect of the run, once it is planned."""
        return next(iter(self.state.effects()), None)


class Records:
    """All records of one exploration."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], Record] = {}

    def of(self, state: RunState) -> Record:
        """Return the record of a state that nobody changes any more."""
        key = _key(state)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = Record(state)
        return found

    def after(self, record: Record, body: bytes) -> Record:
        """Return the record after an entry, given as its stored bytes. Raises what `RunState.apply` raises."""
        found = record.after.get(body)
        if found is None:
            state = copied(record.state)
            state.apply(codec.decode(body))
            found = record.after[body] = self.of(state)
        return found


def copied(state: RunState) -> RunState:
    """Return a state that can be changed without changing this one."""
    new = copy.copy(state)
    new.owners = dict(state.owners)
    new.steps = {name: _copied_step(step) for name, step in state.steps.items()}
    new.approvals = Approvals(map(copy.copy, state.approvals.values()))
    ledger = state.ledger
    new.ledger = Ledger(dict(ledger.granted), dict(ledger.spent), dict(ledger.reserved), dict(ledger.since))
    new.overspent = dict(state.overspent)
    new.signals, new.children = list(state.signals), dict(state.children)
    new.child_results, new.visits = dict(state.child_results), dict(state.visits)
    return new


def _copied_step(step: Any) -> Any:
    new = copy.copy(step)
    if type(step) is Effect:
        doubt = step.doubt
        attempts = [copy.copy(attempt) for attempt in doubt.attempts]
        new.doubt = Doubt(attempts, doubt.asks, list(doubt.absences), doubt.ask_at, doubt.person)
        new.credentials = dict(step.credentials)
    return new


def _key(s: RunState) -> tuple[Any, ...]:
    """Return all that the protocol can see of a state: no texts for people, nor how many entries led here."""
    return (
        s.run,
        s.status,
        s.epoch,
        s.owner,
        s.visit,
        s.cancel is not None,
        s.generation,
        s.segment_attempt,
        s.retry_at,
        s.waits_for if s.status == "parked" else "",
        bool(s.ask) and s.status == "parked",
        tuple(_effect_key(effect) for effect in s.effects()),
        tuple((a.id, a.verdict) for a in s.approvals.values()),
        tuple((marker.path, marker.outcome) for marker in s.finished),
    )


def _effect_key(f: Effect) -> tuple[Any, ...]:
    doubt = f.doubt
    return (
        f.key,
        f.version,
        f.outcome,
        f.final,
        f.retry_at,
        f.reason,
        f.by,
        f.approval,
        f.contradicted,
        f.verify_from,
        doubt.asks,
        tuple(doubt.absences),
        doubt.ask_at,
        bool(doubt.person),
        tuple((a.number, a.started_at, a.epoch, a.owner, a.quiet_at, a.died, a.settled) for a in doubt.attempts),
    )
