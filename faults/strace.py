"""Faults at system calls, without a hook in any code: `strace` kills, stops or fails a process at a thread's N-th call.

An undisturbed run under `strace` lists the places; each is a `Point`, and each can be hit in another run. A point may
not be reached there, since threads take turns as they like: whoever uses one looks whether it was.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

WRITES = ("pwrite64", "fdatasync")
TALKS = ("connect", "sendto", "recvfrom", "rename")
LEAVES = ("connect", "rename")
ENTERED = re.compile(r"^(\d+) +(\w+)\((.*)$")


class ToolMissing(Exception):
    """A tool of the system is needed for a fault, and is not there: the fault cannot be run, which is no verdict."""


@dataclass(frozen=True)
class Point:
    """A place in a process: the entry into the `number`-th call of its kind in one thread. `said` is strace's line."""

    call: str
    number: int
    said: str = ""

    def __str__(self) -> str:
        return f"{self.call} {self.number}"

    def inject(self, what: str, beside: Sequence[str] = ()) -> list[str]:
        """Return the options that do something there, such as signal=SIGKILL or error=EIO, and list calls `beside`."""
        return [*traced([self.call, *beside]), "-e", f"inject={self.call}:{what}:when={self.number}"]

    def inject_from(self, what: str) -> list[str]:
        """Return the options that do something there and at each later call of its kind."""
        return [*traced([self.call]), "-e", f"inject={self.call}:{what}:when={self.number}+"]


def traced(calls: Sequence[str]) -> list[str]:
    """Return the options that list these calls."""
    return ["-e", f"trace={','.join(calls)}"]


def left(log: Path) -> bool:
    """Whether a process has turned to the outside: connected to a service, or sent a file, as `LEAVES` shows it."""
    return any(
        ("connect(" in line and "AF_INET" in line) or ("rename(" in line and "/drop/" in line)
        for line in log.read_text(errors="replace").splitlines()
    )


def command(log: Path, options: Sequence[str]) -> list[str]:
    """Return what stands in front of a command to run it under strace. Raises ToolMissing."""
    found = shutil.which("strace")
    if found is None:
        raise ToolMissing("strace is not installed: apt-get install strace, or, as root, make strace")
    return [found, "-f", "-s", "256", "-o", str(log), *options]


def points(log: Path) -> list[Point]:
    """Return every call that a log lists, in the order in which they were entered."""
    counted: Counter[tuple[str, str]] = Counter()
    found = []
    for line in log.read_text(errors="replace").splitlines():
        entered = ENTERED.match(line)
        if entered is None:
            continue
        thread, call, said = entered.groups()
        counted[thread, call] += 1
        found.append(Point(call, counted[thread, call], said))
    return found
