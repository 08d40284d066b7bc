"""The table, as Markdown that is also readable in a terminal, so that it can be put into a page as it stands."""

import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import apsw

from benchmarks.comparing import Row

HEADINGS = ("work", "figure", "of fresh", "of pre-extended", "CPU µs each", "target", "verdict")


def render(rows: Sequence[Row]) -> str:
    """All rows under one heading, columns aligned."""
    lines = [HEADINGS, *(_cells(row) for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(HEADINGS))]
    text = [_line(line, widths) for line in lines]
    text.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(text)


def conditions(rounds: int, folder: Path) -> str:
    """On what, and how, the figures were taken."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return (
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, {_filesystem(folder)}; {python}, "
        f"SQLite {apsw.sqlite_lib_version()} (apsw {apsw.apsw_version()}).\n"
        f"Medians of {rounds} rounds; a ratio is to bare one-row FULL commits timed right before and after "
        "(fresh log, log pre-extended to 16 MB)."
    )


def summary(rows: Sequence[Row]) -> str:
    """How many targets were met, and which were missed."""
    judged = [row for row in rows if row.met is not None]
    missed = [row.work for row in judged if not row.met]
    text = f"{len(judged) - len(missed)} of {len(judged)} targets met"
    return text + (f"; missed: {'; '.join(missed)}" if missed else "")


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.work,
        row.figure,
        "" if row.fresh is None else f"{row.fresh:.2f}",
        "" if row.extended is None else f"{row.extended:.2f}",
        "" if row.cpu_us is None else f"{row.cpu_us:,.0f}",
        "" if row.target is None else str(row.target),
        row.verdict,
    )


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (
        cell.ljust(width) if at in {0, 5, 6} else cell.rjust(width)
        for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return f"| {' | '.join(padded)} |"


def _filesystem(folder: Path) -> str:
    if sys.platform != "linux":
        return "local disk"
    command = ["df", "--output=fstype", str(folder)]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    return shown.stdout.split()[-1] if shown.stdout else "unknown file system"
