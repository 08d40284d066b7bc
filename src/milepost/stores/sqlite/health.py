"""Whether a store's file stands as it should: what `milepost doctor` and `milepost verify` ask of it.

Everything is asked through the store's own connections or from the file system's metadata. No descriptor of the file is
opened beside SQLite's: closing it would drop the locks of this process.
"""

from __future__ import annotations

import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING, cast

import apsw

from milepost.stores.api import Check
from milepost.stores.health import clock, latest
from milepost.stores.sqlite.connection import MIGRATIONS, OLDEST_SAFE, SQL
from milepost.stores.sqlite.statements import SqliteStatements

if TYPE_CHECKING:
    from collections.abc import Iterable

FREE_LEAST = 100 * 1024 * 1024
OTHERS = stat.S_IRWXG | stat.S_IRWXO


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
        clock(latest(SqliteStatements(writer)), now),
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
