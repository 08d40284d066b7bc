"""What is written beside entries, for people and for other processes to read: rows that follow from the state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from milepost.core import entries as e
from milepost.core.approval_entries import ApprovalClosed
from milepost.core.steps import Effect
from milepost.stores.api import ApprovalRow, EffectRow

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from milepost.core.state import RunState
    from milepost.stores.api import Append


def merge(into: Append, append: Append) -> None:
    """Add an append to one of the same run that stands before it in the queue."""
    if append.boundary is not None:
        into.boundary = len(into.entries) + append.boundary
    into.entries.extend(append.entries)
    if append.effects:
        into.effects = [*into.effects, *append.effects]
    if append.approvals:
        into.approvals = [*into.approvals, *append.approvals]
    if append.answers:
        into.answers = [*into.answers, *append.answers]
    if append.once_settled:
        into.once_settled = [*into.once_settled, *append.once_settled]
    if append.spent:
        into.spent = [*into.spent, *append.spent]
    if append.overspent:
        into.overspent = append.overspent
    if append.tried:
        if type(into.tried) is list:
            into.tried.extend(append.tried)
        else:
            into.tried = [*into.tried, *append.tried]
    if append.chunks:
        into.chunks = {**(into.chunks or {}), **append.chunks}


class Approvals:
    """What people see of approvals, gathered over the entries of one append.

    `rows` are new ones, `answers` what became of others. What a visit leaves behind open is void from then on.
    """

    __slots__ = ("_about", "_became", "_last", "_open", "_state", "rows")

    def __init__(self, state: RunState, about: list[str], beside: dict[str, Any]) -> None:
        self._state = state
        self._about = about
        self._open = self._open_now()
        self.rows: list[ApprovalRow] = []
        self._became: list[tuple[str, str, str]] = []
        self._last = beside.pop("answers", ())  # whoever writes them knows better

    @property
    def answers(self) -> list[tuple[str, str, str]]:
        """What became of approvals that stood before, as (id, verdict, by)."""
        return [*self._became, *self._last]

    def _open_now(self) -> list[str]:
        found = self._state.approvals
        return [id_ for id_ in self._about if id_ in found and found[id_].open]

    def after(self, entry: e.Entry) -> None:
        """Look at the state, to which an entry was applied."""
        if not self._about:
            return
        after = self._state.approvals
        if isinstance(entry, e.ApprovalAsked):
            effect = self._state.steps.get(entry.step)
            assert isinstance(effect, Effect), "an approval is asked for an effect that is planned"
            seen = (effect.step, effect.path, effect.tool, bytes(effect.args))
            self.rows.append(ApprovalRow(entry.id, self._state.run, *seen, entry.at, "asked"))
        elif isinstance(entry, e.ApprovalAnswered) and entry.approved:
            self._became.append((entry.id, "approved", entry.by))
        for id_ in self._open:
            approval = after.get(id_)
            if approval is None or self._state.ended:
                self._became.append((id_, "void", ""))
            elif not approval.open:
                self._became.append((id_, approval.verdict, approval.by))
        self._open = self._open_now()


class Foreseen:
    """What people see of approvals where entries say nothing of any, as most do, or only that a start uses one."""

    __slots__ = ("answers",)
    rows = ()

    def __init__(self, *answers: tuple[str, str, str]) -> None:
        self.answers = answers

    def after(self, entry: e.Entry) -> None:
        """Look at nothing."""


NOTHING = Foreseen()


def seeing(state: RunState, entries: Sequence[e.Entry], beside: dict[str, Any]) -> Approvals | Foreseen:
    """Return what gathers what people see of approvals."""
    if "answers" not in beside and len(entries) == 1 and type(start := entries[0]) is e.EffectStarted:
        if start.approval is None:
            return NOTHING
        used = state.approvals.get(start.approval)
        if used is not None and used.open:
            return Foreseen((used.id, "used", used.by))
    about = _named(state, entries)
    return Approvals(state, about, beside) if about or "answers" in beside else NOTHING


# What says nothing of any approval, and what speaks of those that it names. Everything else may end them all.
_SILENT = frozenset({
    e.EffectPlanned, e.EffectConfirmed, e.EffectFailed, e.EffectUnknown, e.AttemptSettled, e.AttemptQuieted,
    e.FindingRecorded, e.PersonNeeded, e.CredentialUsed, e.ReadReturned, e.ReadFailed, e.ReadCancelled,
})  # fmt: skip
_SPEAKING = frozenset({e.ApprovalAsked, e.ApprovalAnswered, ApprovalClosed})


def _named(state: RunState, entries: Sequence[e.Entry]) -> list[str]:
    """Return the ids of the approvals that entries, not applied yet, may change."""
    ids: list[str] = []
    for entry in entries:
        kind = type(entry)
        if kind in _SILENT:
            continue
        if kind is e.EffectStarted:
            if entry.approval is not None:  # type: ignore[attr-defined]
                ids.append(entry.approval)  # type: ignore[attr-defined]
        elif kind in _SPEAKING:
            ids.append(entry.id)  # type: ignore[attr-defined]
        else:
            ids = [*state.approvals, *(one.id for one in entries if type(one) is e.ApprovalAsked)]
            break
    return ids if len(ids) < 2 else list(dict.fromkeys(ids))  # noqa: PLR2004  one by itself is named once


def _row(effect: Effect) -> EffectRow:
    gone = (effect.outcome == "confirmed" and effect.verify_from is None) or (
        effect.outcome == "failed" and effect.final
    )
    if gone:
        return EffectRow(effect.step, None)
    attempts = effect.doubt.attempts
    return EffectRow(
        effect.step,
        effect.outcome,
        effect.path,
        effect.tool,
        effect.effect,
        len(attempts),
        attempts[-1].started_at if attempts else None,
        effect.why or None,
        effect.doubt.person or None,
    )


# What ends a visit or a run, or begins the visit anew: what failed before it is not tried again under the same key.
LEAVING = frozenset({e.Checkpointed, e.RewindAsked, e.RunDone, e.RunStopped, e.SegmentFailed, e.Retried})

UNBEGUN = frozenset({"not_started", "failed"})


def left(state: RunState, entry: e.Entry) -> list[EffectRow]:
    """Return the rows that go when an entry ends a visit: what is not begun, or failed, is not begun there any more.

    What is in flight or unknown stays until it is settled, and what is contradicted until a person has looked into it.
    """
    everything = type(entry) is e.RewindAsked
    return [
        EffectRow(effect.step, None)
        for effect in state.effects()
        if everything or (effect.outcome in UNBEGUN and not effect.final and not effect.doubt.person)
    ]


ROWS: dict[type[e.Entry], Callable[[Effect], EffectRow]] = dict.fromkeys(
    (
        e.EffectPlanned,
        e.EffectStarted,
        e.EffectConfirmed,
        e.EffectFailed,
        e.EffectUnknown,
        e.AttemptSettled,
        e.PersonNeeded,
        e.FindingRecorded,
        e.Contradicted,
    ),
    _row,
)
