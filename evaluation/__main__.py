"""`python -m evaluation`: tasks that others wrote, their worker killed, and the suites' own checks as judges.

The first part kills each banking task once, over HTTP (`evaluation/once.py`); the second kills all tasks of all suites
at every call boundary (`evaluation/everywhere.py`). Exit code 0 if nothing differs from the runs that nobody killed.
"""

import argparse
import sys
from collections.abc import Sequence

from evaluation.everywhere import killed_everywhere
from evaluation.once import MOMENTS, killed_once
from evaluation.page import PAGE, of_all

SUITES = ("banking", "slack", "travel", "workspace")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for and print it. 0 if all is equal, 1 if something is different."""
    parser = argparse.ArgumentParser(prog="python -m evaluation", description=__doc__)
    parser.add_argument("--part", choices=("once", "everywhere"), help="only this part")
    parser.add_argument("--suite", choices=SUITES, help="only this suite")
    parser.add_argument("--task", help="only tasks of this name, for example user_task_15")
    parser.add_argument("--sample", type=int, metavar="N", help="N kill points, spread evenly, instead of all of them")
    parser.add_argument("--moment", choices=MOMENTS, help="the first part: the same moment for every kill")
    parser.add_argument("--together", type=int, default=3, metavar="N", help="tasks at a time (default: %(default)s)")
    parser.add_argument("--write", action="store_true", help=f"write the second part's table into {PAGE}")
    chosen = parser.parse_args(arguments)
    if chosen.write and not of_all(chosen):
        parser.error("--write is for all tasks at all points: leave --part once, --suite, --task and --sample out")
    good = True
    if chosen.part != "everywhere" and chosen.suite in {None, "banking"}:
        good = killed_once(chosen.task, chosen.moment, together=chosen.together)
        print()
    if chosen.part != "once":
        try:
            found = killed_everywhere(
                chosen.suite, chosen.task, chosen.sample, together=chosen.together, page=PAGE if chosen.write else None
            )
        except LookupError as error:
            parser.error(str(error))
        good = found and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
