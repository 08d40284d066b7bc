"""Segments, their ends, and starting runs."""

from decimal import Decimal

import pytest

import milepost as mp
from tests.runtime.stage import Stage, names, status_of


def chain_of_two() -> mp.Workflow[int, str]:
    flow = mp.Workflow("flow", version="1", input=int, result=str)

    @flow.segment
    async def first(run: mp.Run, n: int) -> mp.Next[str]:
        return mp.go(second, {"n": n + 1})

    @flow.segment
    async def second(run: mp.Run, state: dict[str, int]) -> mp.Next[str]:
        if state["n"] > 100:
            return mp.fail("too many")
        return mp.done(f"n is {state['n']}")

    return flow


async def test_a_run_goes_from_segment_to_segment_and_ends_with_a_result(stage: Stage) -> None:
    """Requirement 1. Requirement 2. Requirement 9. Boundaries stand where the program says, and nowhere else."""
    flow = chain_of_two()
    async with stage.app(flow) as app:
        handle = await app.start(flow, 1)

        assert await handle.result(timeout="30s") == "n is 2"
        seen = await names(app, handle.id)
        assert [name for name in seen if name in {"checkpointed", "run_done"}] == ["checkpointed", "run_done"]
        assert (await handle.status()).status == "done"


async def test_a_segment_can_fail_the_run_with_a_reason(stage: Stage) -> None:
    flow = chain_of_two()
    async with stage.app(flow) as app:
        handle = await app.start(flow, 1_000)

        with pytest.raises(mp.RunFailed, match="too many"):
            await handle.result(timeout="30s")
        assert (await handle.status()).status == "failed"


async def test_a_segment_that_raises_fails_the_run_with_what_it_raised(stage: Stage) -> None:
    @mp.workflow(version="1")
    async def broken(run: mp.Run) -> int:
        raise ZeroDivisionError("by nothing")

    async with stage.app(broken) as app:
        handle = await app.start(broken)

        with pytest.raises(mp.RunFailed, match="ZeroDivisionError: by nothing"):
            await handle.result(timeout="30s")


async def test_a_segment_that_returns_no_next_fails_and_names_what_to_return(stage: Stage) -> None:
    flow = mp.Workflow("flow", version="1", input=int, result=str)

    @flow.segment
    async def first(run: mp.Run, n: int) -> mp.Next[str]:
        return "done"  # type: ignore[return-value]

    async with stage.app(flow) as app:
        handle = await app.start(flow, 1)

        with pytest.raises(mp.RunFailed, match=r"mp\.done"):
            await handle.result(timeout="30s")


async def test_a_segment_cannot_go_to_a_segment_of_another_workflow(stage: Stage) -> None:
    other = mp.Workflow("other", version="1", input=int, result=str)

    @other.segment
    async def elsewhere(run: mp.Run, n: int) -> mp.Next[str]:
        return mp.done("never")

    flow = mp.Workflow("flow", version="1", input=int, result=str)

    @flow.segment
    async def first(run: mp.Run, n: int) -> mp.Next[str]:
        return mp.go(elsewhere, n)

    async with stage.app(flow) as app:
        handle = await app.start(flow, 1)

        with pytest.raises(mp.RunFailed, match="elsewhere"):
            await handle.result(timeout="30s")


async def test_a_workflow_of_one_segment_takes_its_input_and_returns_its_result(stage: Stage) -> None:
    @mp.workflow(version="1")
    async def double(run: mp.Run, n: int) -> Decimal:
        return Decimal(n) * 2

    async with stage.app(double) as app:
        assert await (await app.start(double, 21)).result(timeout="30s") == Decimal(42)


async def test_a_workflow_without_input_is_started_without_one(stage: Stage) -> None:
    @mp.workflow(version="1")
    async def hello(run: mp.Run) -> str:
        return f"hello from {run.key}"

    async with stage.app(hello) as app:
        assert await (await app.start(hello, key="k-1")).result(timeout="30s") == "hello from k-1"


async def test_a_segment_may_go_back_to_itself_and_each_visit_has_its_own_boundary(stage: Stage) -> None:
    """Requirement 62. A loop is segments, so that each round is finished for good."""
    seen = []

    @mp.tool(effect="read")
    async def look(n: int) -> int:
        seen.append(n)
        return n

    loop = mp.Workflow("loop", version="1", input=int, result=list[str], tools=[look])

    @loop.segment
    async def turn(run: mp.Run, n: int) -> mp.Next[list[str]]:
        step = look(n)
        await step
        return mp.go(turn, n - 1) if n else mp.done([step.path])

    async with stage.app(loop) as app:
        handle = await app.start(loop, 3)

        assert await handle.result(timeout="30s") == ["turn@4/look#1"]
        assert seen == [3, 2, 1, 0]
        assert (await names(app, handle.id)).count("checkpointed") == 3


async def test_the_same_key_and_input_start_one_run(stage: Stage) -> None:
    flow = chain_of_two()
    async with stage.app(flow) as app:
        one = await app.start(flow, 1, key="ticket-1")
        await one.result(timeout="30s")
        two = await app.start(flow, 1, key="ticket-1")
        other = await app.start(flow, 1, key="ticket-2")

        assert two.id == one.id != other.id
        assert await two.result(timeout="30s") == "n is 2"


async def test_the_same_key_with_other_input_is_a_conflict(stage: Stage) -> None:
    flow = chain_of_two()

    @mp.workflow(version="1")
    async def another(run: mp.Run, n: int) -> int:
        return n

    async with stage.app(flow, another) as app:
        one = await app.start(flow, 1, key="ticket-1")

        with pytest.raises(mp.StartConflict, match="with other input") as conflict:
            await app.start(flow, 2, key="ticket-1")
        with pytest.raises(mp.StartConflict, match="of workflow 'flow'"):
            await app.start(another, 1, key="ticket-1")
        assert conflict.value.run_id == one.id


async def test_a_workflow_that_is_not_registered_cannot_be_started(stage: Stage) -> None:
    flow = chain_of_two()
    async with stage.app(flow) as app:
        with pytest.raises(mp.UnknownWorkflow, match="another"):
            await app.start(mp.workflow(version="1", name="another")(_nothing))


async def _nothing(run: mp.Run) -> None:
    return None


async def test_two_segments_with_one_tool_have_paths_that_name_them(stage: Stage) -> None:
    @mp.tool(effect="read")
    async def look(n: int) -> int:
        return n

    flow = mp.Workflow("flow", version="1", input=int, result=str, tools=[look])

    @flow.segment
    async def first(run: mp.Run, n: int) -> mp.Next[str]:
        await look(1)
        await look(2)
        return mp.go(second, n)

    @flow.segment
    async def second(run: mp.Run, n: int) -> mp.Next[str]:
        await look(3)
        return mp.done("ok")

    async with stage.app(flow) as app:
        handle = await app.start(flow, 1)
        await handle.result(timeout="30s")
        paths = [line.fields["path"] for line in await app.inspect.journal(handle.id) if line.name == "read_returned"]

        assert paths == ["first/look#1", "first/look#2", "second/look#1"]


async def test_a_checkpoint_holds_the_markers_of_the_segment_that_finished(stage: Stage) -> None:
    """Requirement 45. Requirement 52. Requirement 62. Inputs, validated outputs and markers are persisted."""

    @mp.tool(effect="keyed", key_ttl="1h", cost={"usd": Decimal("1.5")})
    async def pay(order: str) -> str:
        return f"receipt {order}"

    @mp.tool(effect="read")
    async def look(n: int) -> int:
        return n * 2

    flow = mp.Workflow("flow", version="7", input=int, result=str, tools=[look, pay])

    @flow.segment
    async def first(run: mp.Run, n: int) -> mp.Next[str]:
        await look(n)
        await pay("o-1")
        return mp.go(second, n + 1)

    @flow.segment
    async def second(run: mp.Run, n: int) -> mp.Next[str]:
        await run.receive("go", int)
        return mp.done("ok")

    async with stage.app(flow) as app:
        authority = mp.Authority("bot", scopes=["a"], tenant="acme")
        handle = await app.start(flow, 1, authority=authority, budget={"usd": 2})
        await status_of(handle, "parked")
        detail = await app.inspect.detail(handle.id)

        assert detail.stage == "second"
        assert detail.state == 2
        assert detail.finished == [("first/look#1", "confirmed"), ("first/pay#1", "confirmed")]
        assert (detail.granted, detail.spent) == ({"usd": "2"}, {"usd": "1.5"})
        assert (detail.about.authority.principal, detail.about.authority.tenant) == ("bot", "acme")
        assert detail.manifest["version"] == "7"
        assert set(detail.manifest["tools"]) == {"look", "pay"}
        boundary = next(line.fields for line in await app.inspect.journal(handle.id) if line.name == "checkpointed")
        outputs = [marker[3] for marker in boundary["boundary"]["finished"]]
        assert outputs == [2, "receipt o-1"]
