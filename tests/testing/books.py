"""An outside world made of files, one for each account: what was applied, a line each, written by one system call.

It is the least that `crash_everywhere` asks of a world, and stands for the fake that a user has already.
"""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import milepost as mp
from milepost.testing import Applied


class Refused(Exception):
    """The precondition does not hold; nothing was done."""


@dataclass(frozen=True)
class Book:
    """One account's book. `honest` is False for a world that does not tell what it did."""

    path: Path
    honest: bool = True

    def applied(self) -> list[Applied]:
        """Return what was applied, oldest first."""
        if not self.honest or not self.path.exists():
            return []
        return [Applied(**json.loads(line)) for line in self.path.read_text().splitlines()]

    def write(self, tool: str, key: str = "", **args: Any) -> None:
        """Apply an effect."""
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(file, (json.dumps({"tool": tool, "key": key, "args": args}) + "\n").encode())
        os.close(file)

    def find(self, tool: str, **args: Any) -> list[Applied]:
        """Return what was applied by a tool with these arguments."""
        return [line for line in self.applied() if line.tool == tool and line.args == args]

    def once(self, tool: str, key: str, **args: Any) -> None:
        """Apply an effect as a service does that drops a key which it knows."""
        if all((line.tool, line.key) != (tool, key) for line in self.applied()):
            self.write(tool, key, **args)


@dataclass(frozen=True)
class Books:
    """A folder of accounts."""

    folder: Path
    honest: bool = True

    def account(self, name: str) -> Book:
        """Return an account; the first time, its book is empty."""
        return Book(self.folder / f"{name}.jsonl", self.honest)


def book(call: mp.Call) -> Book:
    """Return the book that a call acts on."""
    return call.resource(Book)


def finding(lines: list[Applied], result: Callable[[], str]) -> mp.Finding[str]:
    """Return what was found of one effect."""
    if len(lines) > 1:
        return mp.conflict(lines)
    return mp.happened(result()) if lines else mp.did_not_happen()
