"""The explorer itself: it visits everything, finds a shortest way to what is broken, and never cuts silently."""

from collections.abc import Iterator

import pytest

from tests.model.explorer import Violation, explore


class Counters:
    """Two counters up to a bound; `broken` names a state that must not be, `forbidden` a step that must not happen."""

    def __init__(self, *, broken: tuple[int, int] | None = None, forbidden: tuple[int, int] | None = None) -> None:
        self._broken = broken
        self._forbidden = forbidden

    def start(self) -> tuple[int, int]:
        return (0, 0)

    def steps(self, state: tuple[int, int]) -> Iterator[tuple[str, tuple[int, int]]]:
        for label, (left, right) in (("left", (1, 0)), ("right", (0, 1))):
            following = (state[0] + left, state[1] + right)
            if following == self._forbidden:
                violation = Violation("forbidden")
                violation.during = label
                raise violation
            if max(following) <= 3:
                yield label, following

    def check(self, state: tuple[int, int], _: list[tuple[str, tuple[int, int]]]) -> None:
        if state == self._broken:
            raise Violation("broken")


def test_every_state_is_visited_once() -> None:
    explored = explore(Counters(), most=100)

    assert (explored.states, explored.steps, explored.broken) == (16, 24, "")
    assert "every rule holds" in str(explored)


def test_the_way_to_a_broken_state_is_a_shortest_one() -> None:
    explored = explore(Counters(broken=(1, 2)), most=100)

    assert explored.broken == "broken"
    assert sorted(explored.trace) == ["left", "right", "right"]
    assert "3 " in str(explored)


def test_a_step_that_breaks_a_rule_ends_the_way_to_it() -> None:
    explored = explore(Counters(forbidden=(0, 2)), most=100)

    assert (explored.broken, explored.trace) == ("forbidden", ("right", "right"))


def test_a_start_that_breaks_a_rule_is_found() -> None:
    class Never(Counters):
        def start(self) -> tuple[int, int]:
            raise Violation("never")

    assert explore(Never(), most=100).broken == "never"


def test_more_states_than_the_bound_are_an_error_and_no_proof() -> None:
    with pytest.raises(OverflowError, match="more than 10 states"):
        explore(Counters(), most=10)
