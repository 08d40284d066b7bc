"""What every store can say of itself: whether its record is of the past."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from milepost.core.duration import from_ms
from milepost.stores.api import Check

if TYPE_CHECKING:
    from milepost.stores.statements import Statements

CLOCK_SLACK_MS = 2_000


class _Moment(msgspec.Struct):
    at: int


_moment = msgspec.json.Decoder(_Moment)


def latest(sql: Statements) -> int:
    """Return the latest moment that anything of the store was written at; 0 for an empty one."""
    changes, bodies = sql.run("latest_change"), sql.run("last_bodies")
    moments = [at or 0 for (at,) in changes]
    for (body,) in bodies:
        with suppress(msgspec.DecodeError, RecursionError, UnicodeError):  # a damaged entry is what `verify` reports
            moments.append(_moment.decode(body).at)
    return max(moments)


def clock(written: int, now: int) -> Check:
    """Say whether the record holds moments that have not come yet: then a clock stood wrong, or was set back."""
    ahead = written - now
    found = f"the latest entry is of {from_ms(written):%Y-%m-%d %H:%M:%S} UTC" if written else "nothing is written yet"
    if ahead > CLOCK_SLACK_MS:
        found += f", {ahead / 1000:,.0f} s from now"
    return Check("clock", ahead <= CLOCK_SLACK_MS, found, "set the clock of this machine, or of the one that wrote it")
