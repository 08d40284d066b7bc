"""What is explored: one tool in one small world each, in the size of `make test` and in a larger one.

MILEPOST_MODEL=large explores the larger ones. Every scenario has two workers, one operator and one outside; what may go
wrong in it is counted, so that the number of states is finite, and every order of what is counted is explored.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from tests.model.places import TICK

Counts = dict[str, int]


@dataclass(frozen=True)
class Scenario:
    """One effect class in one small world. `faults` says how often each thing may go wrong, or a person may act."""

    name: str
    tool: dict[str, Any]
    faults: Counts
    ticks: int
    reconciles: bool = False
    runs: int = 1
    more: Counts = field(default_factory=dict)
    more_ticks: int = 0
    most: int = 60_000
    lease_ms: int = 2 * TICK

    @property
    def larger(self) -> Scenario:
        """The same with more that may go wrong, and more time for it."""
        faults = self.faults | self.more
        return replace(self, faults=faults, ticks=self.ticks + self.more_ticks, most=600_000)


IRREVERSIBLE = {"effect": "irreversible", "timeout": "1s"}
QUERYABLE = {"effect": "queryable", "timeout": "1s", "visible_within": "1s"}
UNDECLARED = {"effect": "queryable", "timeout": "1s"}
KEYED = {"effect": "keyed", "timeout": "1s", "key_ttl": "4s"}
KEYED_AND_QUERYABLE = KEYED | {"visible_within": "1s"}
ABSOLUTE = {"effect": "absolute", "timeout": "1s"}
DEATHS = {"crash A": 1, "crash B": 1}

ALL = [
    Scenario(
        "irreversible, both workers die", IRREVERSIBLE, DEATHS | {"lost answer": 1, "slow": 1}, 2, more={"resolve": 1}
    ),
    Scenario(
        "irreversible, a worker is frozen past its lease",
        IRREVERSIBLE,
        {"freeze": 1, "crash B": 1},
        3,
        more=DEATHS | {"lost answer": 1},
    ),
    Scenario(
        "irreversible, killed",
        IRREVERSIBLE,
        {"crash A": 1, "lost answer": 1, "kill": 1},
        2,
        more={"freeze": 1},
        more_ticks=1,
    ),
    Scenario(
        "irreversible, a person says it did not happen",
        IRREVERSIBLE,
        {"freeze": 1, "resolve": 1},
        3,
        more={"lost answer": 1},
    ),
    Scenario(
        "irreversible, rejected or not sent",
        IRREVERSIBLE,
        {"rejected": 1, "not sent": 1, "cancel": 1, "crash A": 1},
        2,
        more=DEATHS,
    ),
    Scenario(
        "irreversible, held",
        IRREVERSIBLE,
        {"hold": 1, "lift": 1, "crash A": 1, "not sent": 1},
        2,
        more={"freeze": 1, "lost answer": 1},
        more_ticks=1,
    ),
    Scenario(
        "irreversible, approved or denied",
        IRREVERSIBLE | {"approval": True},
        {"crash A": 1, "approve": 1, "deny": 1, "not sent": 1, "slow": 1},
        2,
        more=DEATHS | {"kill": 1},
    ),
    Scenario(
        "queryable, a worker dies",
        QUERYABLE,
        {"crash A": 1, "lost answer": 1},
        4,
        reconciles=True,
        more=DEATHS | {"slow": 1},
    ),
    Scenario(
        "queryable, a worker is frozen past its lease",
        QUERYABLE,
        {"freeze": 1},
        5,
        reconciles=True,
        more={"lost answer": 1},
    ),
    Scenario(
        "queryable, an effect lands later than declared",
        QUERYABLE,
        {"lost answer": 1, "lie": 1},
        6,
        reconciles=True,
        more={"crash A": 1},
    ),
    Scenario(
        "queryable, the provider rejects or cannot say",
        QUERYABLE,
        {"lost answer": 1, "rejected": 1, "still unknown": 1},
        4,
        reconciles=True,
        more={"not sent": 1},
        more_ticks=2,
    ),
    Scenario(
        "queryable, one read is stale",
        QUERYABLE,
        {"lost answer": 1, "stale read": 1},
        5,
        reconciles=True,
        more={"crash A": 1},
    ),
    Scenario(
        "queryable, effects take long to show",
        QUERYABLE | {"visible_within": "3s"},
        {"lost answer": 1},
        7,
        reconciles=True,
        more={"crash A": 1},
    ),
    Scenario("queryable, killed", QUERYABLE, {"lost answer": 1, "kill": 1}, 4, reconciles=True, more={"crash A": 1}),
    Scenario(
        "queryable, nothing is declared", UNDECLARED, {"lost answer": 1, "crash A": 1}, 4, reconciles=True, more=DEATHS
    ),
    Scenario("keyed, slow workers", KEYED, {"lost answer": 1, "slow": 2}, 6, more={"lost answer": 2, "crash A": 1}),
    Scenario("keyed, a worker dies", KEYED, {"crash A": 1, "lost answer": 1}, 6, more=DEATHS | {"slow": 1}),
    Scenario("keyed, a worker is frozen past its lease", KEYED, {"freeze": 1}, 6, more={"lost answer": 1}),
    Scenario("keyed, killed", KEYED, {"lost answer": 1, "kill": 1, "not sent": 1}, 4, more={"crash A": 1}),
    Scenario(
        "keyed, then queryable",
        KEYED_AND_QUERYABLE,
        {"lost answer": 2},
        6,
        reconciles=True,
        more={"crash A": 1, "slow": 1},
    ),
    Scenario("absolute, a worker dies", ABSOLUTE, {"crash A": 1, "lost answer": 1}, 3, more=DEATHS | {"not sent": 1}),
    Scenario(
        "one identity, two runs, one cancelled",
        KEYED | {"once": "order"},
        {"cancel": 1, "not sent": 1},
        2,
        runs=2,
        more={"lost answer": 1, "crash A": 1},
    ),
    Scenario(
        "one identity, two runs, one killed",
        IRREVERSIBLE | {"once": "order"},
        {"crash A": 1, "kill": 1},
        2,
        runs=2,
        more={"lost answer": 1},
    ),
]
NAMED = {scenario.name: scenario for scenario in ALL}
