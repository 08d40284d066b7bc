"""Whether the answer of an operator is signed by somebody who may give it, by a trust file that may change at any time.

The file is read again whenever it is another one, so that a key that is revoked there counts no more from that moment
on, in every worker. A file that cannot be read trusts nobody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from milepost.core.approval import UNSIGNED
from milepost.operations import keys

if TYPE_CHECKING:
    from pathlib import Path

TRUST_UNREADABLE = "trust_unreadable"


class TrustedOperators:
    """The operators of one trust file. Raises KeyRefused where it cannot be read now, ExtraMissing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, ...] | None = None
        self._trust = keys.Trust()
        self._current()

    def refused(self, name: str, statement: bytes, signature: str, now: int) -> tuple[str, str] | None:
        """Return why a signature is not accepted, as a stable word and a sentence; None where it is."""
        if not signature:
            return UNSIGNED, f"what people say is signed here, and this of {name!r} is not. Sign it with --key"
        try:
            keys.verify(self._current(), name, statement, signature, now)
        except keys.Untrusted as error:
            return error.reason, str(error)
        except keys.KeyRefused as error:
            return TRUST_UNREADABLE, str(error)
        return None

    def _current(self) -> keys.Trust:
        try:
            stat = self.path.stat()
        except OSError:
            self._seen = None
            return keys.load(self.path)  # which says what is wrong with it
        seen = (stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino, stat.st_mode)
        if seen != self._seen:
            self._trust, self._seen = keys.load(self.path), seen
        return self._trust
