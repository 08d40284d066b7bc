"""The books of the outside world: one SQLite file for each service, written by it alone, read by whoever judges.

What a service did is a line in `applied`, written in a transaction of its own in the moment in which it is done. It
knows of no journal. `requests` has all that was asked, also what was refused or known already; `met` what a fault
proxy did.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from milepost.stores import named_sql
from milepost.testing.check import Applied

BUSY_MS = 5_000
SQL = named_sql.load("milepost.testing.world", "ledger.sql")


class Line(NamedTuple):
    """One effect that was applied, the `seq`-th of its name. `at` is in ms since 1970, by the account's own clock."""

    seq: int
    tool: str
    name: str
    key: str
    attempt: int
    at: int
    args: dict[str, Any]

    @property
    def applied(self) -> Applied:
        """The line as the checker takes it."""
        return Applied(self.tool, self.key, self.attempt, self.at, self.args)


class Request(NamedTuple):
    """One request that reached a service, whatever became of it."""

    what: str
    key: str
    attempt: int
    at: int


class Ledger:
    """One file. Writing is for the service that owns it; readers open it while that service runs or after it ended."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        flags = apsw.SQLITE_OPEN_READONLY if read_only else apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        self._connection = apsw.Connection(str(path), flags=flags)
        self._connection.set_busy_timeout(BUSY_MS)
        if not read_only:
            # The outside world is not what is tested for crashes: its writes need not reach the disk one by one.
            self._rows("PRAGMA journal_mode = WAL")
            self._rows("PRAGMA synchronous = OFF")
            self._rows(SQL["schema"])

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def asked(self, account: str, request: Request) -> None:
        """Note that a request arrived."""
        self._rows(SQL["add_request"], (account, *request))

    def requests(self, account: str) -> list[Request]:
        """Return every request that reached the account, oldest first."""
        return [Request(*row) for row in self._rows(SQL["requests"], (account,))]

    def apply(self, account: str, kind: str, line: Line) -> Line:
        """Apply an effect; return its line with the number it got."""
        args = json.dumps(line.args)
        (row,) = self._rows(SQL["apply"], (account, kind, line.tool, line.name, line.key, line.attempt, line.at, args))
        return _line(row)

    def applied(self, account: str) -> list[Line]:
        """Return what was applied for the account, oldest first."""
        return [_line(row) for row in self._rows(SQL["applied"], (account,))]

    def of_key(self, account: str, tool: str, key: str) -> list[Line]:
        """Return what was applied under an idempotency key."""
        return [_line(row) for row in self._rows(SQL["of_key"], (account, tool, key))]

    def of_name(self, account: str, kind: str, tool: str, name: str, *, until: int) -> list[Line]:
        """Return what was applied under a name, up to a moment."""
        return [_line(row) for row in self._rows(SQL["of_name"], (account, kind, tool, name, until))]

    def meet(self, account: str, what: str, toxic: str, at: int) -> None:
        """Note what the proxy did to one exchange."""
        self._rows(SQL["add_met"], (account, what, toxic, at))

    def met(self, account: str) -> list[tuple[str, str]]:
        """Return each exchange that went through the proxy, and the name of what was done to it."""
        return [(str(what), str(toxic)) for what, toxic in self._rows(SQL["met"], (account,))]

    def met_so_far(self, account: str, what: str) -> int:
        """Return how many exchanges of this kind went through the proxy."""
        return int(self._rows(SQL["met_so_far"], (account, what))[0][0])

    def _rows(self, sql: str, args: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        return list(self._connection.execute(sql, args))


def _line(row: tuple[Any, ...]) -> Line:
    seq, tool, name, key, attempt, at, args = row
    return Line(seq, tool, name, key, attempt, at, json.loads(args))
