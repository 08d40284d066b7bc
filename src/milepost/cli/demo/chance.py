"""Chance that can be repeated: the same words give the same draw, in any process and in any order."""

import hashlib

_SPAN = 2**64


def draw(*about: str | int) -> float:
    """A number in [0, 1) that depends on `about` alone.

    A generator with a state would tie each draw to the number of draws before it; here the process that asks may have
    been killed and restarted in between.
    """
    digest = hashlib.sha256("\x1f".join(map(str, about)).encode()).digest()
    return int.from_bytes(digest[:8]) / _SPAN


def draw_between(least: int, most: int, *about: str | int) -> int:
    """A whole number from `least` to `most`, both included, that depends on `about` alone."""
    return least + int(draw(*about) * (most - least + 1))
