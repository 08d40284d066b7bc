"""What recovery checks before anything moves, and in which order the record is written."""

import asyncio
from typing import Any

import apsw
import pytest

import milepost as mp
from milepost.runtime import driver
from tests.runtime.stage import Stage, has_entry, names, parked, status_of, until


async def test_started_is_durable_before_the_tools_code_runs_and_all_before_it_too(stage: Stage) -> None:
    """Requirement 12. Requirement 28. Requirement 13. Requirement 10. Read through another connection, from inside."""
    seen: list[tuple[list[str], list[tuple[object, ...]], str]] = []

    @mp.tool(effect="read")
    async def look(n: int) -> int:
        return n

    @mp.tool(effect="keyed", key_ttl="1h")
    async def charge(call: mp.Call, order: str) -> str:
        bodies = [str(row[0], "utf-8") for row in stage.rows("SELECT body FROM mp_journal ORDER BY row")]
        kinds = [body.partition('"entry":"')[2].partition(".")[0] for body in bodies]
        seen.append((kinds, stage.rows("SELECT path, outcome FROM mp_effects"), bodies[-1]))
        assert call.key in bodies[-1]
        return order

    @mp.workflow(version="1", tools=[look, charge])
    async def flow(run: mp.Run) -> list[str]:
        await look(1)
        return [await charge("a"), await charge("b")]

    async with stage.app(flow) as app:
        assert await (await app.start(flow)).result(timeout="30s") == ["a", "b"]
    first, second = seen
    assert first[0] == ["run_created", "claimed", "read_returned", "effect_started"]
    assert first[1] == [("flow/charge#1", "started")]
    assert second[0][4:] == ["effect_confirmed", "effect_started"]
    assert second[1] == [("flow/charge#2", "started")]


async def test_one_advance_works_off_one_unit(stage: Stage) -> None:
    """Requirement 6. Requirement 8. Requirement 63. Each call enters the segment that the last boundary names."""
    entered = []
    loop = mp.Workflow("loop", version="1", input=int, result=int)

    @loop.segment
    async def turn(run: mp.Run, n: int) -> mp.Next[int]:
        entered.append(n)
        return mp.go(turn, n - 1) if n else mp.done(0)

    app = stage.app(loop)
    async with app.client():
        handle = await app.start(loop, 3)
    await app._open(drives=True)
    try:
        engine = app._need_engine()
        for expected in ([3], [3, 2], [3, 2, 1], [3, 2, 1, 0]):
            await driver.advance(engine, handle.id, segments=1)
            assert entered == expected
        assert (await app.handle(handle.id).status()).status == "done"
        before = await names(app, handle.id)
        await driver.advance(engine, handle.id)
        assert entered == [3, 2, 1, 0]
        assert (await names(app, handle.id))[len(before) :] == ["claimed"]
    finally:
        await app._close()


@mp.tool(effect="keyed", key_ttl="1h")
async def charge(order: str) -> str:
    return f"receipt {order}"


def versioned(version: str, compatible_with: tuple[str, ...] = ()) -> mp.Workflow[None, str]:
    @mp.workflow(version=version, name="flow", tools=[charge], compatible_with=compatible_with)
    async def flow(run: mp.Run) -> str:
        got = await charge("a")
        await run.receive("go", int)
        return got

    return flow


async def test_another_version_blocks_visibly_unless_it_says_that_it_is_compatible(stage: Stage) -> None:
    """Requirement 4. Requirement 40. Requirement 57. Requirement 17."""
    old = versioned("1")
    async with stage.app(old) as app:
        handle = await app.start(old)
        await parked(handle, "signal")
    new = versioned("2")
    async with stage.app(new) as app:
        await app.send(handle.id, "go", 1)
        with pytest.raises(mp.RunBlocked, match="compatible_with") as blocked:
            await app.handle(handle.id, new).result(timeout="30s")
        assert blocked.value.reason == "incompatible"
    friendly = versioned("3", ("1", "2"))
    async with stage.app(friendly) as app:
        await app.resume(handle.id, by="ann", why="deployed a compatible version")
        await status_of(app.handle(handle.id), "done")
        assert await app.handle(handle.id, friendly).result(timeout="30s") == "receipt a"


async def test_a_run_whose_workflow_is_not_deployed_waits_for_a_worker_that_has_it(stage: Stage) -> None:
    flow = versioned("1")

    @mp.workflow(version="1")
    async def another(run: mp.Run) -> int:
        return 1

    app = stage.app(flow)
    async with app.client():
        handle = await app.start(flow)
    async with stage.app(another) as app:
        await (await app.start(another)).result(timeout="30s")
        assert (await app.handle(handle.id).status()).status == "ready"
    async with stage.app(flow) as app:
        await parked(app.handle(handle.id), "signal")


async def test_a_state_that_no_longer_fits_its_segment_blocks(stage: Stage) -> None:
    """Requirement 48. Requirement 57. Incompatible state fails visibly."""

    def of(kind: type[Any]) -> mp.Workflow[int, int]:
        flow = mp.Workflow("flow", version="1", input=int, result=int)

        @flow.segment
        async def first(run: mp.Run, n: int) -> mp.Next[int]:
            return mp.go(second, {"n": n})

        async def later(run: mp.Run, state: Any) -> mp.Next[int]:
            return mp.done(await run.receive("go", int))

        later.__annotations__["state"] = kind
        second: mp.Segment[Any, int] = flow.segment(later)
        return flow

    old = of(dict[str, int])
    async with stage.app(old) as app:
        handle = await app.start(old, 1)
        await parked(handle, "signal")
    async with stage.app(of(int)) as app:
        await app.send(handle.id, "go", 1)
        await status_of(app.handle(handle.id), "blocked")
        with pytest.raises(mp.RunBlocked, match="no longer fits"):
            await app.handle(handle.id).result(timeout="30s")


async def flip(stage: Stage, run_id: str, kind: bytes) -> None:
    """Change one byte of a stored entry behind the triggers' back, as a bad disk would."""
    connection = apsw.Connection(str(stage.path))
    connection.execute("DROP TRIGGER mp_journal_no_update").fetchall()
    sql = (
        "UPDATE mp_journal SET body = CAST(replace(CAST(body AS TEXT), '\"path\":', '\"qath\":') AS BLOB)"
        " WHERE run = (SELECT run FROM mp_runs WHERE id = ?) AND instr(body, ?)"
    )
    connection.execute(sql, (run_id, kind)).fetchall()
    assert connection.changes() == 1
    connection.close()
    await asyncio.sleep(0)


@pytest.mark.sqlite("it changes the file behind its back")
async def test_a_damaged_record_is_never_acted_upon_and_leaves_others_alone(stage: Stage) -> None:
    """Requirement 4. Requirement 15. Requirement 48. It is blocked where a person sees it, and nothing is sent."""
    flow = versioned("1")
    async with stage.app(flow) as app:
        damaged, sound = await app.start(flow), await app.start(flow)
        await parked(damaged, "signal")
        await parked(sound, "signal")
    await flip(stage, damaged.id, b"effect_started")
    async with stage.app(flow) as app:
        for handle in (damaged, sound):
            await app.send(handle.id, "go", 1)
        assert await app.handle(sound.id, flow).result(timeout="30s") == "receipt a"
        with pytest.raises(mp.Damaged):
            await app.inspect.journal(damaged.id)
        assert (await app.inspect.verify(damaged.id)).damage is not None
        assert (await app.inspect.verify(sound.id)).damage is None

        async def given_up() -> bool:
            return stage.rows("SELECT status, owner, due FROM mp_runs WHERE id = ?", damaged.id) == [
                ("blocked", None, None)
            ]

        await until(given_up)
        assert "milepost verify" in str(stage.rows("SELECT ask FROM mp_runs WHERE id = ?", damaged.id))
        claims = stage.rows("SELECT epoch FROM mp_heads JOIN mp_runs USING (run) WHERE id = ?", damaged.id)
        await app.send(damaged.id, "go", 2)
        assert claims == [(2,)]  # it is looked at once for a message, and not again and again


async def test_a_version_is_recorded_of_everything_the_run_was_made_with(stage: Stage) -> None:
    """Requirement 44. Requirement 52. Workflow, tools, prompts and segments, each with its version or digest."""
    hello = mp.prompt("hello", "You are kind.")
    flow = mp.Workflow(
        "flow", version="7", input=int, result=int, tools=[charge], prompts=[hello], models={"answers": "model-3"}
    )

    @flow.segment
    async def first(run: mp.Run, n: int) -> mp.Next[int]:
        return mp.done(n)

    async with stage.app(flow) as app:
        handle = await app.start(flow, 1)
        await handle.result(timeout="30s")
        manifest = (await app.inspect.detail(handle.id)).manifest
        assert (manifest["workflow"], manifest["version"]) == ("flow", "7")
        assert manifest["tools"]["charge"][0] == "1"
        assert manifest["prompts"]["hello"] == ["1", hello.fingerprint[:16]]
        assert manifest["segments"].keys() == manifest["states"].keys() == {"first"}
        assert manifest["models"] == {"answers": "model-3"}


async def test_a_resend_of_another_version_of_its_tool_goes_to_a_person(stage: Stage) -> None:
    """Requirement 57. The version of an effect never changes; anything else is a new effect."""
    sent = []

    def of(version: str) -> mp.Workflow[None, str]:
        @mp.tool(name="pay", version=version, effect="keyed", key_ttl="24h", compatible_with=["1"])
        async def pay(call: mp.Call) -> str:
            sent.append(version)
            raise RuntimeError("line broke")

        @mp.workflow(version="1", name="flow", tools=[pay])
        async def flow(run: mp.Run) -> str:
            return await pay()

        return flow

    old = of("1")
    async with stage.app(old, still=True) as app:
        handle = await app.start(old)
        await status_of(handle, "running", "parked")
        await has_entry(app, handle.id, "effect_unknown")
    stage.clock.advance("10s")
    async with stage.app(of("2"), still=True) as app:
        waiting = await parked(app.handle(handle.id), "unknown")
        assert "milepost resolve" in waiting.ask
        assert sent == ["1"]
