"""What a person grants, or says of an unknown effect, signed by whoever has a key (core/words.py)."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import msgspec

from milepost.core import messages as m
from milepost.core import words
from milepost.core.inbox import find_effect
from milepost.errors import InvalidValue, UnknownStep
from milepost.operations import keys

if TYPE_CHECKING:
    from milepost.operations.inspection import Inspector
    from milepost.operations.keys import Signer
    from milepost.stores.api import Store


def grant(store: Store, run_id: str, message: m.Grant, signer: Signer | None) -> m.Grant:
    """Return a grant in the name of who signs it. Raises InvalidValue where nobody is named."""
    if signer is None:
        _somebody(message.by)
        return message
    named = msgspec.structs.replace(message, by=signer.name, id=uuid.uuid4().hex)
    signature = keys.sign(signer, words.granted(store.id, run_id, named))
    return msgspec.structs.replace(named, signature=signature)


async def resolve(
    store: Store, inspector: Inspector, run_id: str, message: m.Resolve, signer: Signer | None
) -> m.Resolve:
    """Return a resolution in the name of who signs it, about the effect as the verified record has it.

    Raises InvalidValue where nobody is named, UnknownStep where the record has no such effect, Damaged.
    """
    if signer is None:
        _somebody(message.by)
        return message
    state, _ = await inspector.record(run_id)
    effect = find_effect(state, message.path)
    if effect is None:
        raise UnknownStep(run_id, message.path, "the record has no such effect in the segment that the run is in")
    named = msgspec.structs.replace(message, by=signer.name, id=uuid.uuid4().hex)
    said = words.resolved(store.id, run_id, named, key=effect.key, attempt=effect.attempt)
    return msgspec.structs.replace(named, signature=keys.sign(signer, said))


def _somebody(by: str) -> None:
    if not by:
        what = "by"
        raise InvalidValue(what, "nobody is named: say who it is, or sign it with a key")
