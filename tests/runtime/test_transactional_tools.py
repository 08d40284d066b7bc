"""A transactional tool: what it writes and what is recorded of it commit together, or neither does."""

from typing import Any

import pytest

import milepost as mp
from milepost.stores import marks
from tests.runtime.stage import Stage, names, parked

TABLE = "CREATE TABLE IF NOT EXISTS bookings (customer_order TEXT)"


class Booking:
    """A tool that books an order, after raising what it was told to raise."""

    def __init__(self, *errors: Exception, **options: Any) -> None:
        self.errors = list(errors)
        self.calls = 0

        @mp.tool(name="book", effect="transactional", **options)
        def book(tx: mp.Tx, order: str) -> str:
            self.calls += 1
            tx.execute(TABLE)
            tx.execute("INSERT INTO bookings VALUES ($1)", (order,))
            if self.errors:
                raise self.errors.pop(0)
            return f"booked {order}"

        self.tool = book

    def flow(self) -> mp.Workflow[str, str]:
        @mp.workflow(version="1", name="flow", tools=[self.tool])
        async def flow(run: mp.Run, order: str) -> str:
            return str(await self.tool(order))

        return flow


async def effects(app: mp.App, run_id: str) -> list[tuple[str, dict[str, Any]]]:
    return [
        (line.name, {"at": line.at, **line.fields})
        for line in await app.inspect.journal(run_id)
        if line.name.startswith("effect_")
    ]


async def test_a_transactional_tool_that_raises_is_rolled_back_and_tried_again(stage: Stage) -> None:
    booking = Booking(ValueError("no room"), retry=mp.Retry(3, first="1ms"))
    flow = booking.flow()
    async with stage.app(flow) as app:
        handle = await app.start(flow, "o-1")
        assert await handle.result(timeout="30s") == "booked o-1"

        lines = await effects(app, handle.id)
        assert [name for name, _ in lines] == [
            "effect_started", "effect_failed", "effect_started", "effect_confirmed",
        ]  # fmt: skip
        assert [fields["attempt"] for _, fields in lines] == [1, 1, 2, 2]
        assert ["plan" in fields for name, fields in lines if name == "effect_started"] == [True, False]
        failed = lines[1][1]
        assert (failed["reason"], failed["final"], failed["why"]) == ("rejected", False, "ValueError: no room")
        assert failed["retry_at"] >= failed["at"]
        assert stage.rows("SELECT customer_order FROM bookings") == [("o-1",)]


async def test_a_transactional_tool_that_keeps_raising_fails_after_its_tries(stage: Stage) -> None:
    booking = Booking(*[ValueError("no room")] * 5, retry=mp.Retry(2, first="1ms"))
    flow = booking.flow()
    async with stage.app(flow) as app:
        handle = await app.start(flow, "o-1")
        with pytest.raises(mp.RunFailed, match="no room"):
            await handle.result(timeout="30s")

        assert booking.calls == 2
        lines = await effects(app, handle.id)
        last = lines[-1][1]
        assert (last["attempt"], last["final"], last.get("retry_at")) == (2, True, None)
        assert ["plan" in fields for name, fields in lines if name == "effect_started"] == [True, False]
        assert "effect_unknown" not in await names(app, handle.id)


async def test_a_transactional_tool_that_refuses_is_not_tried_again(stage: Stage) -> None:
    booking = Booking(mp.Rejected("sold out"))
    flow = booking.flow()
    async with stage.app(flow) as app:
        handle = await app.start(flow, "o-1")
        with pytest.raises(mp.RunFailed, match="sold out"):
            await handle.result(timeout="30s")

        assert booking.calls == 1
        assert (await effects(app, handle.id))[-1][1]["final"] is True


async def test_a_transactional_result_that_cannot_be_stored_takes_its_writes_back_for_good(stage: Stage) -> None:
    @mp.tool(effect="transactional")
    def book(tx: mp.Tx, order: str) -> float:
        tx.execute(TABLE)
        return float("nan")

    @mp.workflow(version="1", tools=[book])
    async def flow(run: mp.Run, order: str) -> float:
        return await book(order)

    async with stage.app(flow) as app:
        with pytest.raises(mp.RunFailed):
            await (await app.start(flow, "o-1")).result(timeout="30s")
        assert not stage.has_table("bookings")


@pytest.mark.sqlite("OR ROLLBACK is a word of its own")
async def test_a_statement_that_takes_the_whole_transaction_back_fails_the_tool_for_good(stage: Stage) -> None:
    @mp.tool(effect="transactional")
    def book(tx: mp.Tx, order: str) -> None:
        tx.execute("CREATE TABLE IF NOT EXISTS places (place TEXT PRIMARY KEY)")
        tx.execute("INSERT INTO places VALUES ($1)", (order,))
        tx.execute("INSERT OR ROLLBACK INTO places VALUES ($1)", (order,))

    @mp.workflow(version="1", tools=[book])
    async def flow(run: mp.Run, order: str) -> None:
        await book(order)

    async with stage.app(flow) as app:
        handle = await app.start(flow, "o-1")
        with pytest.raises(mp.RunFailed, match="OR ABORT"):
            await handle.result(timeout="30s")
        assert not stage.has_table("places")
        assert (await app.inspect.verify(handle.id)).damage is None


async def test_a_switch_keeps_a_transactional_tool_from_writing_until_it_is_lifted(stage: Stage) -> None:
    """Requirement 20."""
    booking = Booking()
    flow = booking.flow()
    async with stage.app(flow, still=True) as app:
        await app._operator().freeze("tool:book", by="ann", why="stock take")
        handle = await app.start(flow, "o-1")
        await parked(handle, "switch")
        assert booking.calls == 0
        await app._operator().thaw("tool:book", by="ann", why="counted")

        assert await handle.result(timeout="30s") == "booked o-1"
        assert booking.calls == 1
        assert (await names(app, handle.id)).count("effect_planned") == 1
        assert stage.rows("SELECT customer_order FROM bookings") == [("o-1",)]


async def test_a_large_transactional_result_is_there_after_a_restart(stage: Stage) -> None:
    size = 300 * 1024

    @mp.tool(effect="transactional")
    def print_invoice(tx: mp.Tx) -> str:
        return "x" * size

    @mp.workflow(version="1", tools=[print_invoice])
    async def flow(run: mp.Run) -> int:
        invoice = await print_invoice()
        await run.receive("go", int)
        return len(invoice)

    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await parked(handle, "signal")
    async with stage.app(flow) as app:
        await app.send(handle.id, "go", 1)
        assert await app.handle(handle.id, flow).result(timeout="30s") == size


@pytest.mark.sqlite("OR ROLLBACK is a word of its own")
async def test_a_statement_that_takes_all_back_at_a_second_try_is_recorded_as_the_second(stage: Stage) -> None:
    calls: list[int] = []

    @mp.tool(effect="transactional", retry=mp.Retry(3, first="1ms"))
    def book(tx: mp.Tx, order: str) -> None:
        calls.append(len(calls) + 1)
        tx.execute("CREATE TABLE IF NOT EXISTS places (place TEXT PRIMARY KEY)")
        if len(calls) == 1:
            raise ValueError("no room")
        tx.execute("INSERT INTO places VALUES ($1)", (order,))
        tx.execute("INSERT OR ROLLBACK INTO places VALUES ($1)", (order,))

    @mp.workflow(version="1", tools=[book])
    async def flow(run: mp.Run, order: str) -> None:
        await book(order)

    async with stage.app(flow) as app:
        handle = await app.start(flow, "o-1")
        with pytest.raises(mp.RunFailed, match="OR ABORT"):
            await handle.result(timeout="30s")

        lines = await effects(app, handle.id)
        assert [(name, fields["attempt"], "plan" in fields) for name, fields in lines] == [
            ("effect_started", 1, True), ("effect_failed", 1, False),
            ("effect_started", 2, False), ("effect_failed", 2, False),
        ]  # fmt: skip


@pytest.mark.parametrize("when", ["as it begins", "while it works"])
async def test_a_stop_file_that_comes_when_it_is_at_work_takes_all_of_it_back_until_it_is_lifted(
    stage: Stage, when: str
) -> None:
    """Requirement 66. What is looked at before the transaction is not looked at in it."""
    place, calls = stage.local, list[str]()

    def stops(_: object) -> bool:
        marks.stop(place, marks.Stop("ann", "a test", 1))
        return False

    @mp.tool(effect="transactional", name="book", approval=stops if when == "as it begins" else False)
    def book(tx: mp.Tx, order: str) -> str:
        calls.append(order)
        tx.execute(TABLE)
        tx.execute("INSERT INTO bookings VALUES ($1)", (order,))
        if when == "while it works" and len(calls) == 1:
            marks.stop(place, marks.Stop("ann", "a test", 1))
        return order

    @mp.workflow(version="1", name="flow", tools=[book])
    async def flow(run: mp.Run, order: str) -> str:
        return await book(order)

    async with stage.app(flow) as app:
        handle = await app.start(flow, "o-1")
        assert (await parked(handle, "switch")).ask == "milepost stop --lift --why …"
        assert len(calls) == (0 if when == "as it begins" else 1)
        assert await effects(app, handle.id) == []
        assert not stage.has_table("bookings")
        if when == "as it begins":
            await app.kill(handle.id, why="it would stop again")
        marks.lift(place)
        if when == "while it works":
            assert await handle.result(timeout="30s") == "o-1"
            assert stage.rows("SELECT * FROM bookings") == [("o-1",)]
