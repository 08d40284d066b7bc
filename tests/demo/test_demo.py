"""`milepost demo` as a person types it, with fewer tickets and kills."""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from milepost.cli.demo.command import demo
from milepost.cli.demo.failure import DemoPartsMissing, NoDemoHere
from milepost.cli.demo.report import decisions
from milepost.cli.demo.run import Setting, play, setting_of

DEMO = [sys.executable, "-c", "from milepost.cli.demo.command import demo; demo()"]
MILEPOST = [sys.executable, "-m", "milepost"]
SMALL = ["--tickets", "10", "--kills", "6"]


def run_demo(folder: Path, *options: str, status: int = 0) -> dict[str, Any]:
    """Run the demo as a process of its own and return the figures that it prints."""
    done = subprocess.run([*DEMO, "--json", *options], cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (status, "")
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def test_the_desk_is_killed_loses_and_doubles_nothing_and_goes_on_once_a_person_has_decided(tmp_path: Path) -> None:
    """Requirement 18. Requirement 19. Killed again and again; judged by the ledgers of the outside world."""
    figures = run_demo(tmp_path, "--seed", "3", "--keep", "kept", *SMALL)
    waiting = figures["waiting_for_a_person"]
    for held in waiting:
        word = ["--happened", "null"] if held["arrived"] else ["--did-not-happen"]
        settle = ["resolve", held["run"][:8], held["path"], *word, "--why", "the ledger says so"]
        subprocess.run([*MILEPOST, *settle, "--store", "kept/desk.db"], cwd=tmp_path, check=True, capture_output=True)
    finished = run_demo(tmp_path, "--finish", "kept")

    assert figures["problems"] == []
    assert (figures["duplicates"], figures["lost"], figures["wrong"]) == (0, 0, 0)
    assert figures["kills"] >= 6
    assert figures["kills_on_effect"] >= 3
    assert figures["restarts"] == figures["kills"]
    assert figures["unknown"]["met"] == figures["unknown"]["reconciled"] + len(waiting)
    assert finished["problems"] == []
    assert (finished["kills"], finished["waiting_for_a_person"]) == (0, [])
    for line in finished["effects"].values():
        assert line["applied"] == line["expected"]


def test_the_naive_desk_makes_duplicates_and_says_so(tmp_path: Path) -> None:
    figures = run_demo(tmp_path, "--naive", "--seed", "2", "--keep", "naive", *SMALL)

    assert figures["duplicates"] > 0
    assert figures["problems"][0] == f"{figures['duplicates']} duplicates"
    assert "unknown" not in figures


def test_the_commands_that_are_printed_show_the_run_they_name(tmp_path: Path) -> None:
    setting = Setting(seed=first_seed_that_drops_a_mail(), tickets=1)
    outcome = play(tmp_path, setting, setting.plan(unkilled=True))
    lines = [shlex.split(line) for line in decisions(outcome)]
    (export,) = [line for line in lines if line[:1] == ["export"]]
    name, _, store = export[1].partition("=")

    for line in lines:
        if line[:2] in (["milepost", "show"], ["milepost", "resolve"]):
            shown = subprocess.run(
                [*MILEPOST, *line[1:]], env={name: store, **environment()}, capture_output=True, text=True, check=True
            )
            assert line[2] in shown.stdout


def first_seed_that_drops_a_mail() -> int: ...


def environment() -> dict[str, str]: ...
