"""Spans of time as people write them: `"30s"`, `"24h"`, `"1m30s"`, or a timedelta."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Duration = str | timedelta


def parse_ms(span: Duration) -> int:
    """Return the span in whole milliseconds.

    Raises ValueError for a text that is no span or is negative; the message shows how to write one.
    """
    if isinstance(span, timedelta):
        if span < timedelta(0):
            msg = f"{span!r} is negative: a span of time is zero or more"
            raise ValueError(msg)
        return span // timedelta(milliseconds=1)
    parts = _PART.findall(span)
    if not parts or "".join(number + unit for number, unit in parts) != span.strip():
        msg = f"{span!r} is no span of time: write it like '500ms', '30s', '5m', '24h', '7d' or '1h30m'"
        raise ValueError(msg)
    return sum(round(float(number) * _UNITS_MS[unit]) for number, unit in parts)


def to_ms(moment: datetime) -> int:
    """Return the moment in milliseconds since 1970 UTC. Raises ValueError for a time without a zone."""
    if moment.tzinfo is None:
        msg = f"{moment!r} has no time zone: use datetime.now(UTC), or .replace(tzinfo=…)"
        raise ValueError(msg)
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def from_ms(moment_ms: int) -> datetime:
    """Return the moment, given in milliseconds since 1970, as an aware datetime in UTC."""
    return _EPOCH + timedelta(milliseconds=moment_ms)
