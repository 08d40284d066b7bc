"""A worker drives as many runs at once as it was told, and no more."""

import asyncio

import milepost as mp
from milepost.runtime import locks
from tests.runtime.stage import Stage, status_of

RUNS = 6


class Room:
    """Where reads overlap: how many are inside, and how many were at most."""

    def __init__(self) -> None:
        self.inside = 0
        self.most = 0
        self.two = asyncio.Event()

    def flow(self) -> mp.Workflow[int, int]:
        @mp.tool(effect="read")
        async def look(number: int) -> int:
            self.inside += 1
            self.most = max(self.most, self.inside)
            if self.inside == 2:
                self.two.set()
            await self.two.wait()  # however long the second one takes to begin
            await asyncio.sleep(0.05)
            self.inside -= 1
            return number

        @mp.workflow(version="1", name="looking", tools=[look])
        async def looking(run: mp.Run, number: int) -> int:
            return await look(number)

        return looking


async def serve_two_at_once(stage: Stage, flow: mp.Workflow[int, int], handles: list[str]) -> None:
    stop = asyncio.Event()
    serving = asyncio.get_running_loop().create_task(stage.app(flow).serve(stop, together=2, grace="5s"))
    async with stage.app(flow).client() as app:
        for run_id in handles:
            await status_of(app.handle(run_id, flow), "done")
    stop.set()
    await serving


async def started(stage: Stage, flow: mp.Workflow[int, int]) -> list[str]:
    async with stage.app(flow).client() as app:
        return [(await app.start(flow, number)).id for number in range(RUNS)]


async def test_a_worker_drives_no_more_runs_at_once_than_it_was_told(stage: Stage) -> None:
    room = Room()
    flow = room.flow()

    await serve_two_at_once(stage, flow, await started(stage, flow))

    assert room.most == 2


async def test_what_a_dead_worker_left_is_taken_over_no_faster_than_there_is_room(stage: Stage) -> None:
    """Found by the demo: every death added to what the next worker drove at once."""
    room = Room()
    flow = room.flow()
    runs = await started(stage, flow)
    async with stage.app(flow).client() as app:
        dead = f"{locks.machine(app._need_engine().store)}-1-dead"  # it has no lock file, so it is proven dead
    stage.write(
        "INSERT INTO mp_workers (id, host, pid, started_at, lease_until) VALUES (?, ?, 1, 0, ?)", dead, dead, 2**50
    )
    for run_id in runs[:4]:
        stage.write("UPDATE mp_runs SET owner = ?, due = NULL, status = 'running' WHERE id = ?", dead, run_id)

    await serve_two_at_once(stage, flow, runs)

    assert room.most == 2
