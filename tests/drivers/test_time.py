"""A month passes in a moment, on the server that skips time."""

import asyncio
from pathlib import Path

import pytest
from temporalio.testing import WorkflowEnvironment

from milepost.drivers.temporal import ServerClock, drive, driving
from tests.crash.world import World
from tests.drivers import desk
from tests.servers.temporal import time_skipping_program

A_MONTH_MS = 30 * 86_400_000


async def sleeps_a_month(folder: Path) -> tuple[list[str], str]:
    app = desk.app_on(f"sqlite:///{folder}/store.db", clock=ServerClock())
    async with (
        await WorkflowEnvironment.start_time_skipping(test_server_existing_path=time_skipping_program()) as server,
        driving(app, server.client),
    ):
        handle = await app.start(desk.monthly, "rent")
        status = await (await drive(server.client, handle.id)).result()  # awaiting this is what makes the server skip
        return await handle.result(timeout="10s"), status


def test_a_run_that_sleeps_for_thirty_days_is_woken_by_a_timer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRASH_FOLDER", str(tmp_path))

    result, status = asyncio.run(sleeps_a_month(tmp_path))

    assert (result, status) == (["rent now placed", "rent in a month placed"], "done")
    first, second = World(tmp_path).lines()
    slept = second.args, first.args
    assert slept == ({"thing": "rent in a month"}, {"thing": "rent now"})
