"""What mutants of the send path found: an identity that no try claimed, a late return that nobody was told of."""

import asyncio
import threading

import milepost as mp
from tests.runtime.stage import Stage, has_entry, until


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
        assert await (await app.start(flow, "o-1")).result(timeout="10s") == "booked o-1"
        assert await (await app.start(flow, "o-1")).result(timeout="10s") == "booked o-1"
        assert stage.rows("SELECT customer_order FROM bookings") == [("o-1",)]


async def test_an_attempt_that_was_said_not_to_have_happened_contradicts_the_record_when_it_returns(
    stage: Stage,
) -> None:
    go_on = [threading.Event(), threading.Event()]
    applied: list[int] = []
    hold = asyncio.Event()

    @mp.tool(timeout="100ms")
    def act(call: mp.Call) -> str:
        go_on[call.attempt - 1].wait(10)
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
