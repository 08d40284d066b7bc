"""Draws the progress bar of a demo, and prints what came of it."""

from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from milepost.cli.demo.killer import Plan, Report
from milepost.cli.demo.outcome import Outcome
from milepost.cli.demo.report import decisions, outside_table, worker_table


def with_bar(console: Console, title: str, plan: Plan, run: Callable[[Callable[[Report], None]], Outcome]) -> Outcome:
    """Call `run` with a function to call on each look at the worker, and draw what that function sees.

    A step of the naive desk that is done twice counts twice, so that its bar may be full early.
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
            bar.update(task, completed=min(report.steps, plan.steps), kills=len(report.kills))

        outcome = run(on_look)
        on_look(outcome.report)
    return outcome


def print_outcome(console: Console, outcome: Outcome) -> None:
    """Print both tables, what a person is asked to decide, and one sentence that sums up."""
    console.print(outside_table(outcome.tally))
    console.print(worker_table(outcome))
    for line in decisions(outcome):
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    console.print(f"# Store, ledgers and logs stay in {outcome.folder}", soft_wrap=True, highlight=False, markup=False)
    verdict = "; ".join(outcome.problems()) or "Nothing was done twice, and nothing was forgotten."
    console.print(verdict, style="red" if outcome.problems() else "green")
