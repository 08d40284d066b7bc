"""What mutants of the send path found: an identity that no try claimed, a late return that nobody was told of."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

import milepost as mp
from tests.runtime.policies import ALLOW, File, fields
from tests.runtime.selling import RICH, USD1, limit, stands
from tests.runtime.stage import Stage, has_entry, names, until


async def test_an_identity_is_claimed_by_whichever_try_of_a_transactional_tool_commits(stage: Stage) -> None:
    failures = [ValueError("no room")]

    @mp.tool(effect="transactional", once="order", retry=mp.Retry(3, first="1ms"))
    def book(tx: mp.Tx, order: str) -> str:
        tx.execute("CREATE TABLE IF NOT EXISTS bookings (customer_order TEXT)")
        tx.execute("INSERT INTO bookings VALUES ($1)", (order,))
        if failures:
            raise failures.pop()
        return f"booked {order}"

    @mp.workflow(version="1", name="flow", tools=[book])
    async def flow(run: mp.Run, order: str) -> str:
        return await book(order)

    async with stage.app(flow) as app:
        assert await (await app.start(flow, "o-1")).result(timeout="30s") == "booked o-1"
        assert await (await app.start(flow, "o-1")).result(timeout="30s") == "booked o-1"
        assert stage.rows("SELECT customer_order FROM bookings") == [("o-1",)]


async def test_an_attempt_that_was_said_not_to_have_happened_contradicts_the_record_when_it_returns(
    stage: Stage,
) -> None:
    go_on = [threading.Event(), threading.Event()]
    applied: list[int] = []
    hold = asyncio.Event()

    @mp.tool(timeout="100ms")
    def act(call: mp.Call) -> str:
        go_on[call.attempt - 1].wait(60)
        applied.append(call.attempt)
        return f"late {call.attempt}"

    @mp.tool(effect="read")
    async def busy() -> str:
        await hold.wait()
        return "x"

    @mp.workflow(version="1", name="flow", tools=[act, busy])
    async def flow(run: mp.Run) -> list[str]:
        return list(await run.gather(act(), busy()))  # the second arm keeps the run loaded

    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await has_entry(app, handle.id, "person_needed")
        await app.resolve(handle.id, "flow/act#1", mp.did_not_happen(), by="ann", why="not in the list")
        await has_entry(app, handle.id, "effect_started", 2)
        go_on[0].set()

        async def returned() -> bool:
            return applied == [1]

        await until(returned)
        try:
            await has_entry(app, handle.id, "contradicted")
        finally:
            go_on[1].set()
            hold.set()


class Booking:
    """A transactional tool, the first tries of which are taken back."""

    def __init__(self, times: int = 1, **options: Any) -> None:
        failures: list[Exception] = [ValueError("no room")] * times

        @mp.tool(name="book", effect="transactional", retry=mp.Retry(2, first="1ms"), **options)
        def book(tx: mp.Tx) -> str:
            if failures:
                raise failures.pop()
            return "booked"

        @mp.workflow(version="1", name="flow", tools=[book])
        async def flow(run: mp.Run) -> str:
            return await book()

        self.flow = flow


async def test_each_try_that_was_taken_back_gave_its_money_back_with_it(stage: Stage) -> None:
    flow = Booking(cost=USD1).flow
    async with stage.app(flow) as app:
        await limit(app, usd=1)
        handle = await app.start(flow, budget=RICH)

        assert await handle.result(timeout="30s") == "booked"
        assert [one.get("reserve", {}) for one in await fields(app, handle.id, "effect_started")] == [{}, {"usd": "1"}]
        assert await stands(app) == {"total ever": ("1", "0")}


@pytest.mark.parametrize("times", [0, 1])
async def test_an_approval_holds_for_the_tries_after_one_that_was_taken_back(stage: Stage, times: int) -> None:
    """Requirement 20."""
    flow = Booking(times, approval=True).flow
    async with stage.app(flow) as app:
        handle = await app.start(flow)
        (row,) = await until(lambda: app.inspect.approvals("asked"))
        await app.approve(row.id, by="ann")

        assert await handle.result(timeout="30s") == "booked"
        assert [one.get("approval") for one in await fields(app, handle.id, "effect_started")] == [
            row.id,
            *[None] * times,
        ]
        assert "approval_closed" not in await names(app, handle.id)
        assert (await names(app, handle.id)).count("approval_asked") == 1


@pytest.mark.parametrize("times", [0, 1])
async def test_a_question_that_is_not_asked_any_more_is_closed_also_where_the_try_was_taken_back(
    stage: Stage, tmp_path: Path, times: int
) -> None:
    policy = File(tmp_path / "policy.toml")
    flow = Booking(times).flow
    async with stage.app(flow, policy=policy.says("each; ask")) as app:
        handle = await app.start(flow)
        (row,) = await until(lambda: app.inspect.approvals("asked"))
        policy.says(ALLOW)

        assert await handle.result(timeout="30s") == "booked"
        told = await names(app, handle.id)
        assert told.index("approval_closed") < told.index("effect_started")
        assert told.count("effect_failed") == times
        assert [closed["id"] for closed in await fields(app, handle.id, "approval_closed")] == [row.id]
