"""Group commit: a refusal concerns its own append, a failed commit stops everything."""

import asyncio

import pytest

import milepost as mp
from tests.runtime.stage import Stage, until


class Outside:
    def __init__(self) -> None:
        self.sent: list[int] = []
        self.answers = asyncio.Event()


def flow_over(outside: Outside) -> mp.Workflow[int, int]:
    @mp.tool(effect="keyed", key_ttl="1h")
    async def act(n: int) -> int:
        outside.sent.append(n)
        await outside.answers.wait()
        return n

    @mp.workflow(version="1", tools=[act])
    async def flow(run: mp.Run, n: int) -> int:
        return await act(n) + await act(n + 100)

    return flow


async def all_sent(outside: Outside, count: int) -> None:
    async def ask() -> bool:
        return len(outside.sent) >= count

    await until(ask, f"{count} are in flight")


async def test_one_refusal_does_not_disturb_the_others_of_its_batch(stage: Stage) -> None:
    """Twenty runs answer in the same moment; one of them was killed meanwhile."""
    outside = Outside()
    flow = flow_over(outside)
    async with stage.app(flow) as app:
        handles = [await app.start(flow, n) for n in range(20)]
        await all_sent(outside, 20)
        operator = stage.app(flow)
        async with operator.client():
            await operator.kill(handles[7].id, why="this one")
        outside.answers.set()
        for n, handle in enumerate(handles):
            if n == 7:
                with pytest.raises(mp.RunKilled):
                    await handle.result(timeout="30s")
            else:
                assert await handle.result(timeout="30s") == 2 * n + 100
            assert (await app.inspect.verify(handle.id)).damage is None
    assert 107 not in outside.sent


async def test_many_runs_share_their_commits(stage: Stage) -> None:
    """What durability costs is bounded by group commit."""
    outside = Outside()
    outside.answers.set()
    flow = flow_over(outside)
    async with stage.app(flow) as app:
        handles = [await app.start(flow, n) for n in range(40)]
        before = app._need_engine().writer.commits
        for handle in handles:
            await handle.result(timeout="30s")
        assert app._need_engine().writer.commits - before < 40 * 4


@pytest.mark.sqlite("its own connection is made to fail")
async def test_a_failed_commit_stops_everything_and_a_new_process_reads_back(stage: Stage) -> None:
    """Requirement 18. Nobody knows what was written, so nothing more is sent from here."""
    outside = Outside()
    flow = flow_over(outside)
    handles: list[mp.Handle[int]] = []
    with pytest.raises(mp.StoreError):
        await fill_the_disk(stage, outside, flow, handles)
    assert sorted(outside.sent) == [0, 1, 2]
    async with stage.app(flow) as app:
        for n, handle in enumerate(handles):
            assert await app.handle(handle.id, flow).result(timeout="30s") == 2 * n + 100
            assert (await app.inspect.verify(handle.id)).damage is None


async def fill_the_disk(
    stage: Stage, outside: Outside, flow: mp.Workflow[int, int], handles: list[mp.Handle[int]]
) -> None:
    """Start three runs and let the file have no further page while their calls are in flight."""
    async with stage.app(flow) as app:
        handles.extend([await app.start(flow, n) for n in range(3)])
        await all_sent(outside, 3)
        engine = app._need_engine()
        writer = engine.store._writer  # type: ignore[attr-defined]
        pages = writer.execute("PRAGMA page_count").fetchall()[0][0]
        writer.execute(f"PRAGMA max_page_count = {pages}").fetchall()
        engine.emit(handles[0].id, {"fill": "x" * 100_000})
        outside.answers.set()
        with pytest.raises(mp.StoreFailed):
            await handles[0].result(timeout="30s")
        with pytest.raises(mp.StoreFailed):
            await app.start(flow, 9)
