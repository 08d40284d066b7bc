"""`python -m mutation`: change the sources in small ways and see whether a test notices.

Every mutant that no test kills has to stand in mutation/survivors.toml with a reason. Exit code 0 if each one does and
the list names none that is not there any more; 1 otherwise.
"""

import argparse
import sys
import time
from collections.abc import Sequence

from mutation import page, survivors
from mutation.parts import ROOT, chosen
from mutation.working import BUILD, Tried, try_part

SECONDS_IN_A_MINUTE = 60


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the mutants that were asked for and print what became of them."""
    parser = argparse.ArgumentParser(prog="python -m mutation", description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="only these, such as core/outcome.py")
    parser.add_argument(
        "--again", action="store_true", help="keep what a former run killed where its function is as it was"
    )
    parser.add_argument("--quick", action="store_true", help="a first look: few tests for each, and no second try")
    parser.add_argument("--write", action="store_true", help="write what was found into docs/reliability.md")
    asked = parser.parse_args(arguments)
    try:
        parts = chosen(asked.modules)
    except LookupError as error:
        parser.error(str(error))
    began = time.monotonic()
    explained = set(survivors.read().reasons)
    tried = Tried()
    for part in parts:
        tried.take(try_part(part, explained, again=asked.again, quick=asked.quick))
    found = page.numbers(tried.counts)
    print(f"\n{page.as_text(found)}\n\n{(time.monotonic() - began) / SECONDS_IN_A_MINUTE:.0f} minutes")
    good = _compare(tried)
    if asked.write and good and not asked.quick:
        page.write(found)
    return 0 if good else 1


def _compare(tried: Tried) -> bool:
    listed = survivors.read().reasons
    unexplained = sorted(set(tried.survived) - set(listed))
    concerned = {mutant for mutant in listed if mutant.module in tried.counts}
    gone, killed = sorted(concerned - tried.known), sorted((concerned & tried.known) - set(tried.survived))
    for mutant in unexplained:
        print(f"survived, and is not explained: {mutant}\n    {tried.survived[mutant]}")
    for mutant in gone:
        print(f"explained, and is no mutant any more, take it off the list: {mutant}")
    for mutant in killed:
        print(f"explained, and was killed, take it off the list: {mutant}")
    if unexplained:
        print(f"\nKill each with a test, or say in {survivors.LIST.name} why none can.")
        print(f"To look at one: cd {BUILD.relative_to(ROOT)}/PART; mutmut show NAME")
    return not (unexplained or gone or killed)


if __name__ == "__main__":
    sys.exit(main())
