"""Whether a store's file stands as it should: what `milepost doctor` and `milepost verify` ask of it.

Everything is asked through the store's own connections or from the file system's metadata. No descriptor of the file is
opened beside SQLite's: closing it would drop the locks of this process.
"""

from __future__ import annotations

import shutil
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast

import apsw
import msgspec

from milepost.core.duration import from_ms
from milepost.stores.api import Check
from milepost.stores.sqlite.connection import MIGRATIONS, OLDEST_SAFE, SQL

if TYPE_CHECKING:
    from collections.abc import Iterable

FREE_LEAST = 100 * 1024 * 1024
CLOCK_SLACK_MS = 2_000
OTHERS = stat.S_IRWXG | stat.S_IRWXO


class _Moment(msgspec.Struct):
    at: int


_moment = msgspec.json.Decoder(_Moment)


def checks(writer: apsw.Connection, place: str, now: int) -> list[Check]:
    """Return what durability, privacy and order rest on, as it is. `now` is in milliseconds since 1970."""
    version = apsw.sqlite_lib_version()
    needs = ".".join(map(str, OLDEST_SAFE))
    safe = tuple(map(int, version.split("."))) >= OLDEST_SAFE
    journal = str(writer.pragma("journal_mode"))
    synchronous = writer.pragma("synchronous")
    applied = len(writer.execute(SQL["migrations"]).fetchall())
    return [
        Check("library", safe, f"SQLite {version}", f"install apsw with SQLite {needs} or later"),
        Check(
            "journal mode", journal == "wal", journal, "keep the file on a local disk, and open it with Milepost alone"
        ),
        Check("synchronous", synchronous == 2, f"{synchronous} (2 is FULL)", "open it with Milepost alone"),  # noqa: PLR2004
        Check("migrations", applied == len(MIGRATIONS), f"{applied} of {len(MIGRATIONS)} applied", "milepost init"),
        private([place, place + "-wal", place + "-shm"]),
        room(place),
        clock(latest(writer), now),
    ]


def pages(writer: apsw.Connection) -> Check:
    """Read the whole file and say whether its pages and indexes are sound."""
    try:
        found = cast("list[tuple[str]]", writer.execute("PRAGMA quick_check(1)").fetchall())[0][0]
    except apsw.Error as error:
        found = str(error)
    return Check("pages", found == "ok", found, "keep the file as it is, and restore a backup")


def private(places: Iterable[str]) -> Check:
    """Say whether nobody but the owner can read or write these files."""
    modes = {place: stat.S_IMODE(Path(place).stat().st_mode) for place in places if Path(place).exists()}
    open_to_others = [place for place, mode in modes.items() if mode & OTHERS]
    shown = ", ".join(f"{Path(place).name} {mode:04o}" for place, mode in modes.items())
    return Check("modes", not open_to_others, shown, f"chmod go= {' '.join(open_to_others)}")


def room(place: str, least: int = FREE_LEAST) -> Check:
    """Say whether the disk has at least `least` bytes left: a commit that finds none stops its process."""
    free = shutil.disk_usage(Path(place).resolve().parent).free
    return Check("disk", free >= least, f"{free // 1_048_576:,} MiB free", "free some of the disk that holds the store")


def latest(writer: apsw.Connection) -> int:
    """Return the latest moment that anything of the store was written at; 0 for an empty one."""
    changes = cast("list[tuple[int | None]]", writer.execute(SQL["latest_change"]).fetchall())
    bodies = cast("list[tuple[bytes]]", writer.execute(SQL["last_bodies"]).fetchall())
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
