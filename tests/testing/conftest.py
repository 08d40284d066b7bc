"""A world made of files, fresh for each test."""

from pathlib import Path

import pytest

from tests.testing.books import Books


@pytest.fixture
def books(tmp_path: Path) -> Books:
    return Books(tmp_path)
