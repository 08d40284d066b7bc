"""What a store must refuse, whatever it stores in: the rules of an append, decided on values.

Whoever writes to a run says under which epoch. The transaction reads what stands now and asks these rules; a refusal
leaves everything as it was.

  epoch      only the latest epoch may write. Claiming a run and killing it are the two things that raise it, and
             neither asks whoever holds the run.
  switches   what holds a `started` names the scopes that it falls under; one that is switched off refuses it.
  identity   a business identity is claimed with the first `started` of its effect, and has one holder.
  claim      a run is taken from whom it was last seen with, or not at all: of two that saw the same, one gets it.

A store may find out faster (a count of changed rows says as much), but its answer must be the one given here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from milepost.core.state import ENDED

if TYPE_CHECKING:
    from collections.abc import Container, Iterable


def next_epoch(epoch: int) -> int:
    """Return the epoch under which whoever takes a run now writes to it."""
    return epoch + 1


def epoch_lost(held: int, found: int | None) -> bool:
    """Say whether an append under `held` is refused, where `found` is the run's epoch now (None: there is no run)."""
    return held != found


def switched_off(scopes: Iterable[str], switches: Container[str]) -> str | None:
    """Return the first scope that a switch stands on, None where the append may go on."""
    return next((scope for scope in scopes if scope in switches), None)


def identity_taken(holder: object | None) -> bool:
    """Say whether a business identity is refused, where `holder` is what is recorded of it now (None: nothing)."""
    return holder is not None


def holds_identity(run: str, step: str, holder: str, held_at: str, outcome: str) -> bool:
    """Say whether an identity is claimed by the effect itself, which is tried again after its run was taken in."""
    return (run, step, "started") == (holder, held_at, outcome)


def claim_lost(owner: str | None, owner_was: str | None) -> bool:
    """Say whether a claim is refused: the run is not, or no longer, with the owner that it was seen with."""
    return owner != owner_was


def settles_later(outcome: str) -> bool:
    """Say whether an effect that is still listed as open is to be looked into after its run was killed.

    One that is confirmed and still listed was sent again after it was proven absent: it is to be asked about once more.
    """
    return outcome in {"started", "unknown", "confirmed"}


def may_be_killed(status: str) -> bool:
    """Say whether a kill takes the epoch of a run with this status: what has ended starts nothing by itself."""
    return status not in ENDED
