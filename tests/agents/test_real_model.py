"""A whole run with a real model, offline: killed in the middle, finished by a second process.

Nothing here rests on what the model says: only on what is recorded, what is done, and what is asked again.
"""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
WITHIN_S = 150


def process(folder: Path, kill_at: str = "") -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path, "KILL_AT": kill_at, "MILEPOST_LOCAL": str(folder / "local")}
    return subprocess.run(
        [sys.executable, "-m", "tests.agents.talking", str(folder)],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=WITHIN_S, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kill_at", "asked"),
    [
        ("turn 2:middle", {"asked turn 1": 1, "asked turn 2": 2, "asked turn 3": 1}),  # it had begun to speak
        ("note:middle", {"asked turn 1": 1, "asked turn 2": 1, "asked turn 3": 1}),  # it had said what to do
    ],
)
def test_a_run_with_a_real_model_survives_a_kill_and_no_recorded_turn_is_asked_for_again(
    tmp_path: Path, kill_at: str, asked: dict[str, int]
) -> None:
    """Requirement 69. Requirement 50. Requirement 33."""
    assert process(tmp_path, kill_at).returncode == -signal.SIGKILL

    finished = process(tmp_path)

    assert finished.returncode == 0, finished.stderr
    told: dict[str, Any] = json.loads(finished.stdout.splitlines()[-1])
    assert told["answers"] == [["note", "confirmed"], ["note", "confirmed"], ["final_result", "confirmed"]]
    assert isinstance(told["result"], bool)
    lines = (tmp_path / "ledger.txt").read_text().splitlines()
    assert Counter(line for line in lines if line.startswith("asked")) == asked
    notes = [line for line in lines if line.startswith("note")]
    assert (len(notes), len(set(notes))) == (2, 2)
    assert int(told["spent"]["turns"]) == sum(asked.values())  # the one that was cut off was paid for
