"""A segment is entered again from its first line, and its recorded steps answer from the record."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import milepost as mp
from tests.runtime.stage import Patience, Stage, has_entry, names, parked, status_of


class World:
    """What the tools of these tests did, and which program the segment is today."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.entered = 0


@pytest.fixture
def world() -> World:
    return World()


def tools_of(world: World) -> tuple[mp.Tool[[str], str], mp.Tool[[str], str], mp.Tool[[str], str]]:
    @mp.tool(effect="keyed", key_ttl="1h")
    async def charge(order: str) -> str:
        world.sent.append(f"charge {order}")
        return f"receipt {order}"

    @mp.tool(effect="keyed", key_ttl="1h")
    async def refund(order: str) -> str:
        world.sent.append(f"refund {order}")
        return f"refunded {order}"

    @mp.tool(effect="read")
    async def look(order: str) -> str:
        world.sent.append(f"look {order}")
        return f"seen {order}"

    return charge, refund, look


async def test_recorded_steps_answer_from_the_record_and_are_not_called_again(stage: Stage, world: World) -> None:
    """Requirement 3. Requirement 5. Requirement 19. Requirement 51. Requirement 59."""
    charge, _, look = tools_of(world)

    @mp.workflow(version="1", tools=[charge, look])
    async def flow(run: mp.Run) -> list[str]:
        world.entered += 1
        got = [await look("a"), await charge("a")]
        await run.receive("go", int)
        return [*got, await charge("b")]

    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await parked(handle, "signal")
    for times in (1, 2, 3):
        async with stage.app(flow) as app:
            await parked(app.handle(handle.id, flow), "signal")
            await app.send(handle.id, "other", 1)
            await has_entry(app, handle.id, "signal_sent", times)
    async with stage.app(flow) as app:
        await app.send(handle.id, "go", 1)
        assert await app.handle(handle.id, flow).result(timeout="30s") == ["seen a", "receipt a", "receipt b"]
        assert world.sent == ["look a", "charge a", "charge b"]
        assert world.entered >= 4


async def test_recorded_failures_are_raised_identically_on_reentry(stage: Stage, world: World) -> None:
    seen = []

    @mp.tool
    async def charge(order: str) -> str:
        world.sent.append(order)
        raise mp.Rejected("no such card")

    @mp.workflow(version="1", tools=[charge])
    async def flow(run: mp.Run) -> None:
        try:
            await charge("a")
        except mp.StepFailed as failed:
            seen.append((type(failed), failed.path, failed.why))
        await run.receive("go", int)

    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await parked(handle, "signal")
        await app.send(handle.id, "go", 1)
        await handle.result(timeout="30s")
        assert seen == [(mp.StepFailed, "flow/charge#1", "no such card")] * 2
        assert world.sent == ["a"]


Body = Callable[[mp.Run], Coroutine[Any, Any, str]]


def deployed(body: Body, *tools: mp.Tool[..., Any]) -> mp.Workflow[None, str]:
    """Return the workflow `flow` as a deployment that runs this body."""

    @mp.workflow(version="1", tools=tools)
    async def flow(run: mp.Run) -> str:
        return await body(run)

    return flow


async def diverge(stage: Stage, before: Body, after: Body, *tools: mp.Tool[..., Any]) -> tuple[str, str]:
    """Run `before` until it waits for a signal, go on with `after`; return why it is blocked, and the ask."""
    old, new = deployed(before, *tools), deployed(after, *tools)
    async with stage.app(old) as app:
        handle = await app.start(old)
        await parked(handle, "signal")
    async with stage.app(new) as app:
        handle = app.handle(handle.id, new)
        await app.send(handle.id, "go", 1)
        with pytest.raises(mp.RunBlocked) as blocked:
            await handle.result(timeout="30s")
        assert blocked.value.reason == "diverged"
        view = await handle.status()
        assert view.status == "blocked"
        assert view.waiting is not None
        return str(blocked.value), view.waiting.ask


async def test_another_tool_at_a_recorded_place_blocks_before_anything_new_is_sent(stage: Stage, world: World) -> None:
    """Requirement 40. Requirement 57. The message names both sides."""
    charge, refund, _ = tools_of(world)

    async def before(run: mp.Run) -> str:
        await charge("a")
        await run.receive("go", int)
        return "ok"

    async def after(run: mp.Run) -> str:
        await refund("a")
        await run.receive("go", int)
        return "ok"

    why, _ = await diverge(stage, before, after, charge, refund)
    assert "a call of charge" in why
    assert "a call of refund" in why
    assert world.sent == ["charge a"]


async def test_other_arguments_at_a_recorded_place_block(stage: Stage, world: World) -> None:
    charge, _, _ = tools_of(world)

    async def before(run: mp.Run) -> str:
        await charge("a")
        await run.receive("go", int)
        return "ok"

    async def after(run: mp.Run) -> str:
        await charge("b")
        await run.receive("go", int)
        return "ok"

    why, _ = await diverge(stage, before, after, charge)
    assert "digest" in why
    assert world.sent == ["charge a"]


async def test_other_arguments_of_a_recorded_read_block_too(stage: Stage, world: World) -> None:
    _, _, look = tools_of(world)

    async def before(run: mp.Run) -> str:
        await look("a")
        await run.receive("go", int)
        return "ok"

    async def after(run: mp.Run) -> str:
        await look("b")
        await run.receive("go", int)
        return "ok"

    await diverge(stage, before, after, look)
    assert world.sent == ["look a"]


async def test_a_sleep_where_a_tool_stood_blocks(stage: Stage, world: World) -> None:
    charge, _, _ = tools_of(world)

    async def before(run: mp.Run) -> str:
        await charge("a")
        await run.receive("go", int)
        return "ok"

    async def after(run: mp.Run) -> str:
        await run.sleep("1ms")
        await run.receive("go", int)
        return "ok"

    await diverge(stage, before, after, charge)


async def test_a_segment_that_ends_without_a_recorded_effect_blocks(stage: Stage, world: World) -> None:
    charge, _, _ = tools_of(world)

    async def before(run: mp.Run) -> str:
        await charge("a")
        await run.receive("go", int)
        return "ok"

    async def after(run: mp.Run) -> str:
        return "ok"

    why, ask = await diverge(stage, before, after, charge)
    assert "flow/charge#1" in why
    assert "milepost" in ask


async def test_no_new_effect_is_sent_while_a_recorded_one_is_not_asked_for(stage: Stage, world: World) -> None:
    """The new call stands at a free place, but a recorded effect is still unclaimed: it waits, then diverges."""
    charge, refund, _ = tools_of(world)

    async def before(run: mp.Run) -> str:
        await run.gather(charge("a"), charge("b"))
        await run.receive("go", int)
        return "ok"

    async def only(order: str) -> str:
        return await charge(order)

    async def after(run: mp.Run) -> str:
        await run.gather(only("x"), only("y"), only("z"))
        await run.receive("go", int)
        return "ok"

    await diverge(stage, before, after, charge, refund)
    assert sorted(world.sent) == ["charge a", "charge b"]


async def test_a_new_effect_waits_until_its_sibling_has_claimed_what_is_recorded(stage: Stage, world: World) -> None:
    """The barrier is no divergence where every recorded effect is asked for in the end."""
    charge, refund, look = tools_of(world)
    gate = asyncio.Event()
    gate.set()

    async def slow_arm(run: mp.Run) -> str:
        await look("a")
        await gate.wait()
        return await charge("a")

    async def waiting_arm(run: mp.Run) -> str:
        await run.receive("go", int)
        return await refund("b")

    @mp.workflow(version="1", tools=[charge, refund, look])
    async def flow(run: mp.Run) -> str:
        both = await run.gather(slow_arm(run), waiting_arm(run))
        return " ".join(both)

    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await parked(handle, "signal")
        gate.clear()
        await app.send(handle.id, "go", 1)
        for _ in range(20):
            await asyncio.sleep(0.01)
        assert world.sent == ["look a", "charge a"]
        gate.set()
        assert await handle.result(timeout="30s") == "receipt a refunded b"
        assert world.sent == ["look a", "charge a", "refund b"]


async def test_a_diverged_run_goes_on_when_the_old_code_is_back(stage: Stage, world: World) -> None:
    charge, refund, _ = tools_of(world)

    async def before(run: mp.Run) -> str:
        got = await charge("a")
        await run.receive("go", int)
        return got

    async def after(run: mp.Run) -> str:
        return await refund("a")

    await diverge(stage, before, after, charge, refund)
    old = deployed(before, charge, refund)
    async with stage.app(old) as app:
        run_id = await app.inspect.id("")
        await app.resume(run_id, by="bo", why="old code deployed")
        await status_of(app.handle(run_id, old), "done")
        assert await app.handle(run_id, old).result(timeout="30s") == "receipt a"
    assert world.sent == ["charge a"]


async def test_now_random_and_uuid_are_the_same_again_on_reentry(stage: Stage) -> None:
    seen = []

    @mp.workflow(version="1")
    async def flow(run: mp.Run) -> None:
        seen.append((run.now(), run.random(), run.uuid(), run.uuid()))
        await run.receive("go", int)

    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await parked(handle, "signal")
    async with stage.app(flow) as app:
        await app.send(handle.id, "go", 1)
        await app.handle(handle.id, flow).result(timeout="30s")
    assert len(seen) == 2
    assert seen[0] == seen[1]
    assert seen[0][0].tzinfo is not None
    assert seen[0][2] != seen[0][3]


async def test_a_cancelled_read_is_recorded_and_waits_to_be_cancelled_again(stage: Stage, world: World) -> None:
    """What the segment decided because it ran out of patience must come out the same when it is entered again."""
    branches = []
    patience = Patience()

    @mp.tool(effect="read")
    async def slow() -> str:
        world.sent.append("slow")
        if len(world.sent) == 1:
            patience.ends()
            await asyncio.Event().wait()
        return "an answer"

    @mp.workflow(version="1", tools=[slow])
    async def flow(run: mp.Run) -> None:
        try:
            async with asyncio.timeout(0.1) if world.sent else patience.limit():
                branches.append(await slow())
        except TimeoutError:
            branches.append("gave up")
        await run.receive("go", int)

    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await parked(handle, "signal")
        assert "read_cancelled" in await names(app, handle.id)
        await app.send(handle.id, "go", 1)
        await handle.result(timeout="30s")
        assert branches == ["gave up", "gave up"]
        assert world.sent == ["slow"]


async def test_a_model_answer_is_recorded_before_what_it_chose_is_planned(stage: Stage, world: World) -> None:
    """Requirement 38. On re-entry no model is asked again, so it cannot choose otherwise."""
    charge, refund, _ = tools_of(world)
    answers = iter(["charge", "refund", "refund"])

    @mp.tool(effect="read")
    async def model(text: str) -> str:
        return next(answers)

    @mp.workflow(version="1", tools=[model, charge, refund])
    async def flow(run: mp.Run) -> str:
        chosen = await model("what now?")
        got = await (charge if chosen == "charge" else refund)("a")
        await run.receive("go", int)
        return got

    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await parked(handle, "signal")
        seen = await names(app, handle.id)
        assert seen.index("read_returned") < seen.index("effect_started")
        await app.send(handle.id, "go", 1)
        assert await handle.result(timeout="30s") == "receipt a"
        assert world.sent == ["charge a"]


async def test_plan_says_what_is_next_without_doing_it(stage: Stage, world: World) -> None:
    """Requirement 38. Requirement 22. The decision is a function of the record, printed twice the same."""
    charge, _, _ = tools_of(world)

    @mp.workflow(version="1", tools=[charge])
    async def flow(run: mp.Run) -> str:
        return await charge("a")

    app = stage.app(flow)
    async with app.client():
        handle = await app.start(flow)
        one, two = await app.plan(handle.id), await app.plan(handle.id)
        assert one == two
        assert "Enter(segment='flow')" in repr(one.perform)
        assert (await handle.status()).status == "ready"
        assert world.sent == []
    async with stage.app(flow) as driving:
        await status_of(driving.handle(handle.id, flow), "done")
