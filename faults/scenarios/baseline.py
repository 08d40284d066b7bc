"""Where the places of a run are: measured once on an undisturbed run, and shared by all tries."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from faults.stage import Stage
from faults.strace import TALKS, WRITES, Point

T = TypeVar("T")
STRIDE = 7_919  # a prime: the first tries of a sweep are spread over it, and all together cover it

_turn = threading.Lock()
_known: dict[tuple[str, str, tuple[str, ...]], list[Point]] = {}


def points(stage: Stage, flow: str, tool: str = "", calls: tuple[str, ...] = (*WRITES, *TALKS)) -> list[Point]:
    """Return the system calls of an undisturbed run: its writes, and its talk with the outside."""
    with _turn:
        if (flow, tool, calls) not in _known:
            beside = stage.beside("counted")
            found = beside.points(calls, flow, tool)
            stage.result.take(beside.result)
            if beside.result.problems:  # the next try measures again
                return found
            _known[flow, tool, calls] = found
        return _known[flow, tool, calls]


def writes(stage: Stage, flow: str, tool: str = "") -> list[Point]:
    """Return the writes of an undisturbed run to its store."""
    return [point for point in points(stage, flow, tool) if point.call in WRITES]


def chosen(stage: Stage, among: list[T]) -> T:
    """Return the one that the seed means: as many seeds in a row as there are choices mean each once."""
    return among[stage.seed * STRIDE % len(among)]


def first(among: list[Point], holds: Callable[[Point], bool]) -> int:
    """Return the place of the first point that fits, or their number."""
    return next((place for place, point in enumerate(among) if holds(point)), len(among))


def sending(among: list[Point]) -> int:
    """Return where the bytes of the effect leave: the request's last, the mail's end, or the file's new name."""
    ends = [
        place
        for place, point in enumerate(among)
        if (point.call == "sendto" and ("POST /" in point.said or "PUT /" in point.said or '"From: ' in point.said))
        or (point.call == "rename" and "/drop/" in point.said)
    ]
    place = ends[-1] if ends else len(among)
    body = place + 1
    is_http = place < len(among) and "HTTP/1.1" in among[place].said
    return body if is_http and body < len(among) and among[body].call == "sendto" else place
