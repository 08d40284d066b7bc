"""A scope that is not listed is not held, and nothing is held once the authority has expired."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from milepost.core.authority import Authority, Granted, missing_scopes

START = 1_000_000


def test_an_authority_is_recorded_with_its_scopes_in_order() -> None:
    authority = Authority("bot", scopes={"pay:charge", "mail:send"}, tenant="acme")

    assert authority.granted(START) == Granted("bot", ("mail:send", "pay:charge"), "acme", None)


def test_one_scope_may_be_given_as_a_text_and_is_not_split_into_letters() -> None:
    assert Authority("bot", scopes="pay").scopes == frozenset({"pay"})


def test_an_expiry_as_a_span_counts_from_the_start_of_the_run() -> None:
    assert Authority("bot", expires="1h").granted(START).expires_at == START + 3_600_000
    assert Authority("bot", expires=timedelta(seconds=2)).granted(START).expires_at == START + 2_000


def test_an_expiry_as_a_moment_is_that_moment_in_whatever_zone() -> None:
    moment = datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))

    assert Authority("bot", expires=moment).granted(START).expires_at == 1_767_225_600_000
    assert Authority("bot", expires=datetime(2026, 1, 1, tzinfo=UTC)).expires_at == 1_767_225_600_000


def test_a_moment_without_a_time_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="no time zone"):
        Authority("bot", expires=datetime(2026, 1, 1))  # noqa: DTZ001  the mistake that is refused


def test_an_authority_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Authority("bot").scopes = frozenset({"all"})  # type: ignore[misc]


def test_what_is_not_held_is_missing() -> None:
    held = Granted("bot", ("a", "b"))

    assert missing_scopes(held, ["b", "c", "a", "d"], START) == ("c", "d")
    assert missing_scopes(held, [], START) == ()


def test_an_expired_authority_holds_nothing() -> None:
    """Requirement 18."""
    held = Granted("bot", ("a", "b"), None, START)

    assert missing_scopes(held, ["b", "a"], START - 1) == ()
    assert missing_scopes(held, ["b", "a"], START) == ("a", "b")


def test_widening_adds_scopes_and_leaves_the_rest() -> None:
    held = Granted("bot", ("b",), "acme", 5)

    assert held.widened(["a", "b"]) == Granted("bot", ("a", "b"), "acme", 5)
