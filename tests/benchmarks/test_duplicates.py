"""The comparison of duplicates counts at the provider, and would see it if we charged twice."""

import pytest

from benchmarks.duplicates.__main__ import ENGINES, Engine, scenario
from benchmarks.duplicates.provider import FATES

ORDERS = ("order-1", "order-2")
CARELESS = Engine("careless", "milepost", "tests.benchmarks.careless_peer")


@pytest.mark.parametrize("fate", FATES)
def test_every_order_is_charged_once_whatever_became_of_the_request_when_its_worker_died(fate: str) -> None:
    """Requirement 51."""
    assert scenario(ENGINES[0], fate, ORDERS) == ("2", "2", "0", "0", "0", "2")


@pytest.mark.parametrize(
    ("fate", "line"),
    [("response lost", ("2", "4", "2", "0", "0", "0")), ("request lost", ("2", "2", "0", "0", "0", "2"))],
)
def test_an_engine_without_a_record_charges_twice_where_the_response_was_lost(fate: str, line: tuple[str, ...]) -> None:
    assert scenario(CARELESS, fate, ORDERS) == line
