"""Killed at every write and every sync of a run, and started again."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.killing import calls_of, killed_at, restarted, spread, violations, whole

SHARES = 4
SAMPLE = {"fdatasync": 60, "pwrite64": 80}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("share", range(SHARES))
def test_a_run_killed_at_any_write_or_sync_ends_with_each_effect_once_and_a_true_journal(
    tmp_path: Path, share: int, tell: Callable[[str], None]
) -> None:
    """Requirement 50. Requirement 69. With an effect of every class, arms, a sleep, a signal, a child, an approval."""
    (tmp_path / "counted").mkdir()
    counts = calls_of(tmp_path / "counted")
    points = [(call, number) for call, count in counts.items() for number in spread(count, SAMPLE[call])]
    hit = 0
    for call, number in points[share::SHARES]:
        folder = tmp_path / f"{call}-{number}"
        folder.mkdir()
        if killed_at(folder, call, number):
            hit += 1
        else:
            # Group commit depends on timing: a run may need a few writes less than the one that was counted.
            assert number > counts[call] * 0.8, f"{call} {number} of {counts[call]} was never reached"
        assert violations(folder) == [], f"killed at {call} {number}"
        whole(folder, restarted(folder))
    tell(f"a whole run: {hit} kill points hit, {len(points[share::SHARES])} chosen of {sum(counts.values())}")
    assert hit
