"""The plugin that tries the mutants: which tests each meets, and how it ends."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mutation.in_the_copy import ASKED, FAILED, MEASURED, NO_TESTS, SECONDS_OF_TESTS, TOO_LONG, TRIED, Measured, chosen
from mutation.parts import ROOT

# What mutmut makes of a function, in small: its original, its mutants, and what chooses one of them.
RULES = """
import asyncio, os


def x_rule__mutmut_orig(value):
    if value == 0:
        return 0
    return value


def x_rule__mutmut_1(value):
    if value == 0:
        return 0
    return None


def x_rule__mutmut_2(value):
    while value == 0:
        try:
            asyncio.run(asyncio.Event().wait())
        except BaseException:  # what cannot be stopped in order
            pass
    return value


def rule(value):
    return globals().get(os.environ["MUTANT_UNDER_TEST"].rpartition(".")[2], x_rule__mutmut_orig)(value)
"""
TESTS = """
from rules import rule


def test_that_asks_nothing():
    pass


def test_of_nothing():
    assert rule(0) == 0


def test_of_one():
    assert rule(1) == 1


def test_of_two():
    assert rule(2) == 2
"""
ZERO, REST, NEVER = (7, 7), (8, 8), (99, 99)
RULE = "rules.x_rule__mutmut_{}"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a folder with tests and with a function as mutmut leaves it."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_of_a_rule.py").write_text(TESTS, encoding="utf-8")
    (tmp_path / "rules.py").write_text(RULES, encoding="utf-8")
    return tmp_path


def tried(copy: Path, mutants: dict[str, tuple[int, int]]) -> tuple[dict[str, tuple[int, str]], str]:
    (copy / ASKED).write_text(json.dumps(mutants), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-c", os.devnull, "--rootdir=.", "tests"]
    # The plugins that nothing here asks for take longer to import than these tests to run.
    alone = {"PYTHONPATH": f"{copy}{os.pathsep}{ROOT}", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [*command, "-p", "mutation.in_the_copy", "-p", "no:cacheprovider", "-p", "pytest_timeout"],
        cwd=copy, env={**os.environ, **alone}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = (copy / TRIED).read_text(encoding="utf-8").splitlines() if (copy / TRIED).exists() else []
    return {name: (code, against) for name, code, against in map(json.loads, lines)}, done.stdout + done.stderr


def test_a_mutant_is_killed_by_a_test_survives_hangs_or_is_reached_by_none(copy: Path) -> None:
    mutants = {RULE.format(1): REST, RULE.format(2): ZERO, RULE.format(3): REST, RULE.format(4): NEVER}

    found, said = tried(copy, mutants)

    at = "tests/test_of_a_rule.py::test_of"
    assert [found[name][0] for name in mutants] == [FAILED, TOO_LONG, 0, NO_TESTS], said
    assert found[RULE.format(1)][1] in {f"{at}_one", f"{at}_two"}
    assert found[RULE.format(2)][1] == ""


def test_a_test_reaches_a_mutant_where_it_runs_a_line_of_it(copy: Path) -> None:
    tried(copy, {RULE.format(1): REST})

    reaching = json.loads((copy / MEASURED).read_text(encoding="utf-8"))["reaching"]["rules.x_rule"]
    at = "tests/test_of_a_rule.py::test_of"
    assert reaching == {f"{at}_nothing": [6, 7], f"{at}_one": [6, 8], f"{at}_two": [6, 8]}


def test_nothing_is_tried_where_a_test_fails_without_any_mutant(copy: Path) -> None:
    with (copy / "tests" / "test_of_a_rule.py").open("a", encoding="utf-8") as written:
        written.write("\n\ndef test_that_fails():\n    assert False\n")

    found, said = tried(copy, {RULE.format(3): REST})

    assert found == {}
    assert "test_that_fails fails without any mutant" in said


def test_what_was_measured_holds_until_a_file_changes() -> None:
    def known() -> Measured:
        files = {"a.py": "1", "b.py": "1"}
        return Measured({"a.py::t": 1.0, "b.py::t": 2.0}, {"f": {"a.py::t": [1], "b.py::t": [2]}}, "s", files)

    same, other_test, other_source = known(), known(), known()
    same.keep("s", {"a.py": "1", "b.py": "1"})
    other_test.keep("s", {"a.py": "1", "b.py": "2"})
    other_source.keep("t", {"a.py": "1", "b.py": "1"})

    assert same == known()
    assert (other_test.seconds, other_test.reaching) == ({"a.py::t": 1.0}, {"f": {"a.py::t": [1]}})
    assert (other_source.seconds, other_source.reaching) == ({}, {})


def test_the_killers_come_first_then_the_quickest_of_each_file_and_what_takes_too_long_is_left_out() -> None:
    seconds = {
        "a::quick": 0.1,
        "a::second": 0.6,
        "b::slow": 1.0,
        "b::killer": 2.0,
        "b::endless": float(SECONDS_OF_TESTS),
    }

    assert chosen(list(seconds), seconds, ["b::killer"]) == ["b::killer", "a::quick", "b::slow", "a::second"]
    assert chosen(list(seconds), seconds, ["b::killer"], patience=2)[-1] == "b::endless"
    assert chosen(["b::endless"], {"b::endless": 2.0 * SECONDS_OF_TESTS}, []) == ["b::endless"]
