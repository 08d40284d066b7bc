"""Schedules: a workflow that is started at set times, each time once, whatever the number of workers.

A cron expression has five fields and is read in a time zone, as Debian's cron reads it. Where clocks are set forward,
what falls into the hour that is skipped runs right after it. Where they are set back, what names its hour runs once,
and what has a `*` for its hour or minute runs in both hours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from milepost.core.authority import Authority
from milepost.core.duration import from_ms, to_ms
from milepost.core.queues import Place
from milepost.core.schedules import CatchUp
from milepost.definitions.workflows import Workflow
from milepost.errors import ExtraMissing, InvalidDeclaration

FIELDS = 5


class Cron:
    """A cron expression in a time zone. Raises InvalidDeclaration where it is none, ExtraMissing without cronsim."""

    def __init__(self, expression: str, tz: str) -> None:
        self.expression = expression
        self.tz = tz
        self._library = _library()
        try:
            self._zone = ZoneInfo(tz)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            why = f"time zone {tz!r} is not known here. Write it like 'Europe/Riga'; some systems need tzdata."
            raise InvalidDeclaration(why) from error
        wrong = "" if len(expression.split()) == FIELDS else f"it has {len(expression.split())} fields"
        try:
            self._library.CronSim(expression, from_ms(0))
        except self._library.CronSimError as error:
            wrong = wrong or str(error)
        if wrong:
            why = f"cron {expression!r}: {wrong}. Write minute, hour, day, month and weekday, such as '30 2 * * 1-5'."
            raise InvalidDeclaration(why)

    def after(self, at: int) -> int | None:
        """Return the first tick after a moment (milliseconds since 1970); None where none comes in fifty years."""
        return self._next(at, backwards=False)

    def latest(self, at: int) -> int | None:
        """Return the last tick at or before a moment."""
        return self._next(at + 1, backwards=True)

    def _next(self, at: int, *, backwards: bool) -> int | None:
        start = from_ms(at).astimezone(self._zone)
        with suppress(OverflowError):  # the calendar ends before the next one
            for moment in self._library.CronSim(self.expression, start, reverse=backwards):
                tick = to_ms(moment)
                if tick < at if backwards else tick > at:
                    return tick
        return None


def _library() -> Any:
    """Return the library that reads cron expressions. Raises ExtraMissing."""
    try:
        return import_module("cronsim")
    except ImportError as error:
        what, extra = "schedules", "cron"
        raise ExtraMissing(what, extra) from error


@dataclass(frozen=True, slots=True)
class Schedule:
    """A workflow, when it is started, and with what. `given` makes its input from the moment of the tick."""

    name: str
    workflow: Workflow[Any, Any]
    cron: Cron
    given: Callable[[datetime], Any]
    catch_up: CatchUp
    authority: Authority
    budget: Mapping[str, Any]
    tags: Mapping[str, str]
    place: Place

    @property
    def spec(self) -> str:
        """How it is declared, as it is kept in the store and shown; its input is the code's own."""
        told = {"cron": self.cron.expression, "tz": self.cron.tz, "catch_up": self.catch_up, "queue": self.place.queue}
        return msgspec.json.encode(told).decode()

    def key_of(self, tick: int) -> str:
        """Return the key of the run of a tick: whoever starts it, it is the same run."""
        return f"{self.name}@{from_ms(tick):%Y-%m-%dT%H:%M:%SZ}"
