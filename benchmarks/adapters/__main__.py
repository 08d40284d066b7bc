"""`python -m benchmarks.adapters`: a batch killed in its second call, under each framework, without and with Milepost.

Every number is counted: applied effects in the ledger of the outside world, calls of the model where they arrive,
outcomes in the record. It fails where with Milepost anything was repeated, lost, or reported otherwise than it is, and
where the accident could not be made.
"""

import argparse
import sys
from collections.abc import Sequence

from benchmarks.adapters.hosts import ALL
from benchmarks.adapters.scenario import SIBLINGS, Host, Measured, NotMade, durable, without
from benchmarks.child import ROOT

PAGE = ROOT / "docs" / "adapters.md"
BEGIN = "<!-- adapters: written by `make adapters ARGS=--write`, not by hand -->"
END = "<!-- end of the adapters -->"
HEADINGS = (
    "host", "goes on from", "reserved", "refunded", "model calls", "the refund is reported",
    "siblings finished", "and recorded",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table. 0 if with Milepost all of it held, 1 if not, or where a row could not be made."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.adapters", description=__doc__)
    parser.add_argument("--only", help="hosts whose name has this in it")
    parser.add_argument("--write", action="store_true", help=f"write the table into {PAGE.relative_to(ROOT)}")
    chosen = parser.parse_args(arguments)
    if chosen.write and chosen.only:
        parser.error("--write is for the whole table: leave --only out")
    lines, wrong = [], []
    for host in ALL:
        if chosen.only and chosen.only.lower() not in host.name.lower():
            continue
        if sys.stderr.isatty():
            print(f"\r\x1b[K{host.name}", end="", file=sys.stderr, flush=True)
        try:
            bare, kept = without(host), durable(host)
        except NotMade as reason:
            wrong.append(str(reason))
            continue
        lines += [row(host, bare, milepost=False), row(host, kept, milepost=True)]
        if not kept.kept:
            wrong.append(f"{host.name}: with Milepost it did not hold: {kept}")
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    table = rendered(lines)
    print(table)
    for problem in wrong:
        print(problem, file=sys.stderr)
    if chosen.write and not wrong:
        write(table)
    return 1 if wrong else 0


def row(host: Host, found: Measured, *, milepost: bool) -> tuple[str, ...]:
    """Return the cells of one line."""
    return (
        f"{host.name}, **Milepost**" if milepost else host.name,
        "its record" if milepost else host.goes_on_from,
        times(found.reserves),
        times(found.refunds),
        str(found.model_calls),
        found.reported,
        f"{found.finished} of {SIBLINGS}",
        "-" if found.recorded is None else f"{found.recorded} of {SIBLINGS}",
    )


def times(count: int) -> str:
    """Return a count of effects, in words that stand out where it is not one."""
    return "once" if count == 1 else f"**{count} times**"


def rendered(lines: Sequence[tuple[str, ...]]) -> str:
    """Return the table as Markdown."""
    all_ = [HEADINGS, tuple("---" for _ in HEADINGS), *lines]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in all_)


def write(table: str) -> None:
    """Put the table between the marks of the page. Raises SystemExit where it has none."""
    before, begin, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{PAGE} has no marks for the table")
    PAGE.write_text(f"{before}{BEGIN}\n\n{table}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
