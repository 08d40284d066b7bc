"""Grants and resolutions at the edge: with a trust file they count only with the signature of an operator who may.

A signed one is kept in the record together with its signature, in front of what it became, also where nobody asks for
one: so that `milepost verify --trust` can look at all of them again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from milepost.core import entries as e
from milepost.core import messages as m
from milepost.core import words
from milepost.core.inbox import find_effect
from milepost.core.word_entries import WordSigned

if TYPE_CHECKING:
    from milepost.runtime.session import Session


def statement_of(session: Session, message: m.AnyMessage) -> bytes | None:
    """Return the bytes that a grant or a resolution must have signed; None for what is signed otherwise or not."""
    store = session.engine.store.id
    if isinstance(message, m.Grant):
        return words.granted(store, session.run_id, message)
    effect = find_effect(session.state, message.path) if isinstance(message, m.Resolve) else None
    if effect is None or not isinstance(message, m.Resolve):
        return None  # of an effect that is not there, nothing can be said
    return words.resolved(store, session.run_id, message, key=effect.key, attempt=effect.attempt)


def unfit(session: Session, message: m.AnyMessage) -> list[e.Entry]:
    """Return the refusal of a grant or a resolution that was taken before, or that nobody signed who may give it."""
    said = statement_of(session, message)
    if said is None or not isinstance(message, m.Grant | m.Resolve):
        return []
    operators, now = session.engine.operators, session.engine.clock.now()
    refused = words.replayed(session.state, message)
    if refused is None and operators is not None:
        refused = operators.refused(message.by, said, message.signature, now)
    if refused is None:
        return []
    code, why = refused
    if isinstance(message, m.Resolve):
        return [e.MessageRefused(at=now, kind="resolve", why=why, by=message.by, code=code, about=message.path)]
    about = ", ".join([*message.scopes, *(f"{unit}={amount:f}" for unit, amount in message.budget.items())])
    return [e.MessageRefused(at=now, kind="grant", why=why, by=message.by, code=code, about=about)]


def beside(said: bytes | None, message: m.AnyMessage, entries: list[e.Entry]) -> list[e.Entry]:
    """Return what a message became, behind the word itself where it was signed and counts."""
    if said is None or not isinstance(message, m.Grant | m.Resolve) or not message.signature:
        return entries
    if any(isinstance(entry, e.MessageRefused) for entry in entries):
        return entries
    kind = "grant" if isinstance(message, m.Grant) else "resolve"
    word = WordSigned(
        at=entries[0].at, id=message.id, kind=kind, by=message.by, said=msgspec.Raw(said), signature=message.signature
    )
    return [word, *entries]
