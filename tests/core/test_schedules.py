"""Which ticks are run where some passed while no worker looked."""

import pytest

from milepost.core.schedules import AT_ONCE, ON_TIME_MS, CatchUp, ticks_of

HOUR = 3_600_000


def after(at: int) -> int | None:
    return (at // HOUR + 1) * HOUR if at < 200 * HOUR else None


def latest(at: int) -> int | None:
    return at // HOUR * HOUR


def ticks(next_hour: int, now: int, catch_up: CatchUp) -> tuple[list[float], float | None]:
    found, following = ticks_of(next_hour * HOUR, now, catch_up, after, latest)
    return [tick / HOUR for tick in found], None if following is None else following / HOUR


@pytest.mark.parametrize("catch_up", ["latest", "all", "none"])
def test_a_tick_that_is_looked_at_in_time_is_run(catch_up: CatchUp) -> None:
    assert ticks(5, 5 * HOUR, catch_up) == ([5], 6)
    assert ticks(5, 5 * HOUR + ON_TIME_MS, catch_up) == ([5], 6)


def test_of_those_that_were_missed_the_latest_all_or_none_is_run() -> None:
    now = 8 * HOUR + HOUR // 2

    assert ticks(5, now, "latest") == ([8], 9)
    assert ticks(5, now, "all") == ([5, 6, 7, 8], 9)
    assert ticks(5, now, "none") == ([], 9)


def test_very_many_are_caught_up_with_some_at_a_time() -> None:
    found, following = ticks(1, 100 * HOUR, "all")

    assert found == list(range(1, AT_ONCE + 1))
    assert following == AT_ONCE + 1


def test_a_schedule_may_come_to_its_end() -> None:
    assert ticks(200, 200 * HOUR, "latest") == ([200], None)
    assert ticks(200, 200 * HOUR, "all") == ([200], None)


def test_the_tick_that_is_waited_for_counts_also_where_the_expression_does_not_name_it() -> None:
    assert ticks_of(5, 6, "latest", lambda _: 9, lambda _: None) == ([5], 9)
