"""What a user's type checker says about a user's program: mypy and pyright, each in its strict mode."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PROGRAMS = sorted((HERE / "programs").glob("*.py"))
PLANTED = sorted((HERE / "planted").glob("*.py"))
WRONG = re.compile(r"#\s*wrong(?::\s*(\w+))?\s*$")

Complaints = dict[str, dict[int, str]]


def mypy(files: list[Path], scratch: Path) -> Complaints:
    """Return what mypy says in strict mode, by file and line. No settings of this repository count."""
    asked = ["--strict", "--config-file=", f"--cache-dir={scratch / 'cache'}", "--python-version=3.11", "--output=json"]
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", *asked, *map(str, files)],
        cwd=scratch, env=os.environ | {"MYPYPATH": str(ROOT / "src")}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode in {0, 1}, ran.stdout + ran.stderr
    found: Complaints = {}
    for said in map(json.loads, filter(None, ran.stdout.splitlines())):
        if said["severity"] == "error":
            found.setdefault(Path(said["file"]).name, {})[said["line"]] = said["message"]
    return found


def pyright(files: list[Path], scratch: Path) -> Complaints:
    """Return what pyright says in strict mode, by file and line."""
    settings = {
        "include": [os.path.relpath(file, scratch) for file in files],
        "extraPaths": [str(ROOT / "src")],
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
    }
    (scratch / "pyrightconfig.json").write_text(json.dumps(settings))
    ran = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "--project", str(scratch), "--pythonpath", sys.executable],
        cwd=scratch, capture_output=True, text=True, check=False,
    )  # fmt: skip
    report = json.loads(ran.stdout)
    assert report["summary"]["filesAnalyzed"] == len(files), ran.stdout
    found: Complaints = {}
    for said in report["generalDiagnostics"]:
        found.setdefault(Path(said["file"]).name, {})[said["range"]["start"]["line"] + 1] = said["message"]
    return found


CHECKERS = [mypy, pyright]


def marked(file: Path, checker: str) -> set[int]:
    lines = enumerate(file.read_text().splitlines(), start=1)
    marks = [(number, match[1]) for number, line in lines if (match := WRONG.search(line))]
    return {number for number, alone in marks if alone in {None, checker}}


@pytest.mark.parametrize("check", CHECKERS)
def test_a_right_program_has_no_complaint(check: Callable[[list[Path], Path], Complaints], tmp_path: Path) -> None:
    assert PROGRAMS
    found = check(PROGRAMS, tmp_path)

    assert {file.name: found.get(file.name, {}) for file in PROGRAMS} == {file.name: {} for file in PROGRAMS}


@pytest.mark.parametrize("check", CHECKERS)
def test_each_planted_mistake_is_found_and_nothing_else(
    check: Callable[[list[Path], Path], Complaints], tmp_path: Path
) -> None:
    assert PLANTED
    found = check(PLANTED, tmp_path)

    for file in PLANTED:
        expected, complaints = marked(file, check.__name__), found.get(file.name, {})
        assert len(expected) > 40
        assert {line: said for line, said in complaints.items() if line not in expected} == {}
        assert sorted(expected - complaints.keys()) == []
