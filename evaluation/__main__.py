"""`python -m evaluation`: each task twice, once undisturbed and once with its worker killed; a table, and a verdict.

The kill lands between `started` and outcome of a consequential call where the task has one (the last of them), else in
its last read, which has no `started`: there the question is only whether the run goes on.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from evaluation import suite
from evaluation.counter import bank_process
from evaluation.killing import Finished, Kill, Stage, WorkerError

MOMENTS = ("applied", "lost", "late")
"""What had become of the request when its sender died; the tasks that change something take turns."""

HEADINGS = ("task", "calls", "killed at", "the request was", "effects applied", "utility", "equal to the unkilled run")


@dataclass(frozen=True)
class Judged:
    """One line of the table, and the reasons, if any, why the killed run is not equal to the unkilled one."""

    cells: tuple[str, ...]
    differences: tuple[str, ...]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tasks and print the table. 0 if every killed run is equal to its unkilled twin and passes, else 1."""
    parser = argparse.ArgumentParser(prog="python -m evaluation", description=__doc__)
    parser.add_argument("tasks", nargs="*", help="only these, for example user_task_15")
    parser.add_argument("--moment", choices=MOMENTS, help="the same moment for every kill")
    chosen = parser.parse_args(arguments)
    known = suite.tasks()
    tasks = [task for task in known if not chosen.tasks or task.id in chosen.tasks]
    if not tasks:
        parser.error(f"no such task; there are {', '.join(task.id for task in known)}")
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


def _judge_all(folder: Path, tasks: Sequence[suite.BankingTask], moments: Sequence[str]) -> list[Judged]:
    turns = cycle(moments)
    judged = []
    with bank_process(folder / "bank.db") as bank:
        stage = Stage(folder / "runs.db", bank)
        for at, task in enumerate(tasks, 1):
            if sys.stderr.isatty():
                print(f"\r{at} of {len(tasks)}: {task.id}   ", end="", file=sys.stderr, flush=True)
            moment = next(turns) if task.consequential else "lost"
            position = task.consequential[-1] if task.consequential else len(task.calls) - 1
            judged.append(_judge(stage, task, Kill(position, moment)))
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    return judged


def _judge(stage: Stage, task: suite.BankingTask, kill: Kill) -> Judged:
    moment = kill.moment if task.consequential else "a read"
    try:
        unkilled = stage.play(task, f"{task.id}-unkilled")
        killed = stage.play(task, f"{task.id}-killed", kill)
    except WorkerError as failure:
        return Judged((task.id, str(len(task.calls)), "-", moment, "-", "-", "no"), (str(failure),))
    before = suite.initial_environment(task)
    useful = suite.utility(task, before, killed.books.environment)
    differences = tuple(_differences(task, before, unkilled, killed))
    if not useful:
        differences += ("the suite's utility check says that the task is not solved",)
    applied = f"{len(killed.books.ledger)} of {len(task.consequential)}"
    cells = (
        task.id,
        str(len(task.calls)),
        killed.killed_at,
        moment,
        applied,
        "pass" if useful else "fail",
        "no" if differences else "yes",
    )
    return Judged(cells, differences)


def _differences(task: suite.BankingTask, before: str, unkilled: Finished, killed: Finished) -> list[str]:
    """Where the killed run differs from the unkilled one, or the unkilled one from the suite's own plain execution."""
    plain_environment, plain_answers = before, list[str]()
    for call in task.calls:
        plain_environment, answer = suite.call_function(plain_environment, call.function, call.args)
        plain_answers.append(suite.canonical(answer))
    expected = [f"{task.calls[at].function} {suite.canonical(task.calls[at].args)}" for at in task.consequential]
    claims = {
        "the environment differs from the unkilled run's": killed.books.environment == unkilled.books.environment,
        "the answers differ from the unkilled run's": killed.answers == unkilled.answers,
        "the bank's ledger differs from the unkilled run's": killed.books.applied == unkilled.books.applied,
        "a reference was applied twice": killed.books.references == len(killed.books.ledger),
        "the unkilled environment differs from the suite's": unkilled.books.environment == plain_environment,
        "the unkilled answers differ from the suite's": unkilled.answers == plain_answers,
        "the unkilled ledger differs from the ground truth": unkilled.books.applied == expected,
    }
    return [claim for claim, holds in claims.items() if not holds]


def _print_table(rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(len(row[at]) for row in (HEADINGS, *rows)) for at in range(len(HEADINGS))]
    for row in (HEADINGS, tuple("-" * width for width in widths), *rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print()


if __name__ == "__main__":
    sys.exit(main())
