"""What a person's word is bound to where it is signed, and whether the record made of it just what was signed."""

from decimal import Decimal
from typing import Any

import msgspec
import pytest

from milepost.core import entries as e
from milepost.core import messages as m
from milepost.core import words
from milepost.core.statement import GRANT, RESOLUTION, domain_of
from milepost.core.steps import Effect
from milepost.core.word_entries import WordSigned
from tests.core import samples as say

STORE = "store-1"
GRANTED: dict[str, Any] = {"at": 7, "by": "ann", "scopes": ("pay",), "budget": {"usd": Decimal("1.50")}, "id": "w-1"}
RESOLVED: dict[str, Any] = {"at": 7, "by": "ann", "path": say.PATH, "answer": "happened", "why": "seen", "id": "w-1"}


def word(said: bytes, kind: str = "grant", by: str = "ann", id_: str = "w-1") -> WordSigned:
    return WordSigned(at=9, id=id_, kind=kind, by=by, said=msgspec.Raw(said), signature="s")


def widened(**changes: Any) -> e.Widened:
    facts = {"by": "ann", "scopes": ("pay",), "budget": {"usd": Decimal("1.50")}}
    return e.Widened(at=9, **{**facts, **changes})


def doubted(attempts: int = 1, **changes: Any) -> Effect:
    """Return the effect that is resolved, as the record has it."""
    effect: Effect = say.effect(say.run(say.started(), say.lost(11)))
    effect.doubt.attempts *= attempts
    return msgspec.structs.replace(effect, **changes)


def differs(said: bytes, entry: words.Worded, kind: str = "resolve", value: bytes = b'"ok"', **changes: Any) -> str:
    effect = doubted(**changes) if kind == "resolve" else None
    return words.disagreement(word(said, kind), entry, STORE, say.RUN, effect=effect, value=value)


def resolved(answer: str = "happened", value: bytes = b'"ok"', **changes: Any) -> bytes:
    message = m.Resolve(**{**RESOLVED, "answer": answer, "value": msgspec.Raw(value), **changes})
    return words.resolved(STORE, say.RUN, message, key="k1", attempt=1)


def test_a_grant_and_a_resolution_are_statements_in_domains_of_their_own() -> None:
    said = words.granted(STORE, say.RUN, m.Grant(**GRANTED))

    assert domain_of(said) == GRANT
    assert msgspec.json.decode(said)["budget"] == {"usd": "1.50"}, "an amount is signed as it was written"
    assert domain_of(resolved()) == RESOLUTION
    of_effect = {"path": say.PATH, "key": "k1", "attempt": 1, "value": words.digest_of_value(b'"ok"')}
    of_word = {"store": STORE, "run": say.RUN, "id": "w-1", "by": "ann", "at": 7, "why": "seen", "answer": "happened"}
    assert msgspec.json.decode(resolved()) == {"domain": RESOLUTION, **of_word, **of_effect}


@pytest.mark.parametrize("what", ["store", "run", "id", "by", "at", "why", "scopes", "budget"])
def test_whatever_is_another_in_a_grant_is_another_statement(what: str) -> None:
    """Requirement 20."""
    others: dict[str, Any] = {"id": "v", "by": "bo", "at": 8, "why": "x", "scopes": (), "budget": {"usd": Decimal(1)}}
    there = m.Grant(**{**GRANTED, **({what: others[what]} if what in others else {})})
    store, run = ("x" if what == one else said for one, said in (("store", STORE), ("run", say.RUN)))

    assert words.granted(store, run, there) != words.granted(STORE, say.RUN, m.Grant(**GRANTED))


def test_a_signed_word_is_taken_once_over_every_boundary_and_an_unsigned_one_has_no_id_to_be_known_by() -> None:
    signed = m.Grant(**GRANTED, signature="s")
    state = say.run()
    assert words.replayed(state, signed) is None

    state.apply(word(b"{}"))

    assert words.replayed(state, signed) == ("replayed", "this word of 'ann' was taken before")
    assert words.replayed(state, m.Grant(**GRANTED)) is None
    state.apply(e.Checkpointed(at=9, boundary=say.boundary(visit=1, words=state.words)))
    assert words.replayed(state, signed) is not None
    state.apply(e.Checkpointed(at=9, boundary=say.boundary(visit=2)))
    assert words.replayed(state, signed) is None, "a boundary that forgets would let it count again"


@pytest.mark.parametrize(
    ("entry", "kind"),
    [
        (widened(), "grant"),
        (say.confirmed(by="person ann"), "resolve"),
        (say.failed(by="person ann", reason="person"), "resolve"),
        (e.FindingRecorded(at=9, step=say.STEP, answer="happened", by="person ann"), "resolve"),
        (say.failed(by="person ann", reason="denied"), ""),
        (say.confirmed(), ""),
        (e.FindingRecorded(at=9, step=say.STEP, answer="happened"), ""),
        (e.CancelAsked(at=9, by="person ann", why=""), ""),
        (say.started(), ""),
    ],
)
def test_what_rests_on_a_word_is_known_by_its_entry(entry: e.Entry, kind: str) -> None:
    assert words.needs_word(entry) == kind


def test_what_the_record_made_of_a_word_is_what_was_signed() -> None:
    """Requirement 48."""
    found = e.FindingRecorded(at=9, step=say.STEP, answer="happened", evidence="seen", by="person ann")

    assert differs(words.granted(STORE, say.RUN, m.Grant(**GRANTED)), widened(), "grant") == ""
    assert differs(resolved(), say.confirmed(by="person ann", why="seen")) == ""
    assert differs(resolved("rejected"), say.failed(by="person ann", reason="rejected", why="seen")) == ""
    assert differs(resolved("did_not_happen"), say.failed(by="person ann", reason="person", why="seen")) == ""
    assert differs(resolved(), found) == ""
    assert differs(resolved(path=say.STEP), found) == "", "an effect is named by its step as well"


@pytest.mark.parametrize(
    ("entry", "effect", "value", "facts"),
    [
        (say.confirmed(by="person ann", why="seen"), {"key": "k2"}, b'"ok"', "key"),
        (say.confirmed(by="person ann", why="seen"), {"path": "pay/charge#2"}, b'"ok"', "path"),
        (say.confirmed(by="person ann", why="seen"), {"attempts": 2}, b'"ok"', "attempt"),
        (say.confirmed(by="person ann", why="seen"), {}, b'"no"', "value"),
        (say.confirmed(by="person bo", why="unseen"), {}, b'"ok"', "by, why"),
        (say.failed(by="person ann", reason="rejected", why="seen"), {}, b"", "answer"),
        (say.failed(by="person ann", reason="person", why="seen"), {}, b"", "answer"),
        (widened(), {}, b"", "budget, domain, scopes, why"),
    ],
)
def test_what_the_record_made_of_a_word_and_was_not_signed_is_named(
    entry: words.Worded, effect: dict[str, Any], value: bytes, facts: str
) -> None:
    """Requirement 48."""
    assert differs(resolved(), entry, value=value, **effect) == facts


def test_a_grant_of_more_than_was_signed_and_a_word_under_another_id_are_named() -> None:
    said = words.granted(STORE, say.RUN, m.Grant(**GRANTED))

    assert differs(said, widened(budget={"usd": Decimal(100)}), "grant") == "budget"
    other = word(said, id_="w-2")
    assert words.disagreement(other, widened(), STORE, say.RUN, value=b"") == "id"
    assert words.disagreement(word(said), widened(), "store-2", "run-2", value=b"") == "run, store"


def test_what_is_signed_in_the_name_of_one_operator_with_the_key_of_another_is_named() -> None:
    said = words.granted(STORE, say.RUN, m.Grant(**GRANTED))

    assert differs(said, widened(), "grant") == ""
    assert words.disagreement(word(said, by="bo"), widened(), STORE, say.RUN, value=b"") == "by"


def test_signed_bytes_that_are_no_statement_are_no_words() -> None:
    with pytest.raises(msgspec.DecodeError):
        differs(b"[1]", widened(), "grant")
