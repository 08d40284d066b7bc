"""Spans and moments as people write them, as whole milliseconds."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.core.duration import from_ms, parse_ms, to_ms


@pytest.mark.parametrize(
    ("span", "ms"),
    [
        ("500ms", 500), ("30s", 30_000), ("5m", 300_000), ("24h", 86_400_000), ("7d", 604_800_000),
        ("2w", 1_209_600_000),
        ("1h30m", 5_400_000), ("1.5s", 1_500), ("0s", 0), (" 3s ", 3_000), ("1m1ms", 60_001), ("0.4ms", 0),
        (timedelta(minutes=1, milliseconds=5), 60_005), (timedelta(0), 0), ("365000d", 31_536_000_000_000),
    ],
)  # fmt: skip
def test_a_span_is_read_as_written(span: str | timedelta, ms: int) -> None:
    assert parse_ms(span) == ms


@pytest.mark.parametrize("span", ["", "30", "s", "30 s", "-1s", "1s 1m", "1y", "30S", "1,5s", "abc", "1s;", ".5s"])
def test_a_text_that_is_no_span_is_refused_and_shown_how_to_write_one(span: str) -> None:
    with pytest.raises(ValueError, match="write it like"):
        parse_ms(span)


def test_a_negative_timedelta_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        parse_ms(timedelta(seconds=-1))


@pytest.mark.parametrize("span", ["365001d", "9" * 400 + "s", timedelta.max])
def test_a_span_whose_end_no_calendar_could_say_is_refused(span: str | timedelta) -> None:
    with pytest.raises(ValueError, match="too long"):
        parse_ms(span)


def test_a_moment_is_the_same_in_every_zone() -> None:
    there = datetime(2026, 1, 1, 5, 30, tzinfo=timezone(timedelta(hours=5, minutes=30)))

    assert to_ms(there) == to_ms(datetime(2026, 1, 1, tzinfo=UTC)) == 1_767_225_600_000


def test_a_moment_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="no time zone"):
        to_ms(datetime(2026, 1, 1))  # noqa: DTZ001  the mistake that is refused


@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_a_moment_survives_the_way_there_and_back(ms: int) -> None:
    assert to_ms(from_ms(ms)) == ms
    assert from_ms(ms).tzinfo is UTC


@pytest.mark.parametrize(("ms", "year"), [(10**18, 9999), (-(10**18), 1)])
def test_a_moment_outside_the_calendar_is_shown_as_its_last_or_first(ms: int, year: int) -> None:
    assert from_ms(ms).year == year
