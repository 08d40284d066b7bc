"""A bank, and a gateway before it, that most tests share: real processes."""

from collections.abc import Iterator

import pytest

from tests.adapters.mcp.town import Town


@pytest.fixture(scope="session")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    """A bank that listens; every process that a test started is gone at the end."""
    made = Town(tmp_path_factory.mktemp("town"))
    made.open_bank()
    yield made
    made.close()


@pytest.fixture(scope="session")
def address(town: Town) -> str:
    """A gateway that most tests share: each has orders of its own."""
    return town.open_gateway("shared")[1]


@pytest.fixture
def order(request: pytest.FixtureRequest) -> str:
    """An order, or a receiver of mail, of this test alone."""
    return f"o-{abs(hash(request.node.nodeid)) % 10**9}"
