"""Numbered migrations with checksums: what was applied is written down, and a file that changed since is refused."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING

from milepost.errors import NewerSchema, NotAStore

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Migration:
    """One file: its number, its name without ending, its text, and sha256 of the text."""

    number: int
    name: str
    sql: str
    checksum: str


def known(package: str) -> list[Migration]:
    """Return the migrations of a store in order. Raises ValueError when a number is missing or stands twice."""
    found = sorted(item.name for item in files(package).iterdir() if item.name.endswith(".sql"))
    migrations = []
    for position, name in enumerate(found, start=1):
        number = int(name.split("_", 1)[0])
        if number != position:
            msg = f"migration {name} should have number {position:04}"
            raise ValueError(msg)
        sql = files(package).joinpath(name).read_text("utf-8")
        migrations.append(Migration(number, name.removesuffix(".sql"), sql, sha256(sql.encode()).hexdigest()))
    return migrations


def pending(place: str, all_known: Sequence[Migration], applied: Sequence[tuple[int, str, str]]) -> list[Migration]:
    """Return what is still to be applied.

    Raises NewerSchema when the store is ahead of this version, NotAStore when an applied file is not the one we know.
    """
    newest = max((number for number, _, _ in applied), default=0)
    if newest > len(all_known):
        raise NewerSchema(place, newest, len(all_known))
    for number, name, checksum in applied:
        ours = all_known[number - 1]
        if (ours.name, ours.checksum) != (name, checksum):
            raise NotAStore(place, f"migration {number} is {name!r} with another checksum than ours")
    return [migration for migration in all_known if migration.number > newest]
