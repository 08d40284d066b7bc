"""What a batch of appends writes, gathered before it is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from milepost.stores.api import Head


class Moved:
    """Where a run's chain ends after what was written so far, and the head in memory that will be moved there."""

    __slots__ = ("at", "boundary", "hash", "head", "row", "segment", "seq")

    def __init__(self, head: Head, row: int, seq: int, digest: bytes) -> None:
        self.head = head
        self.at = 0
        self.row = row
        self.seq = seq
        self.hash = digest
        self.boundary: int | None = None
        self.segment = head.segment


class Rows:
    """What a batch of appends writes, by table."""

    __slots__ = ("chunks", "effects", "entries", "heads", "journal", "status")

    def __init__(self) -> None:
        self.entries = "insert_entry"  # the statement that writes the journal
        self.journal: list[tuple[Any, ...]] = []
        self.heads: dict[int, Moved] = {}
        self.chunks: list[tuple[Any, ...]] = []
        self.effects: dict[tuple[int, str], tuple[Any, ...] | None] = {}
        self.status: dict[int, tuple[Any, ...]] = {}
