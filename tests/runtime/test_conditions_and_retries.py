"""Conditions of a segment, and entering a failed one again without undoing what it finished."""

import pytest

import milepost as mp
from tests.runtime.stage import Stage, names, parked, status_of


class World:
    def __init__(self) -> None:
        self.sent: list[str] = []
        self.works = False
        self.entered = 0


@pytest.fixture
def world() -> World:
    return World()


def charger(world: World) -> mp.Tool[[str], str]:
    @mp.tool(effect="keyed", key_ttl="1h")
    async def charge(order: str) -> str:
        world.sent.append(order)
        return f"receipt {order}"

    return charge


async def test_a_false_entry_condition_blocks_before_the_segment_is_entered(stage: Stage, world: World) -> None:
    """Requirement 1. Requirement 43. Requirement 20."""

    def positive(n: int) -> bool:
        return n > 0

    flow = mp.Workflow("flow", version="1", input=int, result=int)

    @flow.segment(requires=positive)
    async def only(run: mp.Run, n: int) -> mp.Next[int]:
        world.entered += 1
        return mp.done(n)

    async with stage.app(flow) as app:
        handle = await app.start(flow, -1)
        with pytest.raises(mp.RunBlocked) as blocked:
            await handle.result(timeout="30s")
        assert blocked.value.reason == "condition_failed"
        assert "requires=" in str(blocked.value)
        assert world.entered == 0
        assert await (await app.start(flow, 1)).result(timeout="30s") == 1


async def test_a_false_completion_condition_blocks_and_writes_no_checkpoint(stage: Stage, world: World) -> None:
    """Requirement 1. Requirement 7. Requirement 43."""
    charge = charger(world)
    flow = mp.Workflow("flow", version="1", input=int, result=str, tools=[charge])

    @flow.segment(ensures=lambda _, out: out.segment == "last" and out.state == "receipt b")
    async def first(run: mp.Run, n: int) -> mp.Next[str]:
        return mp.go(last, await charge("a"))

    @flow.segment
    async def last(run: mp.Run, got: str) -> mp.Next[str]:
        return mp.done(got)

    async with stage.app(flow) as app:
        handle = await app.start(flow, 1)
        with pytest.raises(mp.RunBlocked) as blocked:
            await handle.result(timeout="30s")
        assert blocked.value.reason == "condition_failed"
        assert "checkpointed" not in await names(app, handle.id)
        view = await handle.status()
        assert view.waiting is not None
        assert "milepost" in view.waiting.ask


async def test_a_condition_that_holds_writes_the_checkpoint(stage: Stage) -> None:
    flow = mp.Workflow("flow", version="1", input=int, result=int)

    @flow.segment(requires=lambda n: n == 1, ensures=lambda n, out: out.result == n)
    async def first(run: mp.Run, n: int) -> mp.Next[int]:
        return mp.done(n)

    async with stage.app(flow) as app:
        assert await (await app.start(flow, 1)).result(timeout="30s") == 1


async def test_a_condition_that_raises_does_not_count_as_held(stage: Stage, world: World) -> None:
    def errs(n: int) -> bool:
        raise KeyError(n)

    flow = mp.Workflow("flow", version="1", input=int, result=int)

    @flow.segment(requires=errs)
    async def first(run: mp.Run, n: int) -> mp.Next[int]:
        world.entered += 1
        return mp.done(n)

    async with stage.app(flow) as app:
        handle = await app.start(flow, 1)
        view = await status_of(handle, "blocked", "failed")
        assert view.status == "blocked"
        assert world.entered == 0


async def test_a_completion_condition_that_raises_does_not_count_as_held(stage: Stage) -> None:
    def errs(n: int, out: mp.Next[int]) -> bool:
        raise KeyError(n)

    flow = mp.Workflow("flow", version="1", input=int, result=int)

    @flow.segment(ensures=errs)
    async def first(run: mp.Run, n: int) -> mp.Next[int]:
        return mp.done(n)

    async with stage.app(flow) as app:
        handle = await app.start(flow, 1)
        assert (await status_of(handle, "blocked", "failed")).status == "blocked"
        assert "run_done" not in await names(app, handle.id)


async def test_a_segment_retry_keeps_finished_steps_and_calls_failed_ones_anew(stage: Stage, world: World) -> None:
    """Requirement 23. Requirement 63. What failed did not happen: it is a new effect with a new key."""
    charge = charger(world)
    keys = []

    @mp.tool
    async def mail(call: mp.Call, to: str) -> str:
        keys.append(call.key)
        world.sent.append(f"mail {to}")
        if len(keys) == 1:
            raise mp.Rejected("mailbox full")
        return "sent"

    flow = mp.Workflow("flow", version="1", input=int, result=str, tools=[charge, mail])

    @flow.segment(retry=mp.Retry(2, first="1ms"))
    async def first(run: mp.Run, n: int) -> mp.Next[str]:
        world.entered += 1
        got = await charge("a")
        return mp.done(f"{got}, {await mail('ann')}")

    async with stage.app(flow) as app:
        handle = await app.start(flow, 1)
        assert await handle.result(timeout="30s") == "receipt a, sent"
        assert world.sent == ["a", "mail ann", "mail ann"]
        assert world.entered == 2
        assert len(set(keys)) == 2
        assert (await names(app, handle.id)).count("segment_failed") == 1


async def test_segment_retries_are_bounded(stage: Stage, world: World) -> None:
    """Requirement 60. Requirement 68."""
    flow = mp.Workflow("flow", version="1", input=int, result=str)

    @flow.segment(retry=mp.Retry(3, first="1ms"))
    async def first(run: mp.Run, n: int) -> mp.Next[str]:
        world.entered += 1
        raise ValueError("always")

    async with stage.app(flow) as app:
        with pytest.raises(mp.RunFailed, match="always"):
            await (await app.start(flow, 1)).result(timeout="30s")
        assert world.entered == 3


async def test_a_segment_that_backs_off_does_so_over_a_restart(stage: Stage, world: World) -> None:
    """Requirement 36."""
    flow = mp.Workflow("flow", version="1", input=int, result=str)

    @flow.segment(retry=mp.Retry(3, first="10m"))
    async def first(run: mp.Run, n: int) -> mp.Next[str]:
        world.entered += 1
        if world.entered == 1:
            raise ValueError("once")
        return mp.done("ok")

    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow, 1)
        await parked(handle, "time")
    async with stage.app(flow, still=True) as app:
        handle = app.handle(handle.id, flow)
        stage.clock.advance("4m")
        await parked(handle, "time")
        assert world.entered == 1
        stage.clock.advance("6m")
        assert await handle.result(timeout="30s") == "ok"


async def test_a_person_retries_a_failed_run_and_its_finished_steps_stay(stage: Stage, world: World) -> None:
    """Requirement 23. Requirement 60. Requirement 61. Going on from a checkpoint undoes and repeats nothing outside."""
    charge = charger(world)

    @mp.tool(effect="read", retry=mp.Retry(1))
    async def look() -> str:
        if not world.works:
            raise RuntimeError("down")
        return "up"

    flow = mp.Workflow("flow", version="1", input=int, result=list[str], tools=[charge, look])

    @flow.segment
    async def first(run: mp.Run, n: int) -> mp.Next[list[str]]:
        return mp.go(second, await charge("a"))

    @flow.segment
    async def second(run: mp.Run, got: str) -> mp.Next[list[str]]:
        more = await charge("b")
        return mp.done([got, more, await look()])

    async with stage.app(flow) as app:
        handle = await app.start(flow, 1)
        await status_of(handle, "failed")
        world.works = True
        await app.retry(handle.id, by="ann", why="it is up again")
        await status_of(handle, "done")
        assert await handle.result(timeout="30s") == ["receipt a", "receipt b", "up"]
        assert world.sent == ["a", "b"]
        assert [view.outcome for view in await app.inspect.effects(handle.id)] == ["confirmed", "confirmed"]


async def test_only_a_failed_or_blocked_run_is_retried(stage: Stage) -> None:
    @mp.workflow(version="1")
    async def flow(run: mp.Run) -> int:
        return 1

    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await handle.result(timeout="30s")
        with pytest.raises(mp.WrongStatus):
            await app.retry(handle.id, by="ann")


async def test_a_code_defect_that_blocked_a_condition_is_mended_and_retried(stage: Stage, world: World) -> None:
    charge = charger(world)
    flow = mp.Workflow("flow", version="1", input=int, result=str, tools=[charge])

    @flow.segment(ensures=lambda *_: world.works)
    async def first(run: mp.Run, n: int) -> mp.Next[str]:
        return mp.done(await charge("a"))

    async with stage.app(flow) as app:
        handle = await app.start(flow, 1)
        await status_of(handle, "blocked")
        world.works = True
        await app.retry(handle.id, by="ann")
        await status_of(handle, "done")
        assert world.sent == ["a"]
