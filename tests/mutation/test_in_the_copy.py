"""A mutant that only the clock spoke against ends in another way than one that a test refuted."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mutation.in_the_copy import TOO_LONG
from mutation.parts import ROOT

HANGS = "@pytest.mark.timeout(0.2)\ndef test_that_hangs() -> None:\n    asyncio.run(asyncio.Event().wait())\n"
FAILS = "def test_that_fails() -> None:\n    assert False\n"
PASSES = "def test_that_passes() -> None:\n    pass\n"


@pytest.mark.parametrize(
    ("tests", "code"), [((PASSES,), 0), ((HANGS, PASSES), TOO_LONG), ((FAILS,), 1), ((HANGS, FAILS), 1)]
)
def test_what_was_stopped_by_the_clock_is_told_apart(tests: tuple[str, ...], code: int, tmp_path: Path) -> None:
    written = tmp_path / "test_of_a_mutant.py"
    written.write_text("\n\n".join(("import asyncio\nimport pytest\n", *tests)), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(tmp_path), str(written)]

    done = subprocess.run(
        [*command, "-p", "mutation.in_the_copy", "-p", "no:cacheprovider"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == code, done.stdout + done.stderr
