"""The seed of a test run: one number that decides what is drawn, so that a failure can be had again.

The pytest plugin sets it from `--milepost-seed` and prints it with whatever failed, and with it the reports that were
made. Without one it is drawn once for each process.
"""

from __future__ import annotations

import random


class Seeds:
    """The seed of this process; whether anything was drawn from it, and what was found broken, in the present test."""

    def __init__(self) -> None:
        self.given: int | None = None
        self.used = False
        self.broken: list[object] = []

    def begin(self) -> None:
        """Begin another test."""
        self.used, self.broken = False, []


HELD = Seeds()


def drawn() -> int:
    """Return a new seed."""
    return random.SystemRandom().randrange(2**32)


def current() -> int:
    """Return the seed, and note that it was used."""
    if HELD.given is None:
        HELD.given = drawn()
    HELD.used = True
    return HELD.given
