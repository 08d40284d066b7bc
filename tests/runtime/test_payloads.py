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
        assert await app.handle(handle.id, flow).result(timeout="30s") == [LARGE, LARGE + 1]
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
        assert await handle.result(timeout="30s") == "z" * LARGE


async def test_a_large_state_and_input_pass_from_segment_to_segment(stage: Stage) -> None:
    grow = mp.Workflow("grow", version="1", input=list[str], result=int)

    @grow.segment
    async def turn(run: mp.Run, history: list[str]) -> mp.Next[int]:
        if len(history) > 60:
            return mp.done(sum(len(text) for text in history))
        return mp.go(turn, [*history, "t" * 10_000])

    async with stage.app(grow) as app:
        handle = await app.start(grow, ["i" * LARGE])
        assert await handle.result(timeout="30s") == LARGE + 60 * 10_000
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
        assert await handle.result(timeout="30s") == {"$ref": "0" * 64}


@pytest.mark.sqlite("it changes the file behind its back")
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
            await app.handle(handle.id, flow).result(timeout="30s")


async def test_a_signal_and_a_persons_value_that_look_like_references_are_values(stage: Stage) -> None:
    """Whoever may send a signal must not be able to make a record look damaged."""

    @mp.tool
    async def lost() -> dict[str, str]:
        raise RuntimeError("the connection was lost")

    @mp.workflow(version="1", name="listening", tools=[lost])
    async def listening(run: mp.Run) -> list[dict[str, str]]:
        return [await run.receive("schema", dict[str, str]), await lost()]

    looks = {"$ref": "#/definitions/order"}
    async with stage.app(listening) as app:
        handle = await app.start(listening)
        await app.send(handle.id, "schema", looks)
        await parked(handle, "unknown")
        await app.resolve(handle.id, "listening/lost#1", mp.happened(looks), by="ann", why="looked")
        assert await handle.result(timeout="30s") == [looks, looks]


async def test_a_large_signal_stands_by_reference(stage: Stage) -> None:
    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await parked(handle, "signal")
        await app.send(handle.id, "other", "z" * LARGE)
        await app.send(handle.id, "go", 1)
        assert await handle.result(timeout="30s") == [LARGE, LARGE + 1]
    assert stage.rows("SELECT max(length(body)) FROM mp_journal")[0][0] < 4_096


async def test_a_transactional_result_that_looks_like_a_reference_is_a_value(stage: Stage) -> None:
    @mp.tool(effect="transactional")
    def note(tx: mp.Tx, size: int) -> dict[str, str]:
        return {"$ref": "x" * size}

    @mp.workflow(version="1", name="noting", tools=[note])
    async def noting(run: mp.Run) -> list[int]:
        return [len((await note(size))["$ref"]) for size in (3, LARGE)]

    async with stage.app(noting) as app:
        assert await (await app.start(noting)).result(timeout="30s") == [3, LARGE]


async def test_a_large_outcome_of_one_identity_is_taken_over_by_another_run(stage: Stage) -> None:
    sent: list[str] = []

    @mp.tool(effect="keyed", key_ttl="1h", once="order")
    async def print_invoice(order: str) -> str:
        sent.append(order)
        return order * LARGE

    @mp.workflow(version="1", name="invoicing", tools=[print_invoice])
    async def invoicing(run: mp.Run) -> int:
        return len(await print_invoice("a"))

    async with stage.app(invoicing) as app:
        for _ in range(2):
            assert await (await app.start(invoicing)).result(timeout="30s") == LARGE
    assert sent == ["a"]
