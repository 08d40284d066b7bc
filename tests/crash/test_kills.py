"""After a kill has returned nothing of its run starts, however close the two come to each other."""

import os
from pathlib import Path

import pytest

from tests.crash.kill_trials import trials

ALL = os.environ.get("MILEPOST_FAULTS") == "all"  # read before the fixture that takes settings away
TRIALS = 10_000 if ALL else 300


@pytest.mark.timeout(1_800 if ALL else 120)
def test_no_effect_starts_after_a_kill_has_returned(tmp_path: Path) -> None:
    """Requirement 66. Requirement 60. The operator's word is a row that no worker can overwrite."""
    told = trials(TRIALS, tmp_path, seed=4)

    assert told.problems == []
    assert told.trials == TRIALS
    assert told.landed >= TRIALS // 10, "the kills must come while a `started` is being appended"
