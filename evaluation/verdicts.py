"""Whether a run that was killed is equal to the one that nobody killed, and that one to the suite's own execution."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from evaluation.dying import Finished
from evaluation.killing import OUTCOMES
from evaluation.points import Case, Point
from evaluation.task import canonical

HEADINGS = ("suite", "tasks", "calls", "kill points", "equal", "different", "with a person")

_SENT_AGAIN = {"read": 1, "keyed": 1, "absolute": 1, "queryable": 0, "irreversible": 0}
"""How often a call whose answer was lost arrives a second time, by class: what can be asked about is not sent again."""


@dataclass(frozen=True)
class Verdict:
    """What is to be said of one kill point.

    `differences` is empty where it is equal; `persons` says how often somebody had to look.
    """

    point: Point
    differences: tuple[str, ...]
    persons: int = 0


def unkilled_differences(case: Case, run: Finished) -> tuple[str, ...]:
    """Where the run that nobody killed differs from the suite's own execution of its ground truth."""
    applied = [entry.call for entry in run.closed.statement.ledger]
    written = Counter(f"{call.function} {canonical(call.args)}" for call in case.calls)
    return _failing(
        {
            "the unkilled environment differs from the suite's": run.closed.environment == case.plain.environment,
            "the unkilled answers differ from the suite's": tuple(run.answers) == case.plain.answers,
            "the unkilled verdict differs from the suite's": run.closed.useful == case.plain.useful,
            "the unkilled run changed what no ground truth says": Counter(applied) <= written,
            "the unkilled run made other calls": run.closed.statement.asked == len(case.calls),
            "the unkilled run needed a person": not run.persons,
        }
    )


def differences(point: Point, unkilled: Finished, killed: Finished, effect: str) -> tuple[str, ...]:
    """Where the killed run differs from the unkilled one; `effect` is the class of the call in which it died."""
    ours, theirs = killed.closed.statement, unkilled.closed.statement
    again = _SENT_AGAIN[effect] if point.moment == "during" else 0
    doubtful = point.moment in {"before", "during"}
    outcomes = [word for word in killed.said if word in OUTCOMES]
    return _failing(
        {
            "the environment differs": killed.closed.environment == unkilled.closed.environment,
            "the suite's verdict differs": killed.closed.useful == unkilled.closed.useful,
            "the answers differ": killed.answers == unkilled.answers,
            "the ledger differs": [line.call for line in ours.ledger] == [line.call for line in theirs.ledger],
            "a reference was applied twice": len({line.reference for line in ours.ledger}) == len(ours.ledger),
            f"{ours.asked} calls arrived": ours.asked == theirs.asked + again,
            "its outcome was not unknown next": not doubtful or killed.said[:2] == ("started", "unknown"),
            "its outcome was not confirmed at last": not doubtful or outcomes[-1:] == ["confirmed"],
            "what was settled was touched again": doubtful or killed.said in {(), ("confirmed",)},
            "a person was asked without need": effect == "irreversible" or not killed.persons,
            f"its record is damaged: {killed.damage}": killed.damage is None,
        }
    )


def _failing(claims: dict[str, bool]) -> tuple[str, ...]:
    return tuple(claim for claim, holds in claims.items() if not holds)


def table(cases: Sequence[Case], verdicts: Sequence[Verdict]) -> list[tuple[str, ...]]:
    """A line for each suite, and the total."""
    suites = dict.fromkeys(case.suite for case in cases)
    lines = [
        _line(
            suite, [case for case in cases if case.suite == suite], [v for v in verdicts if v.point.case.suite == suite]
        )
        for suite in suites
    ]
    return [*lines, _line("total", cases, verdicts)]


def _line(name: str, cases: Sequence[Case], verdicts: Sequence[Verdict]) -> tuple[str, ...]:
    different = sum(bool(one.differences) for one in verdicts)
    numbers = (
        len(cases),
        sum(len(case.calls) for case in cases),
        len(verdicts),
        len(verdicts) - different,
        different,
        sum(bool(one.persons) for one in verdicts),
    )
    return (name, *(str(number) for number in numbers))
