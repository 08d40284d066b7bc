"""What the crash tests say about themselves while they run."""

import sys
from collections.abc import Callable

import pytest


@pytest.fixture
def tell(capfd: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Print a count past the capture, in a worker of pytest-xdist too: how much was swept is a part of the result."""

    def telling(what: str) -> None:
        with capfd.disabled():
            sys.stderr.write(f"\n  {what}\n")
            sys.stderr.flush()

    return telling
