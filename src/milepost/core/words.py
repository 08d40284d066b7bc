"""What a person's word is bound to where it is signed: a grant, or what they say of an unknown effect.

  grant    store, run, what is granted, and an id of its own
  resolve  store, run, the path and the key of the effect, its latest attempt, the answer, the digest of the value

A grant that is delivered again would give twice, and a resolution could settle the next doubt as well. So the id of
each signed word is remembered by the run, over every boundary, and taken once. An approval needs none of this: it is
bound to a request that is closed by its answer (core/approval.py).

The bytes that were signed and the signature stand in the record in front of what they became. `disagreement` says
whether that is what was signed; whose signature it is, is for whoever has the trust file.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

import msgspec

from milepost.core import entries as e
from milepost.core.approval import REPLAYED
from milepost.core.statement import GRANT, RESOLUTION, statement
from milepost.core.word_entries import WordSigned

if TYPE_CHECKING:
    from collections.abc import Mapping
    from decimal import Decimal

    from milepost.core import messages as m
    from milepost.core.state import RunState
    from milepost.core.steps import Effect

_said = msgspec.json.Decoder(dict[str, Any])
KINDS: Final = ("answer", "grant", "resolve")  # of messages whose refusal somebody has to hear of
OF_PERSON: Final = "person "
Worded = e.Widened | e.EffectConfirmed | e.EffectFailed | e.FindingRecorded  # what may rest on a word


def granted(store: str, run: str, message: m.Grant) -> bytes:
    """Return the bytes that a grant signs. `store` is the id of the store: a copy elsewhere has another."""
    facts = {**_facts(store, run, message), "scopes": list(message.scopes), "budget": _texts(message.budget)}
    return statement(GRANT, facts)


def resolved(store: str, run: str, message: m.Resolve, *, key: str, attempt: int) -> bytes:
    """Return the bytes that a resolution signs; `key` and `attempt` are those of the effect as the record has it."""
    facts = {
        **_facts(store, run, message),
        "path": message.path,
        "key": key,
        "attempt": attempt,
        "answer": message.answer,
        "value": digest_of_value(bytes(message.value)),
    }
    return statement(RESOLUTION, facts)


def _facts(store: str, run: str, message: m.Grant | m.Resolve) -> dict[str, Any]:
    return {"store": store, "run": run, "id": message.id, "by": message.by, "at": message.at, "why": message.why}


def digest_of_value(data: bytes) -> str:
    """Return the digest of a value in a statement: of its bytes as they were sent."""
    return sha256(data).hexdigest()


def _texts(budget: Mapping[str, Decimal]) -> dict[str, str]:
    return {unit: str(amount) for unit, amount in budget.items()}


def replayed(state: RunState, message: m.Grant | m.Resolve) -> tuple[str, str] | None:
    """Return why a signed word does not count, as a stable word and a sentence; None where it may."""
    if message.signature and message.id in state.words:
        return REPLAYED, f"this word of {message.by!r} was taken before"
    return None


# ---------------------------------------------------------------- the record against what was signed


def needs_word(entry: e.Entry) -> str:
    """Return which kind of word an entry rests on: `grant`, `resolve`, or none."""
    if not isinstance(entry, Worded) or (isinstance(entry, e.EffectFailed) and entry.reason == "denied"):
        return ""  # a denial answers an approval, and that carries its own signature
    if isinstance(entry, e.Widened):
        return "grant"
    return "resolve" if entry.by.startswith(OF_PERSON) else ""


def disagreement(
    word: WordSigned, entry: Worded, store: str, run: str, *, effect: Effect | None = None, value: bytes
) -> str:
    """Return in what an entry differs from the word in front of it, empty where it is just what was signed.

    `effect` is what the entry settles, as it stood then, and `value` are the bytes of its result. Raises
    msgspec.DecodeError where what was signed is no statement.
    """
    said = _said.decode(word.said)
    expected = {"store": store, "run": run, "id": word.id, **_expected(entry, value)}
    if effect is not None:
        named = effect.step if said.get("path") == effect.step else effect.path
        expected |= {"path": named, "key": effect.key, "attempt": effect.attempt}
    differs = {fact for fact, wanted in expected.items() if said.get(fact) != wanted}
    if word.by != expected["by"]:
        differs.add("by")  # whose key it is looked at with is who is named
    return ", ".join(sorted(differs))


def _expected(entry: Worded, value: bytes) -> dict[str, Any]:
    if isinstance(entry, e.Widened):
        of_grant = {"scopes": list(entry.scopes), "budget": _texts(entry.budget)}
        return {"domain": GRANT, "by": entry.by, "why": entry.why, **of_grant}
    facts = {"domain": RESOLUTION, "by": entry.by.removeprefix(OF_PERSON)}
    if isinstance(entry, e.EffectConfirmed):
        return {**facts, "answer": "happened", "why": entry.why, "value": digest_of_value(value)}
    if isinstance(entry, e.EffectFailed):
        answer = "did_not_happen" if entry.reason == "person" else "rejected"
        return {**facts, "answer": answer, "why": entry.why}
    return {**facts, "answer": entry.answer, "why": entry.evidence}
