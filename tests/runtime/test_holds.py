"""A contradiction holds its tool, and the hold says which one it is about."""

from milepost.runtime import waits
from milepost.stores.api import Switch


def test_a_hold_names_the_run_and_the_effect_that_it_is_about() -> None:
    held = waits.hold("run-1", "flow/pay#1", "pay", "it happened after all", 7)

    assert held == Switch("tool:pay", "hold", "it happened after all", "run-1", 7, "run-1 flow/pay#1")
