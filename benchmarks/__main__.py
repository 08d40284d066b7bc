"""`python -m benchmarks`: everything, in one table."""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks import authority, checkpoint, growth, memory, peers, postgres, recovery, startup, syscalls, throughput
from benchmarks.adapters import cost
from benchmarks.comparing import Bench, Row
from benchmarks.table import conditions, render, summary

PARTS: dict[str, Callable[[Bench], Iterator[Row]]] = {
    "baseline": lambda bench: iter(bench.baseline_rows()),
    "throughput": throughput.rows,
    "syscalls": syscalls.rows,
    "authority": authority.rows,
    "recovery": recovery.rows,
    "growth": growth.rows,
    "checkpoint": checkpoint.rows,
    "memory": memory.rows,
    "startup": startup.rows,
    "peers": peers.rows,
    "postgres": postgres.rows,
    "adapters": cost.rows,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the chosen parts and print the table. Always 0: a missed target is a finding, not a failure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"only these: {', '.join(PARTS)}")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each work (5)")
    parser.add_argument("--scale", type=float, default=1.0, help="a factor on the amount of work (1.0)")
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()), help="a folder on the disk to measure"
    )
    parser.add_argument("--json", action="store_true", help="rows as JSON instead of the table")
    chosen = parser.parse_args(arguments)
    if unknown := set(chosen.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    with tempfile.TemporaryDirectory(prefix="milepost-bench-", dir=chosen.folder) as folder:
        bench = Bench(chosen.rounds, chosen.scale, Path(folder))
        rows = []
        for name in chosen.parts or PARTS:
            for row in PARTS[name](bench):
                rows.append(row)
                if sys.stderr.isatty():
                    print(f"\r\x1b[K{len(rows)}: {row.work}: {row.figure}", end="", file=sys.stderr, flush=True)
        about = conditions(chosen.rounds, bench.folder)
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    if chosen.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        print(f"{about}\n\n{render(rows)}\n\n{summary(rows)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
