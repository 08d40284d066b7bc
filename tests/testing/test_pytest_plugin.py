"""The pytest plugin, used as a user's suite uses it: in a pytest of its own."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from milepost import testing
from tests.tidy.repository import ROOT, text

PLUGIN = "milepost.testing.pytest_plugin"
PATIENCE_S = 60
FIXTURES = """
import milepost as mp


@mp.tool(effect="read")
async def look(order: str) -> int:
    return 500


@mp.workflow(version="1", tools=[look])
async def rests(run: mp.Run, order: str) -> int:
    await run.sleep("1h")
    return await look(order)


def test_the_clock_and_the_app_fit(milepost_app, milepost_store, manual_clock, tmp_path):
    app = milepost_app(rests, clock=manual_clock)
    assert app.store == milepost_store == f"sqlite:///{tmp_path}/milepost.db"
    before = manual_clock.now()
    manual_clock.advance("1h")
    assert manual_clock.now() == before + 3_600_000
    assert milepost_app(look_at_once).run(look_at_once, "o-1") == 500


@mp.workflow(version="1", tools=[look])
async def look_at_once(run: mp.Run, order: str) -> int:
    return await look(order)


def test_the_world_is_there_and_the_account_is_fresh(milepost_world, milepost_account):
    assert milepost_account.applied() == []
    assert milepost_account.http_port == milepost_world.http_port > 0


def test_another_account_is_another(milepost_account):
    assert "another" in milepost_account.name
"""
DRAWS = """
import random

def test_draws(milepost_seed):
    assert False, f"drawn {random.Random(milepost_seed).random()}"

def test_draws_nothing():
    assert False

def test_draws_and_passes(milepost_seed):
    assert milepost_seed >= 0
"""
CRASHES = """
import tempfile
import milepost as mp
from milepost.testing import Applied, crash_everywhere

@mp.tool(effect="read")
def charge(call: mp.Call, order: str) -> str:
    call.resource(Book).write(order)
    return order

@mp.workflow(version="1", tools=[charge])
async def buy(run: mp.Run, order: str) -> str:
    return await charge(order)

class Book:
    def __init__(self, path):
        self.path = path

    def write(self, order):
        with self.path.open("a") as file:
            file.write(order + "\\n")

    def applied(self):
        lines = self.path.read_text().split() if self.path.exists() else []
        return [Applied("charge", args={"order": order}) for order in lines]

class Books:
    def __init__(self, folder):
        self.folder = folder

    def account(self, name):
        return Book(self.folder / name)

def test_survives(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert crash_everywhere(buy, "o-1", Books(tmp_path), most=6).ok

def test_survives_said_in_full(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    crash_everywhere(buy, "o-1", Books(tmp_path), most=6).raise_if_broken()
"""


def run(folder: Path, tests: str, *options: str, plugin: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a pytest on one file, with warnings as errors, with this plugin and no other."""
    (folder / "test_user.py").write_text(tests)
    loaded = ["-p", PLUGIN] if plugin else []
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-W", "error", "-p", "no:cacheprovider", *loaded, *options, "test_user.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_the_fixtures_are_what_they_say(tmp_path: Path) -> None:
    done = run(tmp_path, FIXTURES)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def test_a_failure_that_was_drawn_says_the_seed_that_has_it_again(tmp_path: Path) -> None:
    """Requirement 87."""
    first = run(tmp_path, DRAWS)
    seeds = re.findall(r"--milepost-seed=(\d+)", first.stdout)
    again = run(tmp_path, DRAWS, f"--milepost-seed={seeds[0]}")
    header, _, _ = again.stdout.partition("collected")

    assert len(seeds) == 1  # neither in the header, nor where nothing was drawn, nor where it passed
    assert "It fails again with: pytest --milepost-seed=" in first.stdout
    assert "test_user.py::test_draws'" in first.stdout
    assert f"milepost: --milepost-seed={seeds[0]}" in header
    assert set(re.findall(r"drawn [\d.]+", again.stdout)) == set(re.findall(r"drawn [\d.]+", first.stdout))


@pytest.fixture(scope="module")
def broken_run(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    return run(tmp_path_factory.mktemp("broken"), CRASHES, "--milepost-seed=41")


def test_a_workflow_that_breaks_says_its_seed_and_breaks_again_with_it(
    tmp_path: Path, broken_run: subprocess.CompletedProcess[str]
) -> None:
    """Requirement 87."""
    one, other = broken_run, run(tmp_path, CRASHES, "--milepost-seed=41")
    told = [re.sub(r"milepost-broken-\w+", "kept", part.stdout) for part in (one, other)]
    broken = [re.findall(r"^E? *(?:at|why|repeated:).*", part, re.MULTILINE) for part in told]

    assert one.returncode == other.returncode == 1
    assert "--milepost-seed=41" in one.stdout
    assert broken[0] == broken[1] != []


def test_the_report_is_shown_in_full_once_however_it_is_asserted(
    broken_run: subprocess.CompletedProcess[str],
) -> None:
    # Where the variable CI is set, pytest ends with every message in full once more.
    failures, _, _ = broken_run.stdout.partition("= short test summary info =")
    first, second = failures.split("_ test_survives_said_in_full _")

    for part in (first, second):
        assert part.count("points, ") == 1
        assert "(seed 41)" in part
        assert "why  charge is declared effect='read'" in part
    assert "raise_if_broken()" in second
    assert "raise Unreliable" not in second


def test_the_processes_of_one_run_have_one_seed(tmp_path: Path) -> None:
    several = "".join(f"\n\ndef test_draws_{number}(milepost_seed):\n    assert False" for number in range(6))
    done = run(tmp_path, several, "-p", "xdist", "-n", "2")

    assert "6 failed" in done.stdout
    assert len(set(re.findall(r"--milepost-seed=(\d+)", done.stdout))) == 1


def test_a_suite_may_name_the_plugin_itself(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(f'pytest_plugins = ["{PLUGIN}"]\n')
    done = run(tmp_path, "def test_seed(milepost_seed):\n    assert milepost_seed == 3\n", "--milepost-seed=3")

    assert done.returncode == 0, done.stdout + done.stderr


def test_a_suite_that_asks_for_nothing_loads_nothing() -> None:
    heavy = ("apsw", "msgspec", "asyncio", "click", "milepost.core", "milepost.app")
    program = f"import sys, pytest; loaded = set(sys.modules); import {PLUGIN}; print(*(set(sys.modules) - loaded))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
    )

    assert PLUGIN in done.stdout.split()
    assert [name for name in done.stdout.split() if name.startswith(heavy)] == []


def test_the_plugin_is_declared_under_the_name_of_its_module() -> None:
    declared = tomllib.loads(text("pyproject.toml"))["project"]["entry-points"]["pytest11"]

    assert declared == {PLUGIN: PLUGIN}


@pytest.mark.parametrize("name", testing.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(testing, name).__name__ == name
    assert name in dir(testing)


def test_a_name_that_is_not_there_is_refused_as_by_any_module() -> None:
    with pytest.raises(AttributeError, match="no attribute 'crash_nowhere'"):
        _ = testing.crash_nowhere  # type: ignore[attr-defined]
