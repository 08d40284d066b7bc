"""Large values go by reference, and come back verified."""

import pytest

import milepost as mp
from tests.runtime.stage import Stage, parked, status_of

LARGE = 300 * 1024


@mp.tool(effect="keyed", key_ttl="1h")
async def fetch(size: int) -> str:
    return "x" * size


@mp.tool(effect="read")
async def read(size: int) -> str:
    return "y" * size


@mp.workflow(version="1", tools=[fetch, read])
async def flow(run: mp.Run) -> list[int]:
    got = [await fetch(LARGE), await read(LARGE + 1)]
    await run.receive("go", int)
    return [len(text) for text in got]


async def test_a_large_result_stands_by_reference_and_is_read_back_on_reentry(stage: Stage) -> None:
    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await parked(handle, "signal")
    assert stage.rows("SELECT max(length(body)) FROM mp_journal")[0][0] < 4_096
    assert [size for (size,) in stage.rows("SELECT length(body) FROM mp_chunks ORDER BY 1")][-2:] == [
        LARGE + 2,
        LARGE + 3,
    ]
    async with stage.app(flow) as app:
        await app.send(handle.id, "go", 1)
        assert await app.handle(handle.id, flow).result(timeout="10s") == [LARGE, LARGE + 1]
        assert (await app.inspect.verify(handle.id)).damage is None


async def test_a_large_result_of_a_run_and_of_its_child_comes_back_whole(stage: Stage) -> None:
    @mp.workflow(version="1")
    async def child(run: mp.Run, n: int) -> str:
        return "z" * n

    @mp.workflow(version="1")
    async def parent(run: mp.Run, n: int) -> str:
        return await (await run.start(child, n)).result()

    async with stage.app(parent, child) as app:
        handle = await app.start(parent, LARGE)
        assert await handle.result(timeout="10s") == "z" * LARGE


async def test_a_large_state_and_input_pass_from_segment_to_segment(stage: Stage) -> None:
    grow = mp.Workflow("grow", version="1", input=list[str], result=int)

    @grow.segment
    async def turn(run: mp.Run, history: list[str]) -> mp.Next[int]:
        if len(history) > 60:
            return mp.done(sum(len(text) for text in history))
        return mp.go(turn, [*history, "t" * 10_000])

    async with stage.app(grow) as app:
        handle = await app.start(grow, ["i" * LARGE])
        assert await handle.result(timeout="20s") == LARGE + 60 * 10_000
        assert (await app.inspect.verify(handle.id)).damage is None
    stored = stage.rows("SELECT sum(length(body)) FROM mp_chunks")[0][0]
    assert isinstance(stored, int)
    assert stored < 3 * (LARGE + 60 * 10_000)  # a growing list costs its new elements, not itself


async def test_a_value_that_looks_like_a_reference_is_not_taken_for_one(stage: Stage) -> None:
    @mp.tool(effect="keyed", key_ttl="1h")
    async def odd() -> dict[str, str]:
        return {"$ref": "0" * 64}

    @mp.workflow(version="1", tools=[odd])
    async def flow_of_odd(run: mp.Run) -> dict[str, str]:
        got = await odd()
        await run.receive("go", int)
        return got

    async with stage.app(flow_of_odd) as app:
        handle = await app.start(flow_of_odd)
        await parked(handle, "signal")
        await app.send(handle.id, "go", 1)
        assert await handle.result(timeout="10s") == {"$ref": "0" * 64}


async def test_a_changed_chunk_is_noticed_and_stops_the_run(stage: Stage) -> None:
    """Requirement 48."""
    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await parked(handle, "signal")
    stage.write("DROP TRIGGER mp_chunks_no_update")
    stage.write("UPDATE mp_chunks SET body = CAST(replace(CAST(body AS TEXT), 'xxxx', 'xxxy') AS BLOB)")
    async with stage.app(flow) as app:
        await app.send(handle.id, "go", 1)
        assert (await status_of(app.handle(handle.id), "blocked", "failed")).status == "blocked"
        with pytest.raises(mp.RunBlocked, match="digest"):
            await app.handle(handle.id, flow).result(timeout="5s")
