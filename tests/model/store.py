"""The store of the model: the append rules themselves (core/append.py), over rows that are values.

What the embedded store does in a transaction is one step here. `test_store_agrees` shows that both answer alike.
"""

from __future__ import annotations

from collections.abc import Callable

from milepost.core import append as rules
from milepost.core import codec
from milepost.core import entries as e
from milepost.errors import IllegalOutcome
from milepost.stores.waits import once_scope
from tests.model.desk import TOOL, Put
from tests.model.explorer import Violation
from tests.model.places import Claimed, Row, State
from tests.model.records import Record, Records

Refused = tuple[object, ...]


class Store:
    """Commits to states. `watch` sees every entry that was accepted: the record before, the entry, the record after."""

    def __init__(self, records: Records, watch: Callable[[Record, e.Entry, Record], None]) -> None:
        self._records = records
        self._watch = watch

    def write(self, row: Row, bodies: tuple[bytes, ...]) -> Row:
        """Add entries to a run. A transition that the table does not have is a broken rule, not a refusal."""
        record = row.record
        for body in bodies:
            entry = codec.decode(body)
            try:
                after = self._records.after(record, body)
            except IllegalOutcome as illegal:
                raise Violation("a transition that is not in the table") from illegal
            self._watch(record, entry, after)
            record = after
        return row._replace(record=record)

    def append(self, state: State, run: int, epoch: int, worker: int, put: Put) -> tuple[State, Refused | None]:
        """Commit one append, or say what refuses it: ("switch", scope), ("once", holder…) or ("epoch",)."""
        row = state.rows[run]
        scope = rules.switched_off(put.scopes, state.switches)
        if scope is not None:
            return state, ("switch", scope)
        if rules.epoch_lost(epoch, row.record.state.epoch):
            return state, ("epoch",)
        once = dict(state.once)
        if put.once is not None:
            value, step, digest = put.once
            holder = once.get(value)
            if holder is not None and rules.identity_taken(holder):
                named = (state.rows[holder.run].record.state.run, *holder[1:])
                return state, ("once", *named)
            once[value] = Claimed(run, step, digest, "started", None)
        settled = _settle(once, run, put)
        row = self.write(row, put.entries)
        if state.switches and put.scopes:
            raise Violation("something starts though its tool is held")
        row = row._replace(inbox=tuple(mail for mail in row.inbox if mail[0] not in put.taken))
        switches = (state.switches | set(put.holds)) - set(put.lifts)
        open_ = {_scope(value) for value, holder in once.items() if holder.outcome != "confirmed"}
        if put.release is not None:
            now, due = put.release
            row = row._replace(owner=None, due=now if row.inbox and now is not None else due, waits=put.waits)
            if any(scope not in switches | open_ for scope in put.waits):
                row = _woken(row, put.at)
        state = woken(state.with_row(run, row), {*settled, *put.lifts} - switches, put.at, but=run)
        if put.lease is not None:
            w = state.workers[worker]
            state = state.with_worker(worker, w._replace(row=max(w.row, put.lease), lease=max(w.lease, put.lease)))
        return state._replace(once=tuple(sorted(once.items())), switches=switches), None

    def claim(self, state: State, run: int, worker: str, owner_was: str | None) -> State | None:
        """Take a run under the next epoch; None where it is not with whom it was seen."""
        row = state.rows[run]
        if rules.claim_lost(row.owner, owner_was):
            return None
        epoch = rules.next_epoch(row.record.state.epoch)
        claimed = codec.encode(e.Claimed(at=state.now, epoch=epoch, owner=worker))
        return state.with_row(run, self.write(row, (claimed,))._replace(owner=worker, due=None, waits=()))

    def kill(self, state: State, run: int) -> State | None:
        """Take the epoch of a run from whoever holds it, and end it; None where it has ended."""
        row = state.rows[run]
        before = row.record.state
        if not rules.may_be_killed(before.status):
            return None
        left = tuple(effect.path for effect in before.unsettled())
        epoch = rules.next_epoch(before.epoch)
        stopped = e.RunStopped(at=state.now, status="killed", code="killed", why="", epoch=epoch, unknown=left)
        row = self.write(row, (codec.encode(stopped),))
        listed = [effect.outcome for effect in before.effects() if effect.open or effect.verify_from is not None]
        due = state.now if row.inbox or any(map(rules.settles_later, listed)) else None
        steps = {effect.step for effect in before.effects() if effect.outcome == "failed" and effect.attempt}
        once = tuple((value, holder) for value, holder in state.once if holder.run != run or holder.step not in steps)
        freed = {_scope(value) for value, _ in state.once if value not in dict(once)}
        state = state.with_row(run, row._replace(owner=None, due=due, waits=()))
        return woken(state, freed, state.now)._replace(once=once)

    @staticmethod
    def deliver(state: State, run: int, name: str, body: bytes) -> State:
        """Put a message into an inbox, once for each name, and wake a run that nobody holds."""
        row = state.rows[run]
        if name in row.known:
            return state
        row = row._replace(inbox=(*row.inbox, (len(row.known) + 1, body)), known=row.known | {name})
        if row.owner is None:
            row = row._replace(due=state.now if row.due is None else min(row.due, state.now))
        return state.with_row(run, row)


def woken(state: State, scopes: set[str], now: int, but: int | None = None) -> State:
    """Make those due who wait for a scope that stands no more."""
    for run, row in enumerate(state.rows):
        if run != but and row.owner is None and not scopes.isdisjoint(row.waits):
            state = state.with_row(run, _woken(row, now))
    return state


def _woken(row: Row, now: int) -> Row:
    return row._replace(due=now if row.due is None else min(row.due, now))


def _scope(value: str) -> str:
    return once_scope("", TOOL, value)


def _settle(once: dict[str, Claimed], run: int, put: Put) -> set[str]:
    """Settle identities; return the scopes for which others may have waited."""
    changed = set()
    for value, step, outcome, result in put.settles:
        holder = once.get(value)
        if holder is not None and (holder.run, holder.step) == (run, step):
            if outcome is None:
                del once[value]
            else:
                once[value] = holder._replace(outcome=outcome, result=result)
            changed.add(_scope(value))
    return changed
