"""`milepost demo` as a person types it, with fewer tickets and kills."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from milepost.cli.demo.command import demo
from milepost.cli.demo.failure import DemoPartsMissing, NoDemoHere
from milepost.cli.demo.report import decisions
from milepost.cli.demo.run import Setting, play
from tests.demo.test_show import words_of

DEMO = [sys.executable, "-c", "from milepost.cli.demo.command import demo; demo()"]
MILEPOST = [sys.executable, "-m", "milepost"]
SEED_THAT_DROPS_THE_FIRST_MAIL = 6
SMALL = ["--tickets", "8", "--kills", "4"]


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
    assert figures["kills"] >= 4
    assert figures["kills_on_effect"] >= 2
    assert figures["restarts"] == figures["kills"]
    assert figures["unknown"]["met"] == figures["unknown"]["reconciled"] + len(waiting)
    assert finished["problems"] == []
    assert (finished["kills"], finished["waiting_for_a_person"]) == (0, [])
    assert finished["unknown"] == figures["unknown"]
    for line in finished["effects"].values():
        assert line["applied"] == line["expected"]


def test_the_naive_desk_makes_duplicates_and_says_so(tmp_path: Path) -> None:
    figures = run_demo(tmp_path, "--naive", "--seed", str(SEED_THAT_DROPS_THE_FIRST_MAIL), "--keep", "naive", *SMALL)

    assert figures["duplicates"] > 0
    assert figures["problems"][0] == f"{figures['duplicates']} duplicates"
    assert "unknown" not in figures


def test_the_commands_that_are_printed_can_be_typed(tmp_path: Path) -> None:
    setting = Setting(seed=SEED_THAT_DROPS_THE_FIRST_MAIL, tickets=1)
    outcome = play(tmp_path, setting, setting.plan(unkilled=True))
    lines = [words_of(line) for line in decisions(outcome)]
    export, *commands = [words for words in lines if words and words[:2] != ["milepost", "demo"]]
    name, _, store = export[1].partition("=")

    said = [
        subprocess.run(
            [*MILEPOST, *words[1:]], env={**os.environ, name: store}, capture_output=True, text=True, check=True
        ).stdout
        for words in commands
    ]

    assert [words[1] for words in commands] == ["show", "resolve"]
    assert "answer/send_mail#1" in said[0]
    assert "happened" in said[1]


def test_a_folder_that_holds_something_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("not yours")

    result = CliRunner().invoke(demo, ["--keep", str(tmp_path)])

    assert isinstance(result.exception, NoDemoHere)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("content", [None, b"not json", b'{"seed":1,"tickets":4,"naive":true}'])
def test_only_the_folder_of_an_earlier_demo_of_this_desk_can_be_finished(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "demo.json").write_bytes(content)

    result = CliRunner().invoke(demo, ["--finish", str(tmp_path)])

    assert isinstance(result.exception, NoDemoHere)
    assert str(tmp_path) in str(result.exception)


@pytest.mark.parametrize("missing", [["httpx"], ["aiosmtpd"], ["aiosmtpd", "httpx"]], ids=" and ".join)
def test_without_its_parts_the_demo_says_what_to_install(monkeypatch: pytest.MonkeyPatch, missing: list[str]) -> None:
    for name in missing:
        monkeypatch.setitem(sys.modules, name, None)

    result = CliRunner().invoke(demo, [])

    assert isinstance(result.exception, DemoPartsMissing)
    assert f"needs {' and '.join(missing)}" in str(result.exception)
    assert "pip install 'milepost[demo]'" in str(result.exception)


def test_a_full_demo_kills_twenty_times_and_half_of_them_on_an_effect() -> None:
    plan = Setting(seed=1, tickets=48).plan()

    assert (plan.kills, plan.on_effect) == (20, 10)
    assert plan.steps == 178
