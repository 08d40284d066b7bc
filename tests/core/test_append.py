"""What every store must refuse: the rules of an append, whatever it is stored in."""

import pytest

from milepost.core.append import (
    claim_lost,
    epoch_lost,
    holds_identity,
    identity_taken,
    may_be_killed,
    next_epoch,
    settles_later,
    switched_off,
)


def test_every_claim_takes_a_higher_epoch() -> None:
    assert next_epoch(0) == 1
    assert next_epoch(41) == 42


@pytest.mark.parametrize(("held", "found", "lost"), [(3, 3, False), (2, 3, True), (4, 3, True), (3, None, True)])
def test_only_the_epoch_that_stands_now_may_write(*, held: int, found: int | None, lost: bool) -> None:
    assert epoch_lost(held, found) is lost


def test_a_switch_on_any_of_its_scopes_stops_an_append() -> None:
    switches = {"tool:charge", "all"}

    assert switched_off(("tenant:acme", "tool:charge", "all"), switches) == "tool:charge"
    assert switched_off(("tenant:acme",), switches) is None
    assert switched_off((), switches) is None


def test_an_identity_has_one_holder() -> None:
    assert identity_taken("run-1")
    assert not identity_taken(None)


@pytest.mark.parametrize(
    ("owner", "owner_was", "lost"),
    [(None, None, False), ("w1", "w1", False), ("w2", "w1", True), (None, "w1", True), ("w1", None, True)],
)
def test_a_run_is_taken_from_whom_it_was_seen_with_or_not_at_all(
    *, owner: str | None, owner_was: str | None, lost: bool
) -> None:
    assert claim_lost(owner, owner_was) is lost


def test_what_has_ended_is_not_killed() -> None:
    killed = {"ready", "running", "parked", "blocked"}

    statuses = killed | {"done", "failed", "cancelled", "killed"}
    assert {status for status in statuses if may_be_killed(status)} == killed


def test_of_a_killed_run_what_is_in_doubt_is_looked_into_later() -> None:
    outcomes = {"not_started", "started", "unknown", "confirmed", "failed"}

    assert {outcome for outcome in outcomes if settles_later(outcome)} == {"started", "unknown", "confirmed"}


def test_an_effect_holds_its_own_identity_while_it_is_started_and_no_other_does() -> None:
    assert holds_identity("r1", ":0", "r1", ":0", "started")
    assert not holds_identity("r1", ":0", "r2", ":0", "started")
    assert not holds_identity("r1", ":0", "r1", ":1", "started")
    assert not holds_identity("r1", ":0", "r1", ":0", "confirmed")
