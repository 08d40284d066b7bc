"""The entries that say under which code a run goes on: what differed, what was migrated, what a person lifted.

They follow the rules of `entries.py`, and stand in the run's own journal.
"""

from __future__ import annotations

from milepost.core.entries import Entry


class CodeChanged(Entry, frozen=True, tag="code_changed.1"):
    """A claim found other code than the run was recorded with, and may go on with it. `manifest` names that code's."""

    manifest: str
    changes: tuple[str, ...]
    by: str = ""


class Migrated(Entry, frozen=True, tag="migrated.1"):
    """A migration led the run from one version to the next, at a boundary; the new boundary follows in the same append.

    `before` and `after` are digests of the state's bytes; `by` is the version of the code that holds the migration.
    """

    version: str
    to: str
    segment: str
    to_segment: str
    before: str
    after: str
    by: str


class Resumed(Entry, frozen=True, tag="resumed.1"):
    """A person lifted a block, after what blocked it was checked again. `was` is the code of the block.

    `manifest` names the code under which a half-done segment may go on although it changed: that was accepted, too.
    """

    by: str
    why: str = ""
    was: str = ""
    manifest: str = ""
    accepted: tuple[str, ...] = ()


CodeEntry = CodeChanged | Migrated | Resumed
