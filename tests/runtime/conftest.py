"""Tests that are coroutines run in an event loop of their own, bounded in time."""

import asyncio
import inspect
import os
from pathlib import Path

import pytest

from tests.runtime.stage import Stage

TEST_S = 1_500 if os.environ.get("MILEPOST_SWEEP") == "all" else 60


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
def stage(tmp_path: Path) -> Stage:
    """A fresh store and a clock that stands still until a test moves it."""
    return Stage(tmp_path)
