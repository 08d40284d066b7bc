"""Runs a desk under the killer with a progress bar, and prints what came of it."""

from collections.abc import Callable, Mapping

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from milepost.cli.demo.killer import Plan, Report
from milepost.cli.demo.report import Record, outside_table, worker_table
from milepost.cli.demo.tally import Tally


def with_bar(
    console: Console,
    title: str,
    plan: Plan,
    progress: Callable[[], int],
    run: Callable[[Callable[[Report], None]], Report],
) -> Report:
    """Call `run` with a function to call on each look at the worker, and draw what that function sees.

    `progress` says how many steps are done. A step that is done twice counts twice, so a bar may be full early.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total} steps · {task.fields[kills]} kills"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, refresh_per_second=10) as bar:
        task = bar.add_task(title, total=plan.steps, kills=0)

        def on_look(report: Report) -> None:
            bar.update(task, completed=min(progress(), plan.steps), kills=len(report.kills))

        report = run(on_look)
        on_look(report)
    return report


def print_outcome(
    console: Console,
    tickets: int,
    tally: Tally,
    report: Report,
    faults: Mapping[str, int],
    record: Record | None = None,
) -> None:
    """Print both tables and one sentence that sums them up."""
    console.print(worker_table(tickets, report, faults, record))
    console.print(outside_table(tally))
    console.print(f"{tally.duplicates} duplicates, {tally.lost} lost, {tally.wrong} wrong.")
