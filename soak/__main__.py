"""`python -m soak`: a fleet under load on PostgreSQL, killed, restarted and deployed anew; a table, and a verdict.

The code is 0 if all held that must hold, else 1, and each violation is printed with the seed.
"""

import argparse
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from milepost.testing.seeds import drawn
from milepost.testing.world import World
from soak.judging import judge
from soak.report import Report
from soak.running import SERVER, Soak
from tests.servers.postgres import VERSIONS, Postgres

MINUTES = 10.0
WORK = 0.8  # of the time; in the rest what is under way ends, and everything is looked at
PAGE = Path("docs/reliability.md")
BEGIN = "<!-- soak: written by `make soak ARGS=--write`, not by hand -->"
END = "<!-- end of the soak -->"
Run = Callable[[Path, int, float], Report]


def soak(folder: Path, seed: int, work_s: float) -> Report:
    """Run a soak in a folder, and return what it found."""
    server = Postgres(VERSIONS[-1], settings=SERVER)
    try:
        server.start()
        with World(folder / "world", mail=False) as world:
            played = Soak(folder, world, server, seed, work_s)
            try:
                played.play()
                return judge(played)
            finally:
                played.processes.close()
                played.watch.close()
    finally:
        server.close()


def main(arguments: Sequence[str] | None = None, *, page: Path = PAGE, run: Run = soak) -> int:
    """Run a soak and print its table. 0 if all held, else 1."""
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=MINUTES, help=f"{MINUTES:.0f} is the whole soak")
    parser.add_argument("--seed", type=int, help="what is done, and when; drawn and printed without one")
    parser.add_argument("--keep", action="store_true", help="leave the logs of all processes where they are")
    parser.add_argument("--write", action="store_true", help=f"write the table into {PAGE}")
    options = parser.parse_args(arguments)
    seed = drawn() if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="milepost-soak-"))
    try:
        report = run(folder, seed, options.minutes * 60 * WORK)
    finally:
        if options.keep:
            print(f"logs: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    print(report.as_text())
    for problem in report.problems:
        print(f"VIOLATED  {problem}")
    if report.problems:
        print(f"again: python -m soak --minutes {options.minutes:g} --seed {seed} --keep")
    if options.write:
        write(page, report)
    return 1 if report.problems else 0


def write(page: Path, report: Report) -> None:
    """Put the table between the marks of a page."""
    before, begin, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{page} has no marks for the soak")
    page.write_text(f"{before}{BEGIN}\n\n{report.as_markdown()}\n\n{END}{after}")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that what was started is ended
    sys.exit(main())
