"""Tests that are coroutines run in an event loop of their own, bounded in time; each has a store of its own."""

from pathlib import Path

import pytest

from tests.runtime.conftest import pytest_pyfunc_call
from tests.runtime.stage import Stage

__all__ = ["pytest_pyfunc_call"]


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """A fresh store in a file."""
    return Stage(tmp_path)
