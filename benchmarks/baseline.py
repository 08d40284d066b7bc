"""The yardstick: bare one-row commits, each durable before the next begins, through the same SQLite library.

Two logs, because they differ by half: a *fresh* write-ahead log grows with every commit, so that each sync also writes
the file's new length; a *pre-extended* one was brought to 16 MB before, and is written over. Automatic checkpoints are
off while a slice is timed, in both.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from benchmarks.timing import Slice, Stopwatch, Work

EXTENDED = 16 << 20
"""Bytes of the pre-extended log."""

ROW = b"." * 100
"""What each commit stores."""


def commits(count: int, *, extended: bool) -> Work:
    """`count` bare commits of one row, on a fresh or on a pre-extended log."""

    def run(folder: Path) -> Slice:
        with opened(folder / "baseline.db", extended=extended) as commit:
            return commit(count)

    return run


@contextmanager
def opened(file: Path, *, extended: bool) -> Iterator[Callable[[int], Slice]]:
    """What makes so many bare commits to the file, and times them: for work that takes turns with them."""
    connection = _open(file)
    if extended:
        _extend_log(connection)
    cursor = connection.cursor()

    def commit(count: int) -> Slice:
        watch = Stopwatch()
        for _ in range(count):
            cursor.execute("BEGIN IMMEDIATE")
            cursor.execute("INSERT INTO line (body) VALUES (?)", (ROW,))
            cursor.execute("COMMIT")
        return watch.slice(count)

    yield commit
    connection.close()


def _open(file: Path) -> apsw.Connection:
    connection = apsw.Connection(str(file))
    for statement in (
        "PRAGMA journal_mode = WAL",
        "PRAGMA synchronous = FULL",
        "PRAGMA wal_autocheckpoint = 0",
        "CREATE TABLE line (number INTEGER PRIMARY KEY, body BLOB NOT NULL)",
    ):
        connection.execute(statement).fetchall()
    if connection.pragma("synchronous") != 2:
        raise RuntimeError("the baseline must commit with synchronous = FULL")
    return connection


def _extend_log(connection: apsw.Connection) -> None:
    connection.execute("CREATE TABLE padding (body BLOB)").fetchall()
    connection.execute("INSERT INTO padding VALUES (zeroblob(?))", (EXTENDED,)).fetchall()
    # RESTART, not TRUNCATE: the next commit writes over the log from its start, the file keeps its length.
    connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
