"""The outcome protocol, in every order in which two workers, one operator and one outside may move.

The model drives the real code: core/, the append rules, and the runtime's own functions for what a worker decides,
sends and records. `-rP` shows the number of states of each scenario; MILEPOST_MODEL=large explores more of them.
"""

import os
import sys
from collections.abc import Callable

import pytest

from tests.model.explorer import explore
from tests.model.protocol import Protocol
from tests.model.scenario import ALL, Scenario

LARGE = os.environ.get("MILEPOST_MODEL") == "large"  # read before the fixture that takes settings away


@pytest.mark.timeout(1_800 if LARGE else 180)
@pytest.mark.parametrize("scenario", ALL, ids=lambda scenario: scenario.name.replace(", ", ":_").replace(" ", "_"))
def test_every_rule_holds_in_every_order_of_events(
    scenario: Scenario, record_property: Callable[[str, object], None]
) -> None:
    """Requirement 33. Requirement 50. Requirement 51. Requirement 32."""
    sized = scenario.larger if LARGE else scenario
    explored = explore(Protocol(sized), most=sized.most)

    record_property("states", explored.states)
    sys.stdout.write(f"{scenario.name}: {explored}\n")
    assert not explored.broken, str(explored)
    assert explored.states > 500, "a world in which so little happens proves nothing"
