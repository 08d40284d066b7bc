"""The table: what each fault came to, and in how many tries.

A row is *lost* if in one try one thing did not hold. It is *survived with a person* if a person had to settle
something. That does not count the irreversible calls which were in flight when their process was killed or lost its
run: by declaration they are a person's in every row; `left to a person` counts them too. A row for which a tool of the
system is missing has no verdict, and fails. So does one whose fault came too seldom to prove anything, and one of whose
tries too many held only when they were made again.

A fault is tried on each store that it concerns, and under Temporal, which drives instead of a worker of ours. Each of
them has a column of verdicts, and what is counted stands in their order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from faults.stage import Stage, Try

Verdict = Literal["survived", "survived with a person", "lost", "not run"]
WITH_A_PERSON = frozenset({6, 9, 11, 19})
SQLITE, POSTGRES, TEMPORAL = "SQLite", "PostgreSQL", "Temporal"
STORES = (SQLITE, POSTGRES, TEMPORAL)  # under Temporal, which drives, the two stores take turns
COUNTED = ("tries", "points", "left to a person")
HEADINGS = ("#", "fault", *STORES, *COUNTED, "what was injected", "what was checked")
NOT_TRIED = "-"
Key = tuple[int, str]
PROBLEMS_SHOWN = 12
AGAIN_SHARE = 20  # one try in so many may run out of time, and one of them always


@dataclass(frozen=True)
class Fault:
    """One fault: how it is made, what must hold, and one try of it.

    `play` finds in its stage all that it needs, and notes there what it saw. `tries` is how many fit into the budget
    of ten minutes, `smoke` how many into the test suite. `least` is how many points a try meets at the least, over all
    of them: a fault that hits so much less than it was seen to hit is not one that was survived.
    `store` is what it is tried on.
    """

    number: int
    name: str
    injected: str
    checked: str
    play: Callable[[Stage], None]
    tries: int
    smoke: int = 2
    least: float = 0.5
    store: str = SQLITE

    @property
    def key(self) -> Key:
        """What tells it from all others."""
        return self.number, self.store

    @property
    def named(self) -> str:
        """How it is called where only one is meant."""
        return f"fault {self.number}" if self.store == SQLITE else f"fault {self.number} on {self.store}"


@dataclass(frozen=True)
class Failure:
    """A try that did not hold, and the seed that makes it again."""

    number: int
    seed: int
    problems: tuple[str, ...]
    store: str = SQLITE

    @property
    def again(self) -> str:
        """The command that makes it again."""
        return f"python -m faults --only {self.number} --store {self.store} --seed {self.seed} --tries 1"


@dataclass
class Row:
    """What became of one fault."""

    fault: Fault
    tries: int = 0
    points: int = 0
    asked: int = 0
    cut: int = 0
    gap: int = 0
    failures: list[Failure] = field(default_factory=list)
    missing: str = ""
    again: int = 0

    def add(self, seed: int, done: Try) -> None:
        """Take a try into account."""
        self.tries += 1
        self.points += done.points
        self.asked += done.asked
        self.cut += done.cut
        self.gap += done.gap
        if done.problems:
            self.failures.append(Failure(self.fault.number, seed, tuple(done.problems), self.fault.store))

    @property
    def verdict(self) -> Verdict:
        """What the tries come to together."""
        if self.failures:
            return "lost"
        if self.missing or not self.tries or self.points < self.least:
            return "not run"
        return "survived with a person" if self.asked else "survived"

    @property
    def least(self) -> int:
        """So many points must have been met, for these tries to say anything."""
        return max(1, int(self.fault.least * self.tries))

    @property
    def complaints(self) -> list[str]:
        """Why this row fails; nothing where it does not."""
        number, named = self.fault.number, self.fault.named
        if self.missing:
            return [f"{named} was not run: {self.missing}"]
        if self.verdict == "not run":
            few = f"it came {self.points} times, and not {self.least}" if self.points else "it never came"
            return [f"{named} was not run: in {self.tries} tries {few}"]
        said = [
            f"{named}, seed {failure.seed}: {problem}\n    again: {failure.again}"
            for failure in self.failures[:PROBLEMS_SHOWN]
            for problem in failure.problems[:PROBLEMS_SHOWN]
        ]
        if self.verdict == "survived with a person" and number not in WITH_A_PERSON:
            said.append(f"{named}: {self.asked} times a person was needed where none should be")
        most = max(1, self.tries // AGAIN_SHARE)
        if self.again > most:
            said.append(
                f"{named}: {self.again} of {self.tries} tries ran out of time and held again, and {most} may: "
                "something hangs now and then, or this machine is too slow to tell"
            )
        return said

    @property
    def counted(self) -> tuple[str, ...]:
        """What is counted, as it is printed."""
        return str(self.tries), str(self.points), str(self.asked + self.cut)

    @property
    def checked(self) -> str:
        """What was checked, as it is printed."""
        gap = f" ({self.gap} tries fell into the gap that only a seal closes)" if self.gap else ""
        return self.fault.checked + gap


def kept(page: str, faults: Iterable[Fault]) -> list[Row]:
    """Return the rows of a page as it stands, as far as they are of these faults, for one that is written in part."""
    rows = []
    cells = {int(found[0]): found for found in (line.strip("| ").split(" | ") for line in page.splitlines()
             if re.match(r"\| \d+ \|", line))}  # fmt: skip
    for fault in faults:
        found = cells.get(fault.number)
        if found is None or len(found) != len(HEADINGS) or found[2 + STORES.index(fault.store)] == NOT_TRIED:
            continue
        tried = [store for store in STORES if found[2 + STORES.index(store)] != NOT_TRIED]
        tries, points, left = (
            int(cell.split(" + ")[tried.index(fault.store)]) for cell in found[2 + len(STORES) : 5 + len(STORES)]
        )
        asked = found[2 + STORES.index(fault.store)] == "survived with a person"
        gap = re.search(r"\((\d+) tries fell into the gap", found[-1]) if fault.store == SQLITE else None
        rows.append(Row(fault, tries, points, left if asked else 0, 0 if asked else left, int(gap[1]) if gap else 0))
    return rows


def line(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return the line of one fault, from its rows: one a store, in the order of the stores."""
    verdicts = {row.fault.store: row.verdict for row in rows}
    counted = [" + ".join(numbers) for numbers in zip(*(row.counted for row in rows), strict=True)]
    first, *others = rows
    injected, checked = [first.fault.injected], [first.checked]
    for row in others:
        for said, said_first, mine in (
            (injected, first.fault.injected, row.fault.injected),
            (checked, first.checked, row.checked),
        ):
            if mine != said_first:
                said.append(f"on {row.fault.store}: {mine}")
    shown = [verdicts.get(store, NOT_TRIED) for store in STORES]
    return (str(first.fault.number), first.fault.name, *shown, *counted, "; ".join(injected), "; ".join(checked))


def lines(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return the lines of the table: one a fault, in the order of their numbers."""
    numbers = sorted({row.fault.number for row in rows})
    in_order = sorted(rows, key=lambda row: STORES.index(row.fault.store))
    return [line([row for row in in_order if row.fault.number == number]) for number in numbers]


def complaints(rows: Iterable[Row]) -> list[str]:
    """Return why a run of the scoreboard fails; nothing where it does not."""
    return [complaint for row in rows for complaint in row.complaints]


def total(rows: Sequence[Row]) -> str:
    """Return the last line."""
    verdicts = [row.verdict for row in rows]
    counted = ", ".join(
        f"{verdicts.count(verdict)} {verdict}"
        for verdict in ("survived", "survived with a person", "lost", "not run")
        if verdict in verdicts
    )
    tries, points = sum(row.tries for row in rows), sum(row.points for row in rows)
    again = sum(row.again for row in rows)
    slow = f"; {again} tries ran out of time and held when they were made again" if again else ""
    faults = f"{len({row.fault.number for row in rows})} faults"
    both = f" in {len(rows)} rows" if len(rows) > len({row.fault.number for row in rows}) else ""
    return f"{faults}{both}: {counted}; {tries} tries, {points} kill points and states met{slow}"


def as_text(rows: Sequence[Row], columns: int = len(HEADINGS) - 2) -> str:
    """Return the table for a terminal: its first columns."""
    table = [HEADINGS[:columns], *(cells[:columns] for cells in lines(rows))]
    widths = [max(len(cells[place]) for cells in table) for place in range(columns)]
    printed = [
        "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip() for cells in table
    ]
    return "\n".join([printed[0], "  ".join("-" * width for width in widths), *printed[1:], "", total(rows)])


def as_markdown(rows: Sequence[Row]) -> str:
    """Return the whole table for a page."""
    printed = [f"| {' | '.join(HEADINGS)} |", f"|{'---|' * len(HEADINGS)}"]
    printed += [f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |" for cells in lines(rows)]
    return "\n".join([*printed, "", f"**{total(rows)}.**"])
