"""The breaker of one tool, decided on values: what trips it, who may probe, and what closes it."""

from typing import Any

import pytest

from milepost.core.breaker import (
    FLOOR_MOST_MS,
    LATE_MS,
    Answered,
    Breaker,
    Event,
    Failed,
    Probing,
    Reset,
    Row,
    Vacated,
    admits,
    after,
    may_probe,
    said,
)
from milepost.core.store_entries import BreakerClosed, BreakerOpened, BreakerProbed

SETTINGS = Breaker(3, cooldown="10s", most="60s")
FRESH = Row("charge")


def failed(by: str = "a1 :0 1", **more: Any) -> Failed:
    return Failed("charge", by, "connection refused", SETTINGS, **more)


def went(row: Row, *events: tuple[int, Event]) -> Row:
    for now, event in events:
        row = after(row, event, now)
    return row


def opened(now: int = 1_000, **more: Any) -> Row:
    return went(FRESH, *[(now, failed(**more))] * 3)


def probed(now: int = 20_000, by: str = "p", until: int = 25_000) -> Row:
    return after(opened(), Probing("charge", by, until), now)


@pytest.mark.parametrize(
    ("given", "said"),
    [({"failures": 0}, "counts failures"), ({"cooldown": "soon"}, "soon"), ({"most": "-1s"}, "-1s")],
)
def test_settings_that_would_hold_calls_for_nothing_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Breaker(**given)


def test_a_breaker_counts_five_failures_and_holds_for_half_a_minute_at_first_and_ten_at_most() -> None:
    default, hasty = Breaker(), Breaker(1)

    assert (default.failures, default.cooldown_ms, default.most_ms) == (5, 30_000, 600_000)
    assert after(FRESH, Failed("charge", "x", "gone", hasty), 1).state == "open"


def test_failures_in_a_row_open_it_and_one_answer_in_between_does_not() -> None:
    """Requirement 64. Requirement 70."""
    counting = went(FRESH, (1, failed()), (2, failed()))
    assert (counting, admits(counting, 3)) == (Row("charge", failures=2, why="connection refused", at=2), "go")
    assert after(counting, Answered("charge", "x"), 3) == FRESH

    row = after(counting, failed(), 3)

    assert row == Row("charge", "open", 3, 1, 3 + 7_500, 7_500, "", "connection refused", 3)
    assert admits(row, 3) == "hold"
    assert said(counting, row, failed(), 3) == BreakerOpened(
        at=3, tool="charge", failures=3, trips=1, until=row.until, why="connection refused", by="a1 :0 1"
    )
    assert said(FRESH, counting, failed(), 2) is None, "a count is no event"


def test_what_says_nothing_about_the_provider_moves_nothing() -> None:
    counting = after(FRESH, failed(), 1)

    assert after(counting, Vacated("charge", "x"), 2) == counting
    assert after(opened(), Vacated("charge", "x"), 2) == opened()
    assert after(opened(), Answered("charge", "in flight before"), 2) == opened()


@pytest.mark.parametrize(("chance", "wait"), [(0.0, 5_000), (0.5, 7_500), (0.999, 9_995)])
def test_the_cool_down_is_jittered_and_a_retry_after_is_its_floor(chance: float, wait: int) -> None:
    assert opened(chance=chance).until == 1_000 + wait
    assert opened(chance=chance, floor_ms=30_000).until == 31_000
    assert opened(floor_ms=FLOOR_MOST_MS * 30).until == 1_000 + FLOOR_MOST_MS, "a day is somebody's mistake"


def test_each_trip_in_a_row_doubles_the_cool_down_up_to_a_bound() -> None:
    row, waits = opened(chance=0.0), []
    for _ in range(6):
        waits.append(row.wait)
        now = row.until
        row = went(row, (now, Probing("charge", "p", now + 100)), (now + 50, failed(by="p", chance=0.0)))

    assert waits == [5_000, 10_000, 20_000, 30_000, 30_000, 30_000]
    assert row.trips == 7


def test_one_call_probes_and_nobody_else_until_it_is_answered_or_its_lease_lapses() -> None:
    """Requirement 64."""
    row = opened()
    assert admits(row, row.until - 1) == "hold"
    assert after(row, Probing("charge", "early", 99_999), row.until - 1) == row
    assert admits(row, row.until) == "probe"

    row = probed(20_000, "p", 25_000)

    assert row == Row("charge", "half_open", 3, 1, 25_000, 5_000, "p", "connection refused", 20_000)
    assert admits(row, 24_999) == "hold"
    assert after(row, Probing("charge", "q", 30_000), 24_999) == row
    assert after(row, Failed("charge", "other", "late", SETTINGS), 24_999) == row
    again = after(row, Probing("charge", "q", 30_000), 25_000)
    assert (again.state, again.probe) == ("half_open", "q"), "whoever made the first may have died"
    assert said(row, again, Probing("charge", "q", 30_000), 25_000) == BreakerProbed(
        at=25_000, tool="charge", until=30_000, by="q"
    )


def test_an_answer_to_the_probe_closes_it_and_one_to_another_call_does_not() -> None:
    row = probed()

    assert after(row, Answered("charge", "other"), 21_000) == row
    assert after(row, Answered("charge", "p"), 21_000) == FRESH
    assert said(row, FRESH, Answered("charge", "p"), 21_000) == BreakerClosed(
        at=21_000, tool="charge", why="the probe was answered", by="p"
    )


def test_a_probe_that_came_to_nothing_gives_its_place_to_another() -> None:
    row = after(probed(), Vacated("charge", "p"), 21_000)

    assert row == Row("charge", "open", 3, 1, 21_000, 0, "", "connection refused", 21_000)
    assert admits(row, 21_000) == "probe"
    told = said(probed(), row, Vacated("charge", "p"), 21_000)
    assert isinstance(told, BreakerOpened)
    assert told.why == "the probe came to nothing"


def test_a_call_in_flight_when_it_opened_may_only_make_the_wait_longer() -> None:
    row = opened()

    assert after(row, failed(floor_ms=1), 2_000) == row
    longer = after(row, failed(floor_ms=50_000), 2_000)
    assert longer == Row("charge", "open", 3, 1, 52_000, 50_000, "", "connection refused", 1_000)
    assert after(row, failed(floor_ms=row.until - 2_000), 2_000) == row, "it is told what it knows"
    assert said(row, longer, failed(), 2_000) is None


def test_a_clock_that_was_set_back_does_not_hold_calls_for_a_day() -> None:
    day = 86_400_000
    row = opened(now=day)

    assert admits(row, 5_000) == "probe"
    assert admits(row, day + 1) == "hold"
    assert [admits(row, row.until - row.wait - LATE_MS - early) for early in (0, 1)] == ["hold", "probe"]


def test_an_append_that_was_made_before_the_probe_and_is_written_after_it_is_no_second_probe() -> None:
    """Requirement 64. Two workers of one store: who comes second in it may have looked at its clock first."""
    row = probed(20_012, "p", 23_013)

    assert admits(row, 20_000) == "hold"
    assert after(row, Probing("charge", "q", 23_000), 20_000) == row


def test_a_person_resets_it_and_says_why() -> None:
    row = after(opened(), Reset("charge", "ann", "they told us"), 5)

    assert row == FRESH
    assert said(opened(), row, Reset("charge", "ann", "they told us"), 5) == BreakerClosed(
        at=5, tool="charge", why="they told us", by="ann"
    )


def test_only_calls_that_can_be_made_again_without_harm_may_probe() -> None:
    classes = ("read", "keyed", "absolute", "queryable", "transactional", "irreversible")

    assert [effect for effect in classes if may_probe(effect)] == ["read", "keyed"]
