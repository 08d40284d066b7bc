"""Tests that are coroutines run in an event loop of their own, bounded in time; and a town of real processes."""

import asyncio
import inspect
from collections.abc import Iterator

import pytest

from tests.adapters.mcp.town import Town

TEST_S = 60


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test; pytest itself would refuse it."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}

    async def bounded() -> None:
        async with asyncio.timeout(TEST_S):
            await pyfuncitem.obj(**given)

    asyncio.run(bounded())
    return True


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
