"""Numbered migrations with checksums: what was applied is written down, and a file that changed since is refused.

A store that many programs share is brought up to date in two steps, so that old and new code can run side by side. A
*pre* migration only adds: it is applied before the new code comes, and older code goes on as if nothing had happened. A
*post* migration takes away what only older code needs: it is applied when the last of that has gone, and older code is
refused from then on. The name of the file says which it is (`0007_post_drop_owner.sql`; all others are pre). They are
applied strictly in the order of their numbers, so a release that left a post migration behind asks for it before it
adds anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Literal

from milepost.errors import NewerSchema, NotAStore, Unmigrated

if TYPE_CHECKING:
    from collections.abc import Sequence

Kind = Literal["pre", "post"]


@dataclass(frozen=True, slots=True)
class Migration:
    """One file: its number, its name without ending, its text, and sha256 of the text."""

    number: int
    name: str
    sql: str
    checksum: str

    @property
    def kind(self) -> Kind:
        """Whether it comes before the code that needs it, or after the code that it is not for."""
        return "post" if self.name.partition("_")[2].startswith("post_") else "pre"


@dataclass(frozen=True, slots=True)
class Applied:
    """A migration that a store says it has."""

    number: int
    name: str
    kind: str
    checksum: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be applied now, and what waits behind the first that may not be, for the reason `why`."""

    apply: tuple[Migration, ...]
    waits: tuple[Migration, ...] = ()
    why: str = ""


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


def missing(place: str, all_known: Sequence[Migration], applied: Sequence[Applied]) -> list[Migration]:
    """Return what is still to be applied to a store that may be ahead of this version by what only adds.

    Raises NewerSchema where it is ahead by more than that, NotAStore when an applied file is not the one we know.
    """
    ahead = [one.number for one in applied if one.number > len(all_known) and one.kind != "pre"]
    if ahead:
        raise NewerSchema(place, max(ahead), len(all_known))
    ours = [(one.number, one.name, one.checksum) for one in applied if one.number <= len(all_known)]
    return pending(place, all_known, ours)


def may_open(place: str, all_known: Sequence[Migration], applied: Sequence[Applied]) -> None:
    """Let code that knows these migrations work on a store with those.

    Raises Unmigrated where something that the code needs is missing; NewerSchema and NotAStore as `missing` does.
    """
    needed = [one for one in missing(place, all_known, applied) if one.kind == "pre"]
    if needed:
        raise Unmigrated(place, [one.name for one in needed])


def plan(
    place: str, all_known: Sequence[Migration], applied: Sequence[Applied], *, kind: Kind | None, oldest: int | None
) -> Plan:
    """Return what to apply now, of one kind or (None) of both.

    `oldest` is the newest migration that the oldest code at work knows, None where nobody works. Raises as `missing`.
    """
    todo = missing(place, all_known, applied)
    for position, migration in enumerate(todo):
        why = ""
        if kind is not None and migration.kind != kind:
            why = f"{migration.name} comes first: milepost db migrate --{migration.kind}"
        elif migration.kind == "post" and oldest is not None and oldest < migration.number:
            why = f"{migration.name} is for when older workers are gone, and one that knows only {oldest:04} is at work"
        if why:
            return Plan(tuple(todo[:position]), tuple(todo[position:]), why)
    return Plan(tuple(todo))
