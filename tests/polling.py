"""Waiting for another process: ask again and again until it is so, or fail with what was seen last."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PAUSE_S = 0.01


def eventually(ask: Callable[[], T], *, within_s: float = 60.0, saying: str = "") -> T:
    """Return the first true answer of `ask`; AssertionError after `within_s` seconds. No other test code pauses."""
    deadline = time.monotonic() + within_s
    while not (answer := ask()):
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {within_s} s: {saying or ask} (last answer: {answer!r})")
        time.sleep(PAUSE_S)
    return answer
