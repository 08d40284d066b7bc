"""Ed25519 as the library `cryptography` has it. It is imported when a signature is made or checked, and not before.

Most commands and most workers sign nothing. They must not need the extra, nor wait for its import.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, cast

from milepost.errors import ExtraMissing

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


@cache
def _library() -> tuple[Any, Any, Any]:
    try:
        from cryptography import exceptions  # noqa: PLC0415  an extra: see above
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415
    except ImportError as error:
        what = "keys and signatures"
        raise ExtraMissing(what, "crypto") from error
    return ed25519, serialization, exceptions


def generate() -> bytes:
    """Return a new private key as PEM. Raises ExtraMissing, as all that follow."""
    ed25519, serialization, _ = _library()
    made: bytes = ed25519.Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return made


def load(pem: bytes) -> Ed25519PrivateKey:
    """Return the private key of a PEM text. Raises ValueError for anything else."""
    ed25519, serialization, exceptions = _library()
    try:
        key = serialization.load_pem_private_key(pem, None)
    except (TypeError, exceptions.UnsupportedAlgorithm) as error:
        msg = "no private key that can be read"
        raise ValueError(msg) from error
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        msg = "a private key of another kind"
        raise ValueError(msg)  # noqa: TRY004  one error for one question: is this a key of ours?
    return cast("Ed25519PrivateKey", key)


def public_of(key: Ed25519PrivateKey) -> bytes:
    """Return the 32 bytes of a key's public half."""
    _, serialization, _ = _library()
    return key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)


def check_public(public: bytes) -> None:
    """Raise ValueError for bytes that are no public key."""
    _library()[0].Ed25519PublicKey.from_public_bytes(public)


def verifies(public: bytes, data: bytes, signature: bytes) -> bool:
    """Say whether a signature over these bytes is that of a public key. Raises ValueError for what is no key."""
    ed25519, _, exceptions = _library()
    try:
        ed25519.Ed25519PublicKey.from_public_bytes(public).verify(signature, data)
    except exceptions.InvalidSignature:
        return False
    return True
