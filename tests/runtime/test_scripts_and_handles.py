"""`app.run` for scripts, and handles for everybody who waits."""

import asyncio
import threading
from pathlib import Path

import pytest

import milepost as mp
from milepost.stores.api import Query
from tests.runtime.stage import Stage, parked, status_of, until


@mp.workflow(version="1")
async def napper(run: mp.Run, n: int) -> int:
    await run.sleep("50ms")
    return n * 2


@mp.workflow(version="1")
async def leader(run: mp.Run, n: int) -> int:
    return await (await run.start(napper, n)).result()


@mp.workflow(version="1")
async def waiter(run: mp.Run) -> int:
    return await run.receive("number", int)


def test_a_script_runs_a_workflow_to_its_result_and_waits_for_time_and_children(stage: Stage) -> None:
    app = stage.app(napper, leader)
    assert app.run(napper, 21) == 42
    assert app.run(leader, 4, key="k") == 8
    assert app.run(leader, 4, key="k") == 8


def test_a_script_leaves_other_runs_alone(stage: Stage) -> None:
    entered = []

    @mp.workflow(version="1")
    async def flow(run: mp.Run, n: int) -> int:
        entered.append(n)
        return n

    app = stage.app(flow)

    async def start_another() -> str:
        async with app.client():
            return (await app.start(flow, 1)).id

    asyncio.run(start_another())
    assert app.run(flow, 2) == 2
    assert entered == [2]


def test_a_script_is_told_what_to_type_where_only_a_person_helps(stage: Stage) -> None:
    sent = []

    @mp.tool(approval=True)
    async def publish(text: str) -> str:
        sent.append(text)
        return "up"

    @mp.workflow(version="1", tools=[publish])
    async def flow(run: mp.Run) -> str:
        return await publish("news")

    app = stage.app(flow)
    with pytest.raises(mp.NeedsPerson, match="milepost approve ap-") as needs:
        app.run(flow, key="k")
    assert needs.value.waiting.reason == "approval"

    async def approve() -> None:
        async with app.client():
            await app.approve((await app.inspect.approvals())[0].id, by="ann")

    asyncio.run(approve())
    assert app.run(flow, key="k") == "up"
    assert sent == ["news"]


def test_a_script_is_told_of_a_person_that_its_child_needs(stage: Stage) -> None:
    @mp.tool
    async def mail(to: str) -> str:
        raise RuntimeError("line broke")

    @mp.workflow(version="1", tools=[mail])
    async def child(run: mp.Run) -> str:
        return await mail("ann")

    @mp.workflow(version="1")
    async def parent(run: mp.Run) -> str:
        return await (await run.start(child)).result()

    with pytest.raises(mp.NeedsPerson, match="milepost resolve") as needs:
        stage.app(parent, child).run(parent)
    assert needs.value.waiting.reason == "unknown"


def test_a_script_sees_how_a_run_ended_otherwise(stage: Stage) -> None:
    @mp.workflow(version="1")
    async def broken(run: mp.Run) -> int:
        raise ValueError("bad")

    with pytest.raises(mp.RunFailed, match="bad"):
        stage.app(broken).run(broken)


def test_a_scripts_patience_ends_and_the_run_goes_on(stage: Stage) -> None:
    app = stage.app(waiter)
    with pytest.raises(mp.TookTooLong) as late:
        app.run(waiter, key="k", timeout="200ms")

    async def send() -> None:
        async with app.client():
            await app.send(late.value.run_id, "number", 5)

    asyncio.run(send())
    assert app.run(waiter, key="k") == 5


def test_a_script_waits_for_a_signal_that_somebody_else_sends(stage: Stage) -> None:
    app, other = stage.app(waiter), stage.app(waiter)

    async def send() -> None:
        async with other.client():
            found = await until(lambda: other.inspect.runs(Query()))
            await other.send(found[0].id, "number", 6)

    sender = threading.Thread(target=lambda: asyncio.run(send()))
    sender.start()
    assert app.run(waiter) == 6
    sender.join()


async def test_a_client_never_drives(stage: Stage) -> None:
    app = stage.app(napper)
    async with app.client() as client:
        handle = await client.start(napper, 1)
        for _ in range(20):
            await asyncio.sleep(0.01)
        assert (await handle.status()).status == "ready"
        assert await client.inspect.workers() == []
    async with stage.app(napper) as driving:
        assert await driving.handle(handle.id, napper).result(timeout="30s") == 2


async def test_a_client_sees_the_result_that_another_process_made(stage: Stage) -> None:
    app, other = stage.app(napper), stage.app(napper)
    async with app, other.client():
        handle = await other.start(napper, 3)
        assert await handle.result(timeout="30s") == 6


async def test_a_handle_s_patience_ends_and_the_run_goes_on(stage: Stage) -> None:
    async with stage.app(waiter) as app:
        handle = await app.start(waiter)
        with pytest.raises(mp.TookTooLong):
            await handle.result(timeout="50ms")
        await app.send(handle.id, "number", 1)
        assert await handle.result(timeout="30s") == 1


async def test_a_handle_shows_status_state_and_what_is_waited_for(stage: Stage) -> None:
    """Requirement 22. Current stage, what waits and why are fields that anybody can ask for."""
    flow = mp.Workflow("flow", version="1", input=dict[str, int], result=int)

    @flow.segment
    async def first(run: mp.Run, state: dict[str, int]) -> mp.Next[int]:
        return mp.go(second, [state["a"], 2])

    @flow.segment
    async def second(run: mp.Run, state: list[int]) -> mp.Next[int]:
        return mp.done(sum(state) + await run.receive("more", int))

    async with stage.app(flow) as app:
        handle = await app.start(flow, {"a": 1})
        waiting = await parked(handle, "signal")
        view = await handle.status()
        assert (view.id, view.state, view.status, view.waiting) == (handle.id, [1, 2], "parked", waiting)
        assert (await app.inspect.detail(handle.id)).stage == "second"
        await app.send(handle.id, "more", 3)
        assert await app.handle(handle.id).result(timeout="30s") == 6


async def test_a_handle_of_no_run_says_so(stage: Stage) -> None:
    async with stage.app(napper) as app:
        with pytest.raises(mp.UnknownRun):
            await app.handle("nobody").status()
        with pytest.raises(mp.UnknownRun):
            await app.handle("nobody").result(timeout="1s")


async def test_an_app_that_is_not_open_says_so_and_one_is_opened_once(stage: Stage) -> None:
    app = stage.app(napper)
    with pytest.raises(mp.InvalidDeclaration, match="async with"):
        await app.start(napper, 1)
    async with app:
        with pytest.raises(mp.InvalidDeclaration, match="open already"):
            async with app:
                raise AssertionError("never entered")
        handle = await app.start(napper, 1)
        await status_of(handle, "done")


def test_an_app_opens_nothing_until_it_is_entered(tmp_path: Path) -> None:
    mp.App(f"sqlite:///{tmp_path}/none.db", workflows=[napper])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("attached", [False, True])
def test_a_tool_that_promises_to_be_asked_and_registers_nobody_to_ask_is_refused(*, attached: bool) -> None:
    """Its lost answers would be nobody's to find out, and it says otherwise."""

    @mp.tool(effect="queryable")
    async def ship(order: str) -> None: ...

    @mp.workflow(version="1", tools=[ship])
    async def shipping(run: mp.Run, order: str) -> None: ...

    with pytest.raises(mp.InvalidDeclaration, match="no reconciler"):
        mp.App("sqlite:///never.db", **({"tools": [ship]} if attached else {"workflows": [shipping]}))
