"""How the limits of a run change: wider and narrower by a person's word, and free again what nothing needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milepost.core.budget import NOTHING
from milepost.core.pools import unneeded

if TYPE_CHECKING:
    from milepost.core.entries import Widened
    from milepost.core.limit_entries import Narrowed, Overspent
    from milepost.core.state import RunState
    from milepost.core.word_entries import WordSigned


def widened(s: RunState, entry: Widened) -> None:
    """Add scopes and money; a scope that was revoked and is granted anew is held again."""
    s.scopes = tuple(sorted({*s.scopes, *entry.scopes}))
    s.revoked = tuple(scope for scope in s.revoked if scope not in entry.scopes)
    s.ledger.grant(entry.budget)


def narrowed(s: RunState, entry: Narrowed) -> None:
    """Take scopes away, wherever they came from, and lower what was granted."""
    s.scopes = tuple(scope for scope in s.scopes if scope not in entry.scopes)
    s.revoked = tuple(sorted({*s.revoked, *entry.scopes}))
    s.ledger.lower(entry.ceilings)


def word_taken(s: RunState, entry: WordSigned) -> None:
    """Remember a signed word: it is taken once."""
    s.words = (*s.words, entry.id)


def overspent(s: RunState, entry: Overspent) -> None:
    """Add up what was spent above its reservation."""
    for unit, amount in entry.over.items():
        s.overspent[unit] = s.overspent.get(unit, NOTHING) + amount


def release(s: RunState) -> None:
    """Let go what is held for steps that are neither started nor unknown: nothing goes on with them."""
    for step in unneeded(s):
        s.ledger.release(step)
