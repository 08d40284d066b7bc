"""What the server says of itself, asked by a connection of its own all through a soak."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import sql

from milepost.stores import named_sql

QUESTIONS = named_sql.load("soak", "questions.sql")
PER_PROCESS = 6  # writing, reading three times, the lease, and the one that listens


@dataclass(frozen=True)
class Table:
    """How large a table was at a moment."""

    rows: int
    kb: int


@dataclass
class Quarter:
    """What there was at one of the five moments: of tables, and the most connections since the moment before."""

    at: float
    tables: dict[str, Table] = field(default_factory=dict)
    connections: int = 0
    processes: int = 0


class Watch:
    """Looks at the server. What it cannot ask because the server is away it does not say."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self.began = time.monotonic()
        self.quarters: list[Quarter] = []
        self.looks = 0
        self.most = self.most_processes = 0  # since the last quarter
        self.above: list[str] = []  # looks at which there were more connections than processes may have
        self.together = self.of_a_group = 0

    def ask(self, name: str, args: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Ask one of the questions. Raises psycopg.Error."""
        try:
            return self._asked(name, args)
        except psycopg.OperationalError:  # the server was restarted since
            return self._asked(name, args)

    def _asked(self, name: str, args: Sequence[Any]) -> list[tuple[Any, ...]]:
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self.url, autocommit=True, application_name="soak", connect_timeout=2)
        return psycopg.RawCursor(self._connection).execute(QUESTIONS[name].encode(), args).fetchall()

    def one(self, name: str, args: Sequence[Any] = ()) -> int:
        """Ask a question that one number answers. Raises psycopg.Error."""
        return int(self.ask(name, args)[0][0])

    def look(self, processes: int) -> None:
        """Look at connections and slots; `processes` is how many have lived since the look before."""
        with suppress(psycopg.Error):
            now = self.one("connections")
            self.looks += 1
            self.most, self.most_processes = max(self.most, now), max(self.most_processes, processes)
            if now > PER_PROCESS * processes:
                at = time.monotonic() - self.began
                self.above.append(f"{now} connections of {processes} processes at {at:.0f} s")
            self.together = max(self.together, self.one("held_in"))
            self.of_a_group = max(self.of_a_group, self.one("most_in_a_group"))

    def quarter(self) -> None:
        """Measure every table. Raises psycopg.Error."""
        tables = {name: Table(self._rows(name), size // 1024) for name, size in self.ask("tables")}
        moment = time.monotonic() - self.began
        self.quarters.append(Quarter(moment, tables, self.most, self.most_processes))
        self.most = self.most_processes = 0

    def _rows(self, table: str) -> int:
        assert self._connection is not None, "it was asked before"
        counted = self._connection.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(table)))
        return int((counted.fetchone() or (0,))[0])

    def close(self) -> None:
        """Leave."""
        if self._connection is not None:
            self._connection.close()
