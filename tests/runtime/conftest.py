"""Tests that are coroutines run in an event loop of their own, bounded in time."""

import asyncio
import inspect
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime.stage import DatabaseStage, Stage
from tests.servers.fixtures import PostgresServers, postgres_servers

__all__ = ["postgres_servers"]

TEST_S = 1_500 if os.environ.get("MILEPOST_SWEEP") == "all" else 120
ON = os.environ.get("MILEPOST_TEST_STORE", "")  # `postgres-18`: then these tests run on a database of that version


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test; pytest itself would refuse it."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    given = {name: pyfuncitem.funcargs[name] for name in names}

    async def bounded() -> None:
        async with asyncio.timeout(TEST_S):
            await pyfuncitem.obj(**given)

    asyncio.run(bounded())
    return True


@pytest.fixture
def stage(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Stage]:
    """A fresh store and a clock that stands still until a test moves it."""
    if not ON:
        yield Stage(tmp_path)
        return
    servers: PostgresServers = request.getfixturevalue("postgres_servers")
    version = int(ON.removeprefix("postgres-"))
    stores = servers.stores(version)
    name = stores.take()
    yield DatabaseStage(tmp_path, servers.get(version).url(name))
    stores.give_back(name)
