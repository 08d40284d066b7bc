"""When a tool's calls are held because its provider fails, and how they go on. One row a tool, changed by `after`.

  closed      calls go on. What counts is failures in a row: an answer sets the count back.
  open        calls are held as not started, and nothing of their budget is touched, until the cool-down has passed.
  half_open   one call was let through to find out, under a lease: nobody else is, until it is answered or the lease has
              lapsed (whoever made it may have died).

Only a `read` or a `keyed` call may probe: one that can be made again without harm, whatever came of it. A tool of
another class has no such call, so a person resets its breaker. Each trip in a row doubles the cool-down, up to a bound,
with jitter, so that many workers do not come back at one moment; a provider's Retry-After is a floor.

A breaker holds work. It never says what became of a call, and it is never moved by what says nothing about the
provider: a cancellation, a refusal, a value that cannot be stored.

What may go wrong. A clock that was set back would make the wait longer than it ever was; so the wait itself is kept
beside its end, and where much more than that is left, a probe may be made. A little more is left for everybody whose
append was made before the one that began the wait and is written after it: that is no clock that was set back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

from milepost.core.duration import Duration, parse_ms
from milepost.core.store_entries import BreakerClosed, BreakerOpened, BreakerProbed

FLOOR_MOST_MS = 3_600_000  # what a provider asks for is heard up to an hour: it is somebody else's number
LATE_MS = 60_000  # how much earlier than the row an append may have been made: two workers, or a commit that took long
PROBES = frozenset({"read", "keyed"})


@dataclass(frozen=True, slots=True, init=False)
class Breaker:
    """After how many failures in a row a tool's calls are held, and for how long.

    `cooldown` is the bound of the first wait, doubled for each further trip up to `most`. Raises ValueError where no
    failure would be left to count or a span is malformed.
    """

    failures: int
    cooldown_ms: int
    most_ms: int

    def __init__(self, failures: int = 5, *, cooldown: Duration = "30s", most: Duration = "10m") -> None:
        if failures < 1:
            msg = f"Breaker(failures={failures}) would hold calls before any failed: it counts failures in a row"
            raise ValueError(msg)
        object.__setattr__(self, "failures", failures)
        object.__setattr__(self, "cooldown_ms", parse_ms(cooldown))
        object.__setattr__(self, "most_ms", parse_ms(most))

    def wait_ms(self, trips: int, chance: float, floor_ms: int) -> int:
        """Return how long calls are held after trip number `trips` in a row; `chance` is a number in [0, 1)."""
        bound: int = min(self.most_ms, self.cooldown_ms << min(trips - 1, 40))
        return max(round(bound * (0.5 + chance / 2)), min(floor_ms, FLOOR_MOST_MS))


class Row(msgspec.Struct, frozen=True):
    """The breaker of one tool. Moments are milliseconds since 1970.

    `until` is when a probe may be made (open) or when the lease of one lapses (half_open), and `wait` how far away that
    was when it was decided; `probe` is the attempt that was let through; `why` is the latest failure, at `at`.
    """

    tool: str
    state: Literal["closed", "open", "half_open"] = "closed"
    failures: int = 0
    trips: int = 0
    until: int = 0
    wait: int = 0
    probe: str = ""
    why: str = ""
    at: int = 0


class Failed(msgspec.Struct, frozen=True):
    """The provider failed attempt `by`. `floor_ms` is what it asked for, `chance` the jitter, in [0, 1)."""

    tool: str
    by: str
    why: str
    settings: Breaker
    floor_ms: int = 0
    chance: float = 0.5


class Answered(msgspec.Struct, frozen=True):
    """The provider answered attempt `by`."""

    tool: str
    by: str


class Vacated(msgspec.Struct, frozen=True):
    """Attempt `by` ended and says nothing about the provider. If it was the probe, somebody else may make one."""

    tool: str
    by: str


class Probing(msgspec.Struct, frozen=True):
    """Attempt `by` starts; it may be let through an open breaker, until `until` at the latest."""

    tool: str
    by: str
    until: int


class Reset(msgspec.Struct, frozen=True):
    """A person says that calls may go on."""

    tool: str
    by: str
    why: str


Event = Failed | Answered | Vacated | Probing | Reset


def admits(row: Row, now: int) -> Literal["go", "probe", "hold"]:
    """Say whether a call may start: as any call, only as the probe, or not."""
    if row.state == "closed":
        return "go"
    left = row.until - now
    return "probe" if left <= 0 or left > row.wait + LATE_MS else "hold"


def may_probe(effect: str) -> bool:
    """Say whether a call of this class may find out whether a provider answers again."""
    return effect in PROBES


def after(row: Row, event: Event, now: int) -> Row:
    """Return the breaker after an event."""
    match event:
        case Failed():
            return _failed(row, event, now)
        case Answered(by=by):
            return Row(row.tool) if row.state == "closed" or _is_probe(row, by) else row
        case Vacated(by=by) if _is_probe(row, by):
            return msgspec.structs.replace(row, state="open", until=now, wait=0, probe="", at=now)
        case Probing(by=by, until=until) if admits(row, now) == "probe":
            return msgspec.structs.replace(row, state="half_open", probe=by, until=until, wait=until - now, at=now)
        case Reset():
            return Row(row.tool)
        case _:
            return row


def _is_probe(row: Row, by: str) -> bool:
    return row.state == "half_open" and row.probe == by


def _failed(row: Row, event: Failed, now: int) -> Row:
    failures = row.failures + 1
    if row.state == "closed" and failures < event.settings.failures:
        return msgspec.structs.replace(row, failures=failures, why=event.why, at=now)
    if row.state == "closed" or _is_probe(row, event.by):
        trips = row.trips + 1
        wait = event.settings.wait_ms(trips, event.chance, event.floor_ms)
        return Row(row.tool, "open", failures, trips, now + wait, wait, "", event.why, now)
    floor = min(event.floor_ms, FLOOR_MOST_MS)
    if row.state == "open" and now + floor > row.until:  # it was in flight when the breaker opened, and was told more
        return msgspec.structs.replace(row, until=now + floor, wait=floor)
    return row


def said(before: Row, row: Row, event: Event, now: int) -> BreakerOpened | BreakerProbed | BreakerClosed | None:
    """Return what goes on record of a change, None where it is a count only."""
    if row.state == "half_open" and row.probe != before.probe:
        return BreakerProbed(at=now, tool=row.tool, until=row.until, by=row.probe)
    if row.state == before.state:
        return None
    if row.state == "closed":
        why = event.why if isinstance(event, Reset) else "the probe was answered"
        return BreakerClosed(at=now, tool=row.tool, why=why, by=event.by)
    why = "the probe came to nothing" if isinstance(event, Vacated) else row.why
    return BreakerOpened(
        at=now, tool=row.tool, failures=row.failures, trips=row.trips, until=row.until, why=why, by=event.by
    )
