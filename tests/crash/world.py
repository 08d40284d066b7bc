"""The outside world of the crash tests: a file with one line for each effect that was really applied.

A line is written by one system call, so a process that is killed has written all of it or nothing. Only the world
itself knows what happened: it never asks the journal.
"""

import fcntl
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from milepost.testing.check import Applied

CRASH_AT = "CRASH_AT"  # "tool:point[:attempt]", several apart by commas: there the process kills itself
FREEZE_AT = "FREEZE_AT"  # the same, and the process stops itself (SIGSTOP)


def here() -> Path:
    """Return the folder that a worker works in."""
    return Path(os.environ["CRASH_FOLDER"])


class Refused(Exception):
    """The world refused before acting (412 Precondition Failed)."""


class World:
    """A folder with a ledger; without one, the folder that this process works in."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    @property
    def path(self) -> Path:
        """The ledger's file."""
        return (self._folder or here()) / "ledger.jsonl"

    def lines(self) -> list[Applied]:
        """Return what was applied, oldest first."""
        if not self.path.exists():
            return []
        return [Applied(**json.loads(line)) for line in self.path.read_text().splitlines()]

    def find(self, tool: str, **args: Any) -> list[Applied]:
        """Return what was applied by a tool with these arguments."""
        return [line for line in self.lines() if line.tool == tool and line.args == args]

    def apply(self, tool: str, key: str, attempt: int, args: dict[str, Any], *, known_by_key: bool = False) -> None:
        """Apply an effect. A service that is `known_by_key` applies the same key once and answers the same again."""
        with self._alone() as file:
            if known_by_key and any((line.tool, line.key) == (tool, key) for line in self.lines()):
                return
            line = {"tool": tool, "key": key, "attempt": attempt, "at": time.time_ns() // 1_000_000, "args": args}
            os.write(file, (json.dumps(line) + "\n").encode())

    def put(self, tool: str, key: str, attempt: int, args: dict[str, Any], *, if_version: int) -> None:
        """Apply an effect whose precondition is a version of its page. Raises Refused where the page has moved on."""
        same = [line for line in self.lines() if line.tool == tool and (line.args or {})["page"] == args["page"]]
        version = len(same)
        if version != if_version:
            raise Refused(f"If-Match: {if_version}, the page has version {version}")
        self.apply(tool, key, attempt, args)

    @contextmanager
    def _alone(self) -> Iterator[int]:
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file
        finally:
            os.close(file)


def point(tool: str, where: str, attempt: int = 1) -> None:
    """A place in a tool: here the process dies, or stops, if the test said so."""
    for variable, number in ((CRASH_AT, signal.SIGKILL), (FREEZE_AT, signal.SIGSTOP)):
        wanted = os.environ.get(variable, "").split(",")
        if f"{tool}:{where}" in wanted or f"{tool}:{where}:{attempt}" in wanted:
            os.kill(os.getpid(), number)
