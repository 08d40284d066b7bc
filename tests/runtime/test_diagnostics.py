"""What is emitted is for people; recovery never reads it."""

import asyncio

import milepost as mp
from tests.runtime.stage import Stage, names, parked, until


@mp.tool(effect="keyed", key_ttl="1h")
async def charge(order: str) -> str:
    return f"receipt {order}"


@mp.workflow(version="1", tools=[charge])
async def chatty(run: mp.Run) -> str:
    run.progress(1, 3, "begun")
    run.emit({"said": "the whole conversation", "turn": 1})
    got = await charge("o-1")
    run.progress(2, 3)
    await run.receive("go", int)
    run.emit(object())
    return got


async def test_deleting_all_diagnostic_records_changes_nothing(stage: Stage) -> None:
    """Requirement 42. Requirement 53. Requirement 16. Requirement 58. Requirement 67.

    The run goes on from the structured record alone: no transcript is left to read.
    """
    async with stage.app(chatty) as app:
        handle = await app.start(chatty)
        await parked(handle, "signal")

        async def emitted() -> bool:
            return len(stage.rows("SELECT 1 FROM mp_events")) >= 3

        await until(emitted)
        before = await names(app, handle.id)
    stage.write("DELETE FROM mp_events")
    async with stage.app(chatty) as app:
        handle = app.handle(handle.id, chatty)
        assert (await names(app, handle.id)) == before
        await app.send(handle.id, "go", 1)
        assert await handle.result(timeout="30s") == "receipt o-1"
        assert (await app.inspect.verify(handle.id)).damage is None


async def test_events_follow_a_run_to_its_end(stage: Stage) -> None:
    async with stage.app(chatty) as app:
        handle = await app.start(chatty)
        seen = []

        async def follow() -> None:
            seen.extend([event async for event in handle.events()])

        following = asyncio.create_task(follow())
        await parked(handle, "signal")
        await app.send(handle.id, "go", 1)
        await handle.result(timeout="30s")
        await following
    kinds = [event["kind"] for event in seen]
    entries = [event["entry"].partition(".")[0] for event in seen if event["kind"] == "entry"]
    assert entries[0] == "run_created"
    assert entries[-1] == "run_done"
    assert "progress" in kinds
    said = [event["event"] for event in seen if event["kind"] == "event" and "event" in event]
    assert said == [{"said": "the whole conversation", "turn": 1}] * 2  # the segment was entered twice
    steps = [(event["done"], event["total"], event["note"]) for event in seen if event["kind"] == "progress"]
    assert steps[0] == (1, 3, "begun")


async def test_an_event_that_cannot_be_stored_never_fails_the_run(stage: Stage) -> None:
    @mp.workflow(version="1")
    async def flow(run: mp.Run) -> int:
        run.emit({"nan": float("nan"), "obj": object(), "set": {1}})
        run.emit("\ud800")
        return 1

    async with stage.app(flow) as app:
        assert await (await app.start(flow)).result(timeout="30s") == 1


async def test_a_traceback_is_kept_beside_the_record_and_not_in_it(stage: Stage) -> None:
    @mp.workflow(version="1")
    async def flow(run: mp.Run) -> int:
        secretive = "local-variable-text"
        raise ValueError(secretive[:5])

    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await until(lambda: _failed(handle))
        journal = repr(await app.inspect.journal(handle.id))
        assert "Traceback" not in journal
    assert any(b"Traceback" in row[0] for row in stage.rows("SELECT body FROM mp_events"))


async def _failed(handle: mp.Handle[int]) -> bool:
    return (await handle.status()).status == "failed"
