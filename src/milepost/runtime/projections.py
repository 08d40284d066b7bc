"""What is written beside entries, for people and for other processes to read: rows that follow from the state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milepost.core import entries as e
from milepost.stores.api import ApprovalRow, EffectRow

if TYPE_CHECKING:
    from collections.abc import Callable

    from milepost.core.state import RunState
    from milepost.core.steps import Effect
    from milepost.stores.api import Append


def merge(into: Append, append: Append) -> None:
    """Add an append to one of the same run that stands before it in the queue."""
    if append.boundary is not None:
        into.boundary = len(into.entries) + append.boundary
    into.entries.extend(append.entries)
    if append.effects:
        into.effects = [*into.effects, *append.effects]
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


def approval_row(run_id: str, effect: Effect, id_: str, at: int) -> ApprovalRow:
    """Return an approval as people will see it."""
    return ApprovalRow(id_, run_id, effect.step, effect.path, effect.tool, bytes(effect.args), at, "asked")


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


def left(state: RunState, entry: e.Entry) -> list[EffectRow]:
    """Return the rows that go when an entry leaves a segment half-way: what it planned is not begun any more."""
    return [EffectRow(effect.step, None) for effect in state.effects()] if type(entry) is e.RewindAsked else []


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
