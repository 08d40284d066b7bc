"""Spans of time as people write them: `"30s"`, `"24h"`, `"1m30s"`, or a timedelta."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MS = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)
_LAST_MS = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)
_MOST_MS = 1_000 * 365 * 86_400_000  # what begins now ends in a year that a datetime can say

Duration = str | timedelta


def parse_ms(span: Duration) -> int:
    """Return the span in whole milliseconds.

    Raises ValueError for a text that is no span (the message shows how to write one), and for what is negative or
    longer than a thousand years.
    """
    if isinstance(span, timedelta):
        ms = span // timedelta(milliseconds=1)
    else:
        parts = _PART.findall(span)
        if not parts or "".join(number + unit for number, unit in parts) != span.strip():
            msg = f"{span!r} is no span of time: write it like '500ms', '30s', '5m', '24h', '7d' or '1h30m'"
            raise ValueError(msg)
        ms = sum(round(Decimal(number) * _UNITS_MS[unit]) for number, unit in parts)
    if not 0 <= ms <= _MOST_MS:
        msg = f"{span!r} is {'negative' if ms < 0 else 'too long'}: a span of time is between zero and a thousand years"
        raise ValueError(msg)
    return ms


def to_ms(moment: datetime) -> int:
    """Return the moment in milliseconds since 1970 UTC. Raises ValueError for a time without a zone."""
    if moment.tzinfo is None:
        msg = f"{moment!r} has no time zone: use datetime.now(UTC), or .replace(tzinfo=…)"
        raise ValueError(msg)
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def from_ms(moment_ms: int) -> datetime:
    """Return the moment, given in milliseconds since 1970, as an aware datetime in UTC.

    What is outside the calendar (a row that somebody changed) is its first or last moment, so that it can be shown.
    """
    return _EPOCH + timedelta(milliseconds=min(max(moment_ms, _FIRST_MS), _LAST_MS))
