"""The shipped clock stands still until a test moves it, and repeats its chance."""

from datetime import UTC, datetime, timedelta

import pytest

from milepost.runtime.clock import Clock
from milepost.testing.manual_clock import START, ManualClock


def test_a_manual_clock_is_a_clock() -> None:
    clock: Clock = ManualClock()

    assert clock.now() == 1_767_225_600_000
    assert clock.now() == clock.now()


def test_time_moves_only_when_it_is_told_to() -> None:
    clock = ManualClock(datetime(2026, 5, 1, tzinfo=UTC))
    before = clock.now()

    assert clock.advance("1m30s") == before + 90_000
    assert clock.advance(timedelta(milliseconds=5)) == clock.now() == before + 90_005


def test_time_may_be_set_back_as_a_machine_s_clock_may_be() -> None:
    clock = ManualClock()
    clock.advance("1h")

    assert clock.set(START) == clock.now() == 1_767_225_600_000


@pytest.mark.parametrize("mistake", ["soon", "-1s"])
def test_what_is_no_span_does_not_move_time(mistake: str) -> None:
    clock = ManualClock()

    with pytest.raises(ValueError, match="span"):
        clock.advance(mistake)
    assert clock.now() == 1_767_225_600_000


def test_a_moment_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="no time zone"):
        ManualClock().set(datetime(2026, 1, 1))  # noqa: DTZ001  the mistake that is refused


def test_the_same_seed_gives_the_same_chance_and_ids() -> None:
    one, same, other = ManualClock(seed=7), ManualClock(seed=7), ManualClock(seed=8)

    drawn = [(clock.chance(), clock.uuid(), clock.chance()) for clock in (one, same, other)]

    assert drawn[0] == drawn[1] != drawn[2]
    assert all(0 <= clock.chance() < 1 for clock in (one, same, other))
    assert one.uuid().version == 4
    assert one.uuid() != one.uuid()
