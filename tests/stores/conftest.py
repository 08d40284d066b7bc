"""A fresh SQLite place for each test, and how another process gets at it."""

from pathlib import Path

import pytest

from milepost.stores.sqlite.store import SqliteStore


class SqlitePlace:
    """One file, opened as often as a test likes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    async def open(self) -> SqliteStore:
        return SqliteStore(str(self.path), create=True)


@pytest.fixture
def stores(tmp_path: Path) -> SqlitePlace:
    return SqlitePlace(tmp_path / "store.db")
