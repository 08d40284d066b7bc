"""Tables that a surface keeps beside those of a store: in the same database, and by the rules of the store.

A surface brings a package. For each kind of store that has a package of its own (`sqlite`, `postgres`) with its
statements by name (`queries.sql`) and its numbered migrations (`migrations/`); what was applied is written down, and
checked as the store's own migrations are. The names of such tables begin with `milepost_`, which a transactional tool
may not touch. A store knows none of what stands in them, and no run rests on it.

There is one connection, and one transaction at a time, whatever thread or task asks: the callers are libraries that
have synchronous and asynchronous methods for the same thing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from milepost.errors import StoreError
from milepost.stores import named_sql
from milepost.stores.migrate import known

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from milepost.stores.encryption import Cipher
    from milepost.stores.migrate import Migration

T = TypeVar("T")


class PlainRefused(StoreError):
    """The store was encrypted, and who would write has no key."""

    code = "plain_refused"

    def __init__(self, place: str) -> None:
        super().__init__(
            f"{place} is encrypted, and what would be written is not. Nothing was written. Name the key file: "
            "encryption=…, or MILEPOST_ENCRYPTION"
        )
        self.place = place


class Rows(Protocol):
    """The named statements of a surface, inside one transaction."""

    def run(self, name: str, /, *args: Any) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows."""
        ...

    def each(self, name: str, rows: Collection[tuple[Any, ...]], /) -> None:
        """Run a statement for each of these."""
        ...


class Tables(Protocol):
    """The tables of one surface in one database. Every method may be called from any thread."""

    @property
    def place(self) -> str:
        """What a person calls the store."""
        ...

    @property
    def cipher(self) -> Cipher | None:
        """What hides the values that are written. Whoever writes has to use it; see `PlainRefused`."""
        ...

    def do(self, work: Callable[[Rows], T]) -> T:
        """Write in one transaction, durable when this returns, and return what `work` does.

        `work` may be done twice, where a connection broke: done again, it must change nothing more. What it raises
        takes everything back. Raises StoreBusy, StoreFailed, StoreUnreachable, PlainRefused.
        """
        ...

    def look(self, work: Callable[[Rows], T]) -> T:
        """Read as of one instant."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


@dataclass(frozen=True, slots=True)
class Brought:
    """What a surface brings for one kind of store: the name its migrations are kept under, and its SQL."""

    name: str
    sql: dict[str, str]
    migrations: list[Migration]


def brought(package: str, kind: str) -> Brought:
    """Read the package of a surface."""
    inside = f"{package}.{kind}"
    return Brought(package.rpartition(".")[2], named_sql.load(inside, "queries.sql"), known(f"{inside}.migrations"))
