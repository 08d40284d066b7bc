"""Child runs: started once, awaited across restarts, and stopped with their parent."""

import pytest

import milepost as mp
from milepost.stores.api import Query
from tests.runtime.stage import Stage, has_entry, parked, status_of, until


@mp.workflow(version="1")
async def child(run: mp.Run, n: int) -> int:
    if n < 0:
        raise ValueError("below zero")
    more = await run.receive("more", int)
    return n + more


@mp.workflow(version="1")
async def parent(run: mp.Run, n: int) -> int:
    handle = await run.start(child, n)
    return await handle.result() * 2


async def child_of(app: mp.App, run_id: str) -> str:
    async def ask() -> str | None:
        found = await app.inspect.runs(Query(parent=run_id))
        return found[0].id if found else None

    return await until(ask)


async def test_a_parent_waits_for_the_result_of_its_child(stage: Stage) -> None:
    async with stage.app(parent, child) as app:
        handle = await app.start(parent, 1)
        await parked(handle, "child")
        await app.send(await child_of(app, handle.id), "more", 20)
        assert await handle.result(timeout="30s") == 42


async def test_a_child_is_started_once_however_often_the_parent_is_entered(stage: Stage) -> None:
    """Requirement 33."""
    async with stage.app(parent, child) as app:
        handle = await app.start(parent, 1)
        await parked(handle, "child")
    for times in (1, 2, 3):
        async with stage.app(parent, child) as app:
            await app.send(handle.id, "nothing", 1)
            await has_entry(app, handle.id, "signal_sent", times)
            await parked(app.handle(handle.id), "child")
            assert len(await app.inspect.runs(Query(parent=handle.id))) == 1
    async with stage.app(parent, child) as app:
        await app.send(await child_of(app, handle.id), "more", 1)
        assert await app.handle(handle.id, parent).result(timeout="30s") == 4


async def test_a_child_that_fails_fails_the_step_that_waits_for_it(stage: Stage) -> None:
    async with stage.app(parent, child) as app:
        handle = await app.start(parent, -1)
        with pytest.raises(mp.RunFailed, match="below zero"):
            await handle.result(timeout="30s")


async def test_a_parent_may_go_on_without_its_child_and_wait_in_a_later_segment(stage: Stage) -> None:
    @mp.workflow(version="1")
    async def quick(run: mp.Run, n: int) -> int:
        return n * 3

    started: list[mp.Handle[int]] = []

    @mp.workflow(version="1")
    async def lead(run: mp.Run) -> int:
        handles = [await run.start(quick, n) for n in range(3)]
        started.extend(handles)
        results = await run.gather(*[handle.result() for handle in handles])
        return sum(results)

    async with stage.app(lead, quick) as app:
        assert await (await app.start(lead)).result(timeout="30s") == 9
        assert len({handle.id for handle in started}) == 3


async def test_a_child_acts_under_the_authority_of_its_parent(stage: Stage) -> None:
    """Requirement 20. Nothing more, nothing less."""

    @mp.tool(effect="keyed", scopes=["pay"])
    async def pay() -> str:
        return "paid"

    @mp.workflow(version="1", tools=[pay])
    async def below(run: mp.Run) -> str:
        return await pay()

    @mp.workflow(version="1")
    async def above(run: mp.Run) -> str:
        return await (await run.start(below)).result()

    async with stage.app(above, below) as app:
        allowed = await app.start(above, authority=mp.Authority("bot", scopes=["pay"]))
        assert await allowed.result(timeout="30s") == "paid"
        bare = await app.start(above)
        await parked(app.handle(await child_of(app, bare.id)), "authority")


async def test_killing_a_parent_kills_its_descendants(stage: Stage) -> None:
    @mp.workflow(version="1")
    async def grandparent(run: mp.Run) -> int:
        return await (await run.start(parent, 1)).result()

    async with stage.app(grandparent, parent, child) as app:
        handle = await app.start(grandparent)
        middle = await child_of(app, handle.id)
        lowest = await child_of(app, middle)
        await parked(app.handle(lowest), "signal")
        await app.kill(handle.id, why="enough")
        for run_id in (handle.id, middle, lowest):
            assert (await app.handle(run_id).status()).status == "killed"


async def test_a_child_started_with_a_key_is_shared_and_conflicts_with_other_input(stage: Stage) -> None:
    @mp.workflow(version="1")
    async def quick(run: mp.Run, n: int) -> int:
        return n

    @mp.workflow(version="1")
    async def lead(run: mp.Run, n: int) -> int:
        return await (await run.start(quick, n, key="shared")).result()

    async with stage.app(lead, quick) as app:
        assert await (await app.start(lead, 1)).result(timeout="30s") == 1
        assert await (await app.start(lead, 1)).result(timeout="30s") == 1
        with pytest.raises(mp.RunFailed, match="shared"):
            await (await app.start(lead, 2)).result(timeout="30s")


async def test_what_is_not_recorded_of_a_child_is_refused_inside_a_run(stage: Stage) -> None:
    @mp.workflow(version="1")
    async def nosy(run: mp.Run) -> str:
        handle = await run.start(child, 1)
        return (await handle.status()).status

    async with stage.app(nosy, child) as app:
        handle = await app.start(nosy)
        assert (await status_of(handle, "failed")).status == "failed"
