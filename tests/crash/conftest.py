"""Where workers are killed, and what the crash tests say about themselves while they run."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder that a worker works in."""
    made = tmp_path / "desk"
    made.mkdir()
    return made


@pytest.fixture
def tell(capfd: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Print a count past the capture, in a worker of pytest-xdist too: how much was swept is a part of the result."""

    def telling(what: str) -> None:
        with capfd.disabled():
            sys.stderr.write(f"\n  {what}\n")
            sys.stderr.flush()

    return telling
