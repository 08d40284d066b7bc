"""What a person said, as it was signed: it stands in front of what it became, in the same transaction.

It follows the rules of `entries.py`, and stands in the run's own journal.
"""

from __future__ import annotations

import msgspec

from milepost.core.entries import Entry


class WordSigned(Entry, frozen=True, tag="word_signed.1"):
    """A signed grant or resolution was taken. `said` are the bytes that `by` signed; each `id` is taken once."""

    id: str
    kind: str
    by: str
    said: msgspec.Raw
    signature: str


WordEntry = WordSigned
