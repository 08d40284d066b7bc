"""`python -m evaluation`: each task twice, once undisturbed and once with its worker killed; a table, and a verdict.

The kill lands between `started` and outcome, which the record proves: in the last consequential call of a task or,
where it has none, in its last read (the bank charges for reads, so that they too are recorded before they are asked).
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path

from evaluation import suite
from evaluation.counter import bank_process
from evaluation.judging import HEADINGS, Judged, judge, kill_of
from evaluation.killing import Stage
from evaluation.task import Task

MOMENTS = ("applied", "lost", "late")
"""What had become of the request when its sender died; the tasks that change something take turns."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tasks and print the table. 0 if every killed run is equal to its unkilled twin and passes, else 1."""
    parser = argparse.ArgumentParser(prog="python -m evaluation", description=__doc__)
    parser.add_argument("tasks", nargs="*", help="only these, for example user_task_15")
    parser.add_argument("--moment", choices=MOMENTS, help="the same moment for every kill")
    chosen = parser.parse_args(arguments)
    known = suite.tasks()
    tasks = [task for task in known if not chosen.tasks or task.id in chosen.tasks]
    if unknown := set(chosen.tasks) - {task.id for task in known}:
        parser.error(f"no task {', '.join(sorted(unknown))}; there are {', '.join(task.id for task in known)}")
    moments = [chosen.moment] if chosen.moment else list(MOMENTS)
    print(f"AgentDojo {suite.package_version()}, suite {suite.SUITE} {suite.VERSION}: {len(known)} user tasks\n")
    with tempfile.TemporaryDirectory(prefix="milepost-evaluation-") as folder:
        judged = _judge_all(Path(folder), tasks, moments)
    _print_table([one.cells for one in judged])
    for one in judged:
        for difference in one.differences:
            print(f"{one.cells[0]}: {difference}")
    equal = sum(not one.differences for one in judged)
    print(f"{equal} of {len(judged)} equal")
    return 0 if equal == len(tasks) else 1


def _judge_all(folder: Path, tasks: Sequence[Task], moments: Sequence[str]) -> list[Judged]:
    turns, turns_of_reads = cycle(moments), cycle(moments)
    judged = []
    with bank_process(folder / "bank.db", "evaluation.agentdojo_bank") as bank:
        stage = Stage(folder / "runs.db", bank, suite)
        for at, task in enumerate(tasks, 1):
            if sys.stderr.isatty():
                print(f"\r{at} of {len(tasks)}: {task.id}   ", end="", file=sys.stderr, flush=True)
            moment = next(turns if task.consequential else turns_of_reads)
            judged.append(judge(stage, task, kill_of(task, moment)))
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    return judged


def _print_table(rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(len(row[at]) for row in (HEADINGS, *rows)) for at in range(len(HEADINGS))]
    for row in (HEADINGS, tuple("-" * width for width in widths), *rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print()


if __name__ == "__main__":
    sys.exit(main())
