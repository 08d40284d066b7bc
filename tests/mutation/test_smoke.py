"""A few mutants of the rules that the promise rests on, by hand: the core's tests must notice each of them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.repository import ROOT

TESTS = ("test_lease", "test_append", "test_outcome_table", "test_next_move")
PLANTED = (
    ("test_lease", "core/lease.py", "now + MARGIN_MS <= lease_until", "now + MARGIN_MS < lease_until"),
    ("test_lease", "core/lease.py", "now >= lease_until", "now > lease_until"),
    ("test_append", "core/append.py", "held != found", "held == found"),
    ("test_outcome_table", "core/outcome.py", 'in {"retry", "fail"} and final', 'in {"retry", "fail"} or final'),
    ("test_next_move", "core/outcome.py", "None if None in moments", "None if None not in moments"),
    ("test_next_move", "core/outcome.py", "if at >= counts_from]", "if at > counts_from]"),
    ("test_next_move", "core/outcome.py", "+ 1 >= ABSENCES_NEEDED", "+ 2 >= ABSENCES_NEEDED"),
    (
        "test_next_move",
        "core/outcome.py",
        "now < key_valid_until(facts, attempts)",
        "now <= key_valid_until(facts, attempts)",
    ),
)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Return a copy of the package, with what is compiled already, so that it need not be done again."""
    copied = tmp_path / "src" / "milepost"
    shutil.copytree(ROOT / "src" / "milepost", copied)
    return copied


def core_tests(package: Path, *names: str) -> subprocess.CompletedProcess[str]:
    """Run the core's own tests of these rules on a copy of the package, in a process of their own."""
    quiet = ("-q", "-x", "-p", "no:cacheprovider", "-p", "pytest_timeout")
    # The plugins that the core's tests do not ask for take longer to import than these tests to run.
    alone = {"PYTHONPATH": str(package.parent), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(
        [sys.executable, "-B", "-m", "pytest", *quiet, *(f"tests/core/{name}.py" for name in names)],
        cwd=ROOT, env={**os.environ, **alone}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_the_rules_as_they_are_pass_their_tests(package: Path) -> None:
    done = core_tests(package, *TESTS)

    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(("tests", "module", "was", "planted"), PLANTED)
def test_a_rule_that_is_a_little_wrong_fails_a_test(
    package: Path, tests: str, module: str, was: str, planted: str
) -> None:
    source = (package / module).read_text(encoding="utf-8")
    (package / module).write_text(source.replace(was, planted), encoding="utf-8")

    done = core_tests(package, tests)

    assert source.count(was) == 1, "the rule reads otherwise now: plant the mistake anew"
    assert done.returncode == 1, done.stdout
    assert " failed" in done.stdout
