"""What the tests of the command line get."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.shop_floor import Shop, shop_in


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """A folder with the shop's program in it, and nothing that names a store or an App."""
    with shop_in(tmp_path, monkeypatch) as made:
        yield made


@pytest.fixture
def shop(bare: Shop, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """The shop with an empty store, named by MILEPOST_APP."""
    monkeypatch.setenv("MILEPOST_APP", "shop:app")
    bare.ok("init", "--store", "shop.db")
    return bare
