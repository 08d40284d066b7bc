"""One worker process: makes the calls of one task as one run, and prints what they answered.

The same command again continues the same run: its key is the account.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import milepost as mp
from evaluation.banking import LOOKS, WRITE, Bank, Planned, Progress, bank_at, banking


def main(arguments: Sequence[str] | None = None) -> None:
    """Drive the run to its end. Raises `mp.NeedsPerson` where it cannot go on by itself."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", type=Path, help="the file of the runs")
    parser.add_argument("bank", help="where the bank's counter is")
    parser.add_argument("account", help="the account, and the key of the run")
    parser.add_argument("calls", help="the calls to make, as a JSON list")
    chosen = parser.parse_args(arguments)
    calls = [Planned(one["function"], one["args"]) for one in json.loads(chosen.calls)]
    app = mp.App(
        f"sqlite:///{chosen.store}",
        workflows=[banking],
        resources={Bank: bank_at(chosen.bank, chosen.account)},
    )
    answers = app.run(
        banking,
        Progress(calls),
        key=chosen.account,
        authority=mp.Authority("evaluation", scopes={WRITE}),
        budget={LOOKS: len(calls) + 1},  # an attempt that is lost has been charged for too
    )
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
