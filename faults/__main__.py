"""`python -m faults`: each fault of docs/FAULTS.md, run for real; a table, and a verdict.

The code is 0 if every row is *survived*, or *survived with a person* where a person is the answer; else 1, and each
failure is printed with the command that makes it again.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from faults.running import run
from faults.scenarios import FAULTS
from faults.scoreboard import STORES, Fault, Row, as_markdown, as_text, complaints, kept

BUDGET_S = 600
RESERVED_S = 30  # the last tries end, and the world with them
PAGE = Path("docs/reliability.md")
BEGIN = "<!-- scoreboard: written by `make faults ARGS=--write`, not by hand -->"
END = "<!-- end of the scoreboard -->"


def main(arguments: Sequence[str] | None = None, *, faults: Sequence[Fault] = FAULTS, page: Path = PAGE) -> int:
    """Run the faults and print the table. 0 if nothing was lost, else 1."""
    parser = argparse.ArgumentParser(prog="python -m faults", description=__doc__)
    parser.add_argument("--only", type=lambda said: [int(part) for part in said.split(",")], help="for example 3,12")
    parser.add_argument("--store", choices=STORES, help="on this store alone, or under Temporal alone")
    parser.add_argument("--seed", type=int, default=0, help="the first seed; try N has the seed N later")
    parser.add_argument("--tries", type=int, help="this many of each fault")
    parser.add_argument("--budget", type=float, default=BUDGET_S, help=f"seconds; {BUDGET_S} is the whole scoreboard")
    parser.add_argument("--write", action="store_true", help=f"write the table into {PAGE}; with --store, that column")
    options = parser.parse_args(arguments)
    chosen = [
        fault
        for fault in faults
        if options.only is None or fault.number in options.only
        if options.store is None or fault.store == options.store
    ]
    if not chosen:
        parser.error(f"there are {', '.join(str(fault.number) for fault in faults)}")
    if options.write and options.only is not None:
        parser.error("--write is for a whole column: leave --only out")
    share = min(1.0, options.budget / BUDGET_S)
    tries = {fault.key: options.tries or max(1, round(fault.tries * share)) for fault in chosen}
    began = time.monotonic()
    rows = run(chosen, tries, seed=options.seed, until=began + max(1, options.budget - RESERVED_S), told=progress)
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    print(as_text(rows))
    print(f"{time.monotonic() - began:.0f} s, seed {options.seed}")
    failed = complaints(rows)
    for complaint in failed:
        print(complaint)
    if options.write:
        others = [fault for fault in faults if fault not in chosen]
        write(page, [*rows, *kept(page.read_text(), others)])
    return 1 if failed else 0


def progress(row: Row) -> None:
    """Show on a terminal that something happens."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{row.fault.named}: {row.tries} tries, {row.verdict}", end="", file=sys.stderr, flush=True)


def write(page: Path, rows: Sequence[Row]) -> None:
    """Put the table between the marks of a page."""
    before, begin, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{page} has no marks for the scoreboard")
    page.write_text(f"{before}{BEGIN}\n\n{as_markdown(rows)}\n\n{END}{after}")


if __name__ == "__main__":
    sys.exit(main())
