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
    """What a batch of appends writes, by table. Where it is `noted` each entry has a place for a note."""

    __slots__ = ("chunks", "effects", "entries", "heads", "journal", "note", "status")

    def __init__(self, *, noted: bool = False) -> None:
        self.entries = "insert_noting" if noted else "insert_entry"  # the statement that writes the journal
        self.note: tuple[None, ...] = (None,) if noted else ()
        self.journal: list[tuple[Any, ...]] = []
        self.heads: dict[int, Moved] = {}
        self.chunks: list[tuple[Any, ...]] = []
        self.effects: dict[tuple[int, str], tuple[Any, ...] | None] = {}
        self.status: dict[int, tuple[Any, ...]] = {}
