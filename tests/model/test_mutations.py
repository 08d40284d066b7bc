"""The model is worth its states: whichever guard is taken away, it finds the bug, and prints a shortest way to it."""

import sys

import pytest

from tests.model import mutations
from tests.model.explorer import explore
from tests.model.mutations import Mutation
from tests.model.protocol import Protocol
from tests.model.scenario import ALL, NAMED


@pytest.mark.parametrize("mutation", mutations.ALL, ids=lambda mutation: mutation.name.replace(" ", "_"))
def test_the_bug_is_found_when_one_guard_is_taken_away(mutation: Mutation) -> None:
    scenario = NAMED[mutation.within]
    with mutations.without(mutation):
        explored = explore(Protocol(scenario), most=scenario.most)

    sys.stdout.write(f"{mutation.name}, in {scenario.name}: {explored}\n")
    assert explored.broken == mutation.finds, str(explored)


def test_each_mistake_has_a_name_of_its_own() -> None:
    assert len({mutation.name for mutation in mutations.ALL}) == len(mutations.ALL)
    assert len(NAMED) == len(ALL)
