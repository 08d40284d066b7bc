"""What the demo prints at its end. Pure but for rich: figures in, a table out."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from rich.table import Table

from milepost.cli.demo.killer import Report
from milepost.cli.demo.tally import Tally


@dataclass(frozen=True)
class Record:
    """What only the desk's own record knows: the unknowns that were settled, and the runs that wait for a person."""

    reconciled: int
    waiting: int


def outside_table(tally: Tally) -> Table:
    """What the outside ledgers say, one line for each kind of effect."""
    table = Table(title="Counted in the ledgers of the outside world", title_justify="left")
    table.add_column("effect")
    for column in ("expected", "applied", "duplicates", "lost", "waiting", "wrong"):
        table.add_column(column, justify="right")
    for line in tally.lines:
        figures = (line.expected, line.applied, line.duplicates, line.lost, line.waiting, line.wrong)
        table.add_row(f"{line.what}s", *map(str, figures))
    return table


def worker_table(tickets: int, report: Report, faults: Mapping[str, int], record: Record | None = None) -> Table:
    """What the worker went through, and what the outside did to it."""
    table = Table(show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("tickets", str(tickets))
    table.add_row("SIGKILLs", str(len(report.kills)))
    table.add_row("… while an effect was in flight", str(report.on_effect))
    table.add_row("restarts", str(report.restarts))
    if report.first_steps:
        middle, longest = median(report.first_steps), max(report.first_steps)
        table.add_row("restart to first new step, median (longest)", f"{middle:.2f} s ({longest:.2f} s)")
    table.add_row("answers lost, or an error after the money moved", str(_sum(faults, "lost_answer", "error_after")))
    table.add_row("errors before the money moved", str(_sum(faults, "error_before", "busy")))
    if record is not None:
        table.add_row("unknown outcomes reconciled", str(record.reconciled))
        table.add_row("mails waiting for a person", str(record.waiting))
    table.add_row("seconds", f"{report.seconds:.1f}")
    return table


def _sum(faults: Mapping[str, int], *names: str) -> int:
    return sum(faults.get(name, 0) for name in names)
