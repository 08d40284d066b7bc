"""Killed again while it recovers: in the claim, in a question, in a resend, at the boundary; again and again."""

from collections.abc import Callable
from pathlib import Path

import pytest

from milepost.core import entries as e
from tests.crash.killing import (
    calls_of,
    copied,
    journals,
    killed_at,
    restarted,
    spread,
    told_of,
    violations,
    whole,
    work,
)
from tests.crash.world import World

# What the first crash leaves behind, and in the middle of which work the next one therefore falls.
LEFT = {
    "a keyed effect that happened: sent again under its key": "charge first:applied",
    "a precondition that will fail: looked up": "publish:applied",
    "a parcel that was never sent: absent twice, sent again, asked about once more": "ship one:before",
    "a mail that was sent: resolved by a person": "mail:applied",
}
MOST = {"fdatasync": 10, "pwrite64": 80}  # from the claim to the first boundary after it, and somewhat beyond
CHOSEN = {"fdatasync": 10, "pwrite64": 8}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("crash_at", LEFT.values(), ids=LEFT.keys())
def test_recovery_that_is_killed_at_any_commit_repeats_nothing_when_it_is_done_again(
    tmp_path: Path, crash_at: str, tell: Callable[[str], None]
) -> None:
    """Requirement 51. Requirement 50."""
    left = tmp_path / "left"
    left.mkdir()
    assert work(left, crash_at=crash_at).killed
    counts = calls_of(copied(left, tmp_path / "counted"))
    points = [(call, number) for call, most in MOST.items() for number in spread(min(most, counts[call]), CHOSEN[call])]
    for call, number in points:
        folder = copied(left, tmp_path / f"{call}-{number}")
        assert killed_at(folder, call, number)
        assert violations(folder) == [], f"killed at {call} {number} of its recovery"
        whole(folder, restarted(folder))
    tell(f"the recovery from {crash_at}: {len(points)} kill points hit, of the first {sum(MOST.values())}")


@pytest.mark.parametrize(
    ("effect", "places"),
    [
        ("charge first", ["before", "applied", "before", "applied", "return", "applied"]),
        ("publish", ["before", "before", "applied", "reconcile", "reconciled", "reconcile"]),
        ("ship one", ["before", "reconcile", "reconciled", "reconciled", "applied", "reconciled", "reconcile"]),
        ("mail", ["before", "before", "applied"]),
        ("note", ["before", "applied", "return", "applied", "before"]),
    ],
)
def test_however_often_one_effect_is_cut_short_it_is_applied_once(folder: Path, effect: str, places: list[str]) -> None:
    """Requirement 33. Requirement 51."""
    for place in places:
        assert work(folder, crash_at=f"{effect}:{place}").killed, place
        assert violations(folder) == [], place
    whole(folder, restarted(folder))


def test_killed_in_each_question_it_stays_unknown_and_nothing_is_skipped(folder: Path) -> None:
    """Requirement 33. Each claim raises the epoch; the effect is lost once, and quiet from that moment on."""
    assert work(folder, crash_at="ship one:applied").killed
    for _ in range(6):
        assert work(folder, crash_at="ship one:reconcile").killed
    told = told_of(folder, "ship one")
    assert [type(entry) for entry in told] == [e.EffectStarted, e.EffectUnknown]
    epochs = [entry.epoch for entry in journals(folder)[0] if isinstance(entry, e.Claimed)]
    assert epochs == [1, 2, 3, 4, 5, 6, 7]
    assert len(World(folder).find("ship", parcel="one")) == 1
    whole(folder, restarted(folder))


def test_a_run_that_is_done_is_not_done_again_by_starting_its_worker_again(folder: Path) -> None:
    """Requirement 51."""
    first = restarted(folder)
    ledger = World(folder).lines()
    for _ in range(3):
        assert restarted(folder) == first
    assert World(folder).lines() == ledger
    whole(folder, first)
