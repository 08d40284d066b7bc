"""The list of mutants that no test kills, each with the reason: `survivors.toml`, which may only shrink."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

from mutation.changes import Mutant

LIST = Path(__file__).with_name("survivors.toml")


@dataclass(frozen=True)
class Survivors:
    """Explained survivors: the reason of each."""

    reasons: dict[Mutant, str]

    @property
    def by_module(self) -> dict[str, int]:
        """How many there are in each module."""
        counts: dict[str, int] = {}
        for mutant in self.reasons:
            counts[mutant.module] = counts.get(mutant.module, 0) + 1
        return counts


def read(path: Path = LIST) -> Survivors:
    """Return the list. Raises ValueError for a mutant that stands in it twice, and for a reason that says nothing."""
    reasons: dict[Mutant, str] = {}
    for group in tomllib.loads(path.read_text(encoding="utf-8")).get("group", []):
        reason: str = group["reason"].strip()
        if len(reason.split()) < 3:  # noqa: PLR2004  fewer words explain nothing
            msg = f"{reason!r} is no reason: say why no test can or should tell the difference"
            raise ValueError(msg)
        for line in group["mutants"]:
            mutant = parse(line)
            if mutant in reasons:
                msg = f"{mutant} stands in the list twice"
                raise ValueError(msg)
            reasons[mutant] = reason
    return Survivors(reasons)


def parse(line: str) -> Mutant:
    """Return the mutant that a line names: `core/lease.py lapsed: return now [>=→>] lease_until`."""
    where, _, changed = line.partition(": ")
    module, _, function = where.partition(" ")
    if not (module and function and changed):
        msg = f"{line!r} names no mutant: write `core/lease.py lapsed: return now [>=→>] lease_until`"
        raise ValueError(msg)
    return Mutant(module, function, changed)
