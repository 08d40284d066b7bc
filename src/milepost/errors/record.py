"""The store and the record."""

from __future__ import annotations

from milepost.errors.tree import MilepostError


class StoreError(MilepostError):
    """The store cannot be used as it is."""

    code = "store_error"


class StoreMissing(StoreError):
    """There is no store at this place."""

    code = "store_missing"

    def __init__(self, place: str) -> None:
        super().__init__(f"there is no store at {place}. Create it with: milepost init --store {place}")
        self.place = place


class NotAStore(StoreError):
    """The file is something else, or it is damaged beyond opening."""

    code = "not_a_store"

    def __init__(self, place: str, why: str) -> None:
        super().__init__(f"{place} is not a Milepost store: {why}. Nothing was changed. Check the path.")
        self.place = place


class NewerSchema(StoreError):
    """The store, or an entry in it, was written by a newer version of Milepost."""

    code = "newer_schema"

    def __init__(self, what: str, found: int, known: int) -> None:
        super().__init__(
            f"{what} has schema {found}, this version knows up to {known}. Upgrade Milepost here; nothing was changed."
        )
        self.found = found
        self.known = known


class Unmigrated(StoreError):
    """The store lacks tables that this version needs. It is brought up to date by who owns it, not by who opens it."""

    code = "unmigrated"

    def __init__(self, place: str, missing: list[str]) -> None:
        names = ", ".join(missing)
        super().__init__(f"{place} lacks {names}. Apply what is missing before new code comes: milepost db migrate")
        self.place = place
        self.missing = missing


class NotPermitted(StoreError):
    """The database keeps whom this program is connected as from doing that."""

    code = "not_permitted"

    def __init__(self, why: str) -> None:
        super().__init__(f"{why}. Roles decide: a worker's may not do what is a person's; see milepost db roles")
        self.why = why


class UnsafeLibrary(StoreError):
    """The SQLite library has the write-ahead-log reset bug (3.7.0 to 3.51.2)."""

    code = "unsafe_library"

    def __init__(self, version: str) -> None:
        super().__init__(
            f"SQLite {version} can corrupt a write-ahead log. Install apsw 3.54 or later, which brings its own library."
        )
        self.version = version


class StoreBusy(StoreError):
    """Another process held the write lock for too long. Nothing was written."""

    code = "store_busy"

    def __init__(self, place: str) -> None:
        super().__init__(
            f"{place} stayed locked by another process. Nothing was written; try again, or look with: milepost doctor"
        )
        self.place = place


class StoreFailed(StoreError):
    """A commit raised, so it is not known whether it was written: this process stops writing and must reopen."""

    code = "store_failed"

    def __init__(self, why: str) -> None:
        super().__init__(
            f"a commit failed ({why}), so what it held is unknown. Mend the disk, then start the process again."
        )
        self.why = why


_UNREACHABLE = {
    "away": ("does not answer", "See whether the server runs and can be reached from here, then try again"),
    "login": ("does not let us in", "Check the user and the password of the URL (or PGPASSWORD, or ~/.pgpass)"),
    "database": ("has no such database", "Create it first: createdb NAME"),
    "exhausted": (
        "has no connection left",
        "Each process holds up to four. Run fewer, raise max_connections, or put a pooler in front of it",
    ),
}


class StoreUnreachable(StoreError):
    """The server that holds the store cannot be worked with now. Nothing was written.

    `kind` is `away`, `login`, `database` or `exhausted`.
    """

    code = "store_unreachable"

    def __init__(self, place: str, kind: str, why: str) -> None:
        what, todo = _UNREACHABLE[kind]
        super().__init__(f"{place} {what}: {why}. {todo}.")
        self.place = place
        self.kind = kind
        self.why = why


class Damaged(StoreError):
    """The record of a run does not verify; nothing is sent on its word."""

    code = "damaged"

    def __init__(self, run_id: str, why: str, *, seq: int | None = None) -> None:
        where = f" at entry {seq}" if seq is not None else ""
        super().__init__(
            f"the record of run {run_id} does not verify{where}: {why}. Nothing was sent. Keep the file, restore a "
            "backup, and compare with: milepost verify"
        )
        self.run_id = run_id
        self.why = why
        self.seq = seq


class IllegalOutcome(MilepostError):
    """An outcome may not change in this way; see the table in milepost.core.outcome."""

    code = "illegal_outcome"

    def __init__(self, outcome: str, event: str) -> None:
        super().__init__(f"an effect that is {outcome} cannot {event}. This is a defect in Milepost: please report it.")
        self.outcome = outcome
        self.event = event


class MalformedEntry(MilepostError):
    """Stored bytes are no entry that this version can read."""

    code = "malformed_entry"

    def __init__(self, why: str) -> None:
        super().__init__(f"stored bytes are not a valid entry: {why}")
        self.why = why
