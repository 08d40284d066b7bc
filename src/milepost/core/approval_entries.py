"""What becomes of an approval beside its answer and its use.

It follows the rules of `entries.py`, and stands in the run's own journal.
"""

from __future__ import annotations

from milepost.core.entries import Entry


class ApprovalClosed(Entry, frozen=True, tag="approval_closed.1"):
    """An approval that was asked or given permits nothing any more. `standing` is superseded or expired."""

    id: str
    standing: str
    why: str


ApprovalEntry = ApprovalClosed
