"""How the code that both stores share reaches their tables: by the names of statements, inside a transaction.

Each store has `.sql` files of its own with the same names in them, and an object of this form that runs them. What is
decided between two statements is decided once, in the modules beside this one.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection


class Recount(Exception):
    """What was tried at once does not add up: redo it one by one."""


class Statements(Protocol):
    """Runs the named statements of a store through one connection."""

    def run(self, name: str, /, *args: Any) -> list[Any]:
        """Run a statement and return its rows."""
        ...

    def do(self, name: str, /, *args: Any) -> None:
        """Run a statement whose answer nobody needs: where that is cheaper, it is sent along with the next."""
        ...

    def many(self, name: str, rows: Collection[Any], /) -> int:
        """Run a statement for each row. Return how many rows of the table may have changed: 0 only where none did."""
        ...

    def each(self, name: str, rows: Collection[Any], /) -> None:
        """Run a statement that must change a row for each of these; else Recount is raised, here or by `add_up`."""
        ...

    def changed(self, name: str, /, *args: Any) -> int:
        """Run a statement and return how many rows it changed."""
        ...

    def add_up(self) -> None:
        """Raise Recount where an `each` has not changed what it must."""
        ...

    def mark(self) -> None:
        """Begin a part that may be taken back."""
        ...

    def undo(self) -> None:
        """Take back what was written since the mark."""
        ...

    def keep(self) -> None:
        """Keep what was written since the mark."""
        ...

    def instant(self) -> AbstractContextManager[None]:
        """Let everything that is read inside be as of one instant."""
        ...
