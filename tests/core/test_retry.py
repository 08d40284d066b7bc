"""Retries are bounded and spread out, and honour what the provider asks for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.core.retry import Retry

CHANCE = st.floats(min_value=0, max_value=1, exclude_max=True)


def test_by_default_there_are_three_tries() -> None:
    """Requirement 68."""
    retry = Retry()

    assert (retry.attempts, retry.first_ms, retry.most_ms) == (3, 1_000, 60_000)
    assert retry.delay_ms(1, 0.5) is not None
    assert retry.delay_ms(2, 0.5) is not None
    assert retry.delay_ms(3, 0.5) is None
    assert retry.delay_ms(4, 0.5) is None


@given(st.integers(1, 200), CHANCE, st.integers(1, 100_000), st.integers(1, 10_000_000))
def test_the_wait_lies_between_half_the_bound_and_the_bound(attempt: int, chance: float, first: int, most: int) -> None:
    retry = Retry(1_000, first=f"{first}ms", most=f"{most}ms")
    bound = min(most, first * 2 ** min(attempt - 1, 40))

    delay = retry.delay_ms(attempt, chance)

    assert delay is not None
    assert bound // 2 <= delay <= bound


def test_chance_spreads_the_wait_over_the_whole_upper_half() -> None:
    retry = Retry(5, first="10s", most="60s")

    assert [retry.delay_ms(1, chance) for chance in (0.0, 0.5, 0.999_999)] == [5_000, 7_500, 10_000]


def test_the_bound_doubles_up_to_the_most() -> None:
    retry = Retry(9, first="1s", most="5s")

    assert [retry.delay_ms(attempt, 0.0) for attempt in (1, 2, 3, 4, 8)] == [500, 1_000, 2_000, 2_500, 2_500]


@given(st.integers(1, 2), CHANCE, st.integers(0, 10_000_000))
def test_what_the_provider_asks_for_is_a_floor(attempt: int, chance: float, floor: int) -> None:
    plain = Retry().delay_ms(attempt, chance)
    asked = Retry().delay_ms(attempt, chance, floor_ms=floor)

    assert plain is not None
    assert asked == max(plain, floor)


def test_a_retry_that_leaves_no_try_is_refused() -> None:
    with pytest.raises(ValueError, match="no try at all"):
        Retry(0)


@pytest.mark.parametrize("wrong", [{"first": "soon"}, {"most": "later"}])
def test_a_retry_with_a_malformed_span_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="no span of time"):
        Retry(3, **wrong)
