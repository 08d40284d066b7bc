"""A month passes in a moment, on the server that skips time."""

import asyncio
from pathlib import Path

import pytest
from temporalio.testing import WorkflowEnvironment

from milepost.drivers.temporal import ServerClock, drive, driving
from tests.crash.world import World
from tests.drivers import desk
from tests.drivers.floor import ON_BOTH
from tests.servers.temporal import time_skipping_program

A_MONTH_MS = 30 * 86_400_000


async def sleeps_a_month(store: str) -> tuple[list[str], str, list[int]]:
    app = desk.app_on(store, clock=ServerClock())
    async with (
        await WorkflowEnvironment.start_time_skipping(test_server_existing_path=time_skipping_program()) as server,
        driving(app, server.client),
    ):
        handle = await app.start(desk.monthly, "rent")
        status = await (await drive(server.client, handle.id)).result()  # awaiting this is what makes the server skip
        confirmed = [line.at for line in await app.inspect.journal(handle.id) if line.name == "effect_confirmed"]
        return await handle.result(timeout="60s"), status, confirmed


@ON_BOTH
def test_a_run_that_sleeps_for_thirty_days_is_woken_by_a_timer(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRASH_FOLDER", str(tmp_path))

    result, status, confirmed = asyncio.run(sleeps_a_month(store))

    assert (result, status) == (["rent now placed", "rent in a month placed"], "done")
    assert [line.args for line in World(tmp_path).lines()] == [{"thing": "rent now"}, {"thing": "rent in a month"}]
    first, second = confirmed
    assert A_MONTH_MS <= second - first < A_MONTH_MS + 3_600_000
