"""The second part: every user task of AgentDojo's four suites, killed at every call boundary in turn."""

import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from evaluation.hosting import OutsideClient, outside_process
from evaluation.page import write
from evaluation.points import MOMENTS, Case, points_of, sample
from evaluation.printing import print_table
from evaluation.sweep import Swept, sweep
from evaluation.verdicts import HEADINGS, table


def killed_everywhere(
    suite: str | None,
    task: str | None,
    size: int | None,
    *,
    together: int,
    program: str = "evaluation.agentdojo_outside",
    page: Path | None = None,
) -> bool:
    """Sweep the tasks (or one suite, one task, a sample) and print a table. Whether nothing was different.

    `program` is the module that serves the outside world; `page` gets the table too. Raises LookupError where no task
    fits.
    """
    began = time.monotonic()
    with outside_process(program) as port:
        with closing(OutsideClient(port)) as client:
            known = client.cases()
        cases = [one for one in known if suite in {None, one.suite} and task in {None, one.id}]
        if not cases:
            raise LookupError(
                f"no task fits; there are {', '.join(one.name for one in known if suite in {None, one.suite})}"
            )
        able = [one for one in cases if not one.broken]
        points = sample([point for case in able for point in points_of(case)], size)
        print(f"{len(cases)} of {len(known)} user tasks: killed {', '.join(MOMENTS)} each call\n")
        swept = sweep(port, points, together=together)
    rows = table(cases, swept.verdicts)
    print_table(HEADINGS, rows)
    _print_causes(cases, swept)
    different = sum(bool(one.differences) for one in swept.verdicts)
    tasks = {one.point.case.name for one in swept.verdicts}
    spoilt = {one.point.case.name for one in swept.verdicts if one.differences} | set(swept.wrong)
    equal = f"{len(tasks - spoilt)} of {len(tasks)} tasks equal at every kill point tried"
    print(f"{equal}, {different} of {len(points)} different; {time.monotonic() - began:.0f} s")
    if page is not None:
        write(page, rows, f"{equal}; {different} of {len(points)} different.")
    return not different and not swept.wrong


def _print_causes(cases: Sequence[Case], swept: Swept) -> None:
    for case in cases:
        if case.broken:
            print(f"{case.name}: left out, its ground truth fails without us: {case.broken}")
        elif not case.plain.useful:
            print(f"{case.name}: the suite itself does not call its own ground truth solved, with or without us")
    for name, found in swept.wrong.items():
        for difference in found:
            print(f"{name}: {difference}")
    for one in swept.verdicts:
        for difference in one.differences:
            print(f"{one.point}: {difference}")
