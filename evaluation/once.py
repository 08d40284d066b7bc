"""The first part: AgentDojo's banking tasks over HTTP, each twice: undisturbed, and with its worker killed once.

The kill lands between `started` and outcome, which the record proves: in the last consequential call of a task or,
where it has none, in its last read (the bank charges for reads, so that they too are recorded before they are asked).
"""

import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path

from evaluation import suite
from evaluation.counter import bank_process
from evaluation.judging import HEADINGS, judge, kill_of
from evaluation.killing import Stage
from evaluation.printing import print_table

MOMENTS = ("applied", "lost", "late")
"""What had become of the request when its sender died; the tasks that change something take turns."""


def killed_once(task: str | None, moment: str | None, *, together: int) -> bool:
    """Run the tasks (or one) and print a table. Whether every killed run is equal to its unkilled twin, and passes."""
    known = suite.tasks()
    tasks = [one for one in known if task in {None, one.id}]
    if not tasks:
        return True  # the task is of another suite, which the second part has
    moments: Sequence[str] = [moment] if moment else MOMENTS
    turns, turns_of_reads = cycle(moments), cycle(moments)
    kills = [kill_of(one, next(turns if one.consequential else turns_of_reads)) for one in tasks]
    title = f"AgentDojo {suite.package_version()}, suite {suite.SUITE} {suite.VERSION}, {len(known)} user tasks"
    print(f"{title}: killed once\n")
    with (
        tempfile.TemporaryDirectory(prefix="milepost-evaluation-") as folder,
        bank_process(Path(folder) / "bank.db", "evaluation.agentdojo_bank") as bank,
        ThreadPoolExecutor(together) as pool,
    ):
        stage = Stage(Path(folder) / "runs.db", bank, suite)
        judged = list(pool.map(lambda one, kill: judge(stage, one, kill), tasks, kills))
    print_table(HEADINGS, [one.cells for one in judged])
    for one in judged:
        for difference in one.differences:
            print(f"{one.cells[0]}: {difference}")
    equal = sum(not one.differences for one in judged)
    print(f"{equal} of {len(judged)} equal")
    return equal == len(tasks)
