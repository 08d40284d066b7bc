"""What `make mutants` found, as it is printed and as it stands in docs/reliability.md between its own two markers."""

import re
from collections import Counter
from collections.abc import Mapping

from mutation.parts import MODULES, ROOT

PAGE = ROOT / "docs" / "reliability.md"
START = "<!-- mutants: written by `make mutants ARGS=--write`, not by hand -->"
END = "<!-- end of the mutants -->"
BETWEEN = re.compile(re.escape(START) + r"\n(.*?)" + re.escape(END), re.DOTALL)
HEADINGS = (
    "module",
    "mutants",
    "killed by tests",
    "refused by the type check",
    "only other words",
    "explained survivors",
)
ALL = "all"

Numbers = Mapping[str, tuple[int, ...]]


def numbers(counts: Mapping[str, Counter[str]]) -> dict[str, tuple[int, ...]]:
    """Return what became of the mutants of each module that has any: all, killed, refused, only words, survived."""
    result: dict[str, tuple[int, ...]] = {}
    for module, found in counts.items():
        killed, refused, words = found["killed"] + found["timeout"], found["caught by type check"], found["skipped"]
        if found.total():
            result[module] = (found.total(), killed, refused, words, found.total() - killed - refused - words)
    return result


def rows(found: Numbers) -> list[tuple[str, ...]]:
    """Return a row for each module, and the sum."""
    total = tuple(map(sum, zip(*found.values(), strict=True)))
    return [tuple(map(str, row)) for row in [*((name, *found[name]) for name in sorted(found)), (f"**{ALL}**", *total)]]


def as_text(found: Numbers) -> str:
    """Return the table for a terminal."""
    table = [HEADINGS, *rows(found)]
    widths = [max(len(row[place]) for row in table) for place in range(len(HEADINGS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in table]
    return "\n".join(line.rstrip() for line in lines)


def as_markdown(found: Numbers) -> str:
    """Return the table for the page."""
    lines = [HEADINGS, ("---",) + ("---:",) * (len(HEADINGS) - 1), *rows(found)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write(found: Numbers) -> None:
    """Put what was found into the page; the rows of modules that were not tried stay as they are.

    Raises LookupError where the page has no place for it.
    """
    page = PAGE.read_text(encoding="utf-8")
    if not BETWEEN.search(page):
        msg = f"{PAGE.name} has no place for the table: {START} and {END}"
        raise LookupError(msg)
    kept = {module: row for module, row in published(page).items() if module in MODULES}
    table = f"{START}\n\n{as_markdown({**kept, **found})}\n\n{END}"
    PAGE.write_text(BETWEEN.sub(lambda _: table, page), encoding="utf-8")


def published(page: str) -> dict[str, tuple[int, ...]]:
    """Return the numbers that stand in the page, by module; those of `all` are their sum."""
    found = BETWEEN.search(page)
    lines = found[1].splitlines() if found else []
    cells = [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines if line.startswith("|")]
    return {row[0].strip("*"): tuple(map(int, row[1:])) for row in cells[2:]}
