"""A lease says how long to leave a worker alone; nothing is sent in its last moments."""

from milepost.core.lease import MARGIN_MS, lapsed, may_send, needed_until, renew_every_ms


def test_a_lease_is_renewed_three_times_before_it_lapses() -> None:
    assert renew_every_ms(30_000) == 10_000
    assert renew_every_ms(300) == 100
    assert renew_every_ms(1) == 1


def test_a_lease_lapses_at_its_end_and_not_before() -> None:
    assert not lapsed(1_000, 999)
    assert lapsed(1_000, 1_000)


def test_a_lease_lasts_for_an_attempt_and_a_margin() -> None:
    assert needed_until(1_000, 20_000) == 21_000 + MARGIN_MS


def test_nothing_is_sent_within_the_margin_before_a_lease_ends() -> None:
    assert may_send(10_000, 10_000 - MARGIN_MS)
    assert not may_send(10_000, 10_000 - MARGIN_MS + 1)
    assert not may_send(10_000, 10_000)


def test_a_lease_that_was_extended_for_an_attempt_lets_it_be_sent() -> None:
    assert may_send(needed_until(1_000, 0), 1_000)


def test_where_nothing_may_be_sent_any_more_nobody_else_may_claim_yet() -> None:
    lease_until = 10_000

    gap = [now for now in range(8_000, 12_000) if not may_send(lease_until, now) and not lapsed(lease_until, now)]

    assert len(gap) == MARGIN_MS - 1
