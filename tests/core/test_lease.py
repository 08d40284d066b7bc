"""A lease says how long to leave a worker alone; nothing is sent in its last moments."""

from milepost.core.lease import KEPT_MS, MARGIN_MS, kept_until, lapsed, may_send, needed_until, renew_every_ms


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


def test_the_row_of_a_worker_that_left_is_kept_for_a_day() -> None:
    assert kept_until(1_000, 0, 50_000) == 50_000 + KEPT_MS


def test_the_row_of_a_worker_that_vanished_is_kept_until_every_attempt_s_time_has_run_out() -> None:
    started_at, timeout = 1_000, 3 * KEPT_MS
    lease_until = needed_until(
        started_at + 500, timeout
    )  # an attempt began under it, and bytes may leave until it lapses

    assert kept_until(started_at, lease_until, None) >= needed_until(lease_until, timeout)
    assert kept_until(started_at, started_at + 30_000, None) == started_at + 30_000 + KEPT_MS
