"""What is signed: a statement, as the same bytes on every machine.

A statement is deterministic JSON, names in order, with the `domain` that says what kind of sentence it is. The domain
is signed with the facts, so that a signature under one kind never passes for one under another: an approval is no seal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

APPROVAL: Final = "milepost.approval.1"
RESOLUTION: Final = "milepost.resolution.1"
GRANT: Final = "milepost.grant.1"
SEAL: Final = "milepost.seal.1"
EXPORT: Final = "milepost.export.1"

# What an operator must be trusted for, to sign in a domain.
POWER: Final[Mapping[str, str]] = {
    APPROVAL: "approve",
    RESOLUTION: "resolve",
    GRANT: "grant",
    SEAL: "seal",
    EXPORT: "export",
}

_encode = msgspec.json.Encoder(order="deterministic").encode


class _Domain(msgspec.Struct):
    domain: str


_domain = msgspec.json.Decoder(_Domain)


def statement(domain: str, facts: Mapping[str, Any]) -> bytes:
    """Return the bytes to be signed. Raises ValueError for an unknown domain, and for facts that bring their own."""
    if domain not in POWER:
        msg = f"{domain!r} is no domain of a statement"
        raise ValueError(msg)
    if "domain" in facts:
        msg = "the domain of a statement is no fact of it"
        raise ValueError(msg)
    return _encode({**facts, "domain": domain})


def domain_of(data: bytes) -> str:
    """Return the domain of a statement. Raises ValueError for bytes that are none."""
    try:
        domain = _domain.decode(data).domain
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        msg = f"these bytes are no statement ({error})"
        raise ValueError(msg) from error
    if domain not in POWER:
        msg = f"{domain!r} is no domain of a statement"
        raise ValueError(msg)
    return domain
