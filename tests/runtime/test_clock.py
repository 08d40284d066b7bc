"""The time that a process goes by does not go back, whatever becomes of the machine's clock."""

from milepost.runtime.clock import SystemClock
from milepost.stores.places import wall_ms

DAY_MS = 86_400_000


class Wall:
    """A wall clock that a test sets."""

    def __init__(self) -> None:
        self.ms = 1_000_000_000

    def __call__(self) -> int:
        return self.ms


def test_a_clock_that_is_set_back_goes_on_from_the_latest_moment() -> None:
    wall = Wall()
    clock = SystemClock(wall)
    before = clock.now()

    wall.ms -= DAY_MS
    at_once = clock.now()
    wall.ms += 250
    later = clock.now()

    assert (at_once, later) == (before, before + 250)


def test_a_clock_that_is_set_back_twice_still_goes_on() -> None:
    wall = Wall()
    clock = SystemClock(wall)
    before = clock.now()

    for _ in range(2):
        wall.ms -= DAY_MS
        clock.now()
        wall.ms += 100
        clock.now()

    assert clock.now() == before + 200


def test_a_clock_that_has_caught_up_is_the_machines_again() -> None:
    wall = Wall()
    clock = SystemClock(wall)
    clock.now()
    wall.ms -= DAY_MS
    clock.now()

    wall.ms += 2 * DAY_MS

    assert clock.now() == wall.ms
    wall.ms += 1
    assert clock.now() == wall.ms


def test_a_small_correction_is_waited_for() -> None:
    wall = Wall()
    clock = SystemClock(wall)
    before = clock.now()

    wall.ms -= 400
    assert clock.now() == before
    wall.ms += 300
    assert clock.now() == before
    wall.ms += 200
    assert clock.now() == before + 100


def test_a_clock_that_jumps_ahead_is_believed() -> None:
    wall = Wall()
    clock = SystemClock(wall)
    clock.now()

    wall.ms += DAY_MS

    assert clock.now() == wall.ms


def test_the_clock_of_the_machine_is_the_one_that_is_read() -> None:
    before = wall_ms()
    now = SystemClock().now()

    assert before <= now <= wall_ms()
