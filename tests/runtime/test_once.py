"""`once=` names a business identity for which no run starts the tool twice."""

import pytest

import milepost as mp
from tests.runtime.stage import Stage, parked, status_of


class Bank:
    """A bank: what it was asked to charge, and how it answers next."""

    def __init__(self) -> None:
        self.charged: list[tuple[str, int]] = []
        self.answer: Exception | None = None


@pytest.fixture
def bank() -> Bank:
    return Bank()


def payment(bank: Bank) -> mp.Workflow[tuple[str, int], str]:
    @mp.tool(effect="keyed", once="order")
    async def charge(order: str, cents: int) -> str:
        if bank.answer is not None and isinstance(bank.answer, mp.Rejected):
            raise bank.answer
        bank.charged.append((order, cents))
        if bank.answer is not None:
            raise bank.answer
        return f"receipt {order}"

    flow = mp.Workflow("pay", version="1", input=tuple[str, int], result=str, tools=[charge])

    @flow.segment
    async def only(run: mp.Run, given: tuple[str, int]) -> mp.Next[str]:
        return mp.done(await charge(*given))

    return flow


async def test_a_second_run_gets_the_recorded_outcome_and_sends_nothing(stage: Stage, bank: Bank) -> None:
    """Requirement 47. Requirement 19."""
    flow = payment(bank)
    async with stage.app(flow) as app:
        one = await app.start(flow, ("o-1", 100))
        assert await one.result(timeout="30s") == "receipt o-1"
        two = await app.start(flow, ("o-1", 100))
        assert await two.result(timeout="30s") == "receipt o-1"
        assert bank.charged == [("o-1", 100)]
        line = next(line for line in await app.inspect.journal(two.id) if line.name == "effect_confirmed")
        assert line.fields["by"] == "once"
        assert one.id in line.fields["why"]


async def test_another_value_is_another_identity(stage: Stage, bank: Bank) -> None:
    flow = payment(bank)
    async with stage.app(flow) as app:
        await (await app.start(flow, ("o-1", 100))).result(timeout="30s")
        await (await app.start(flow, ("o-2", 100))).result(timeout="30s")
        assert bank.charged == [("o-1", 100), ("o-2", 100)]


async def test_another_tenant_has_identities_of_its_own(stage: Stage, bank: Bank) -> None:
    flow = payment(bank)
    async with stage.app(flow) as app:
        for tenant in ("acme", "globex"):
            authority = mp.Authority("bot", tenant=tenant)
            await (await app.start(flow, ("o-1", 100), authority=authority)).result(timeout="30s")
        assert bank.charged == [("o-1", 100)] * 2


async def test_a_second_run_parks_while_the_first_is_unknown_and_takes_over_what_it_becomes(
    stage: Stage, bank: Bank
) -> None:
    flow = payment(bank)
    bank.answer = RuntimeError("line broke")
    async with stage.app(flow) as app:
        one = await app.start(flow, ("o-1", 100))
        await parked(one, "unknown")
        two = await app.start(flow, ("o-1", 100))
        await parked(two, "unknown")
        assert bank.charged == [("o-1", 100)]
        await app.resolve(one.id, "only/charge#1", mp.happened("receipt by phone"), by="ann", why="rang the bank")
        assert await one.result(timeout="30s") == "receipt by phone"
        assert await two.result(timeout="30s") == "receipt by phone"
        assert bank.charged == [("o-1", 100)]


async def test_other_arguments_for_one_identity_are_a_conflict(stage: Stage, bank: Bank) -> None:
    flow = payment(bank)
    async with stage.app(flow) as app:
        await (await app.start(flow, ("o-1", 100))).result(timeout="30s")
        two = await app.start(flow, ("o-1", 250))
        with pytest.raises(mp.RunFailed, match="with other arguments"):
            await two.result(timeout="30s")
        assert bank.charged == [("o-1", 100)]


async def test_a_final_failure_releases_the_identity(stage: Stage, bank: Bank) -> None:
    flow = payment(bank)
    bank.answer = mp.Rejected("card stolen")
    async with stage.app(flow) as app:
        await status_of(await app.start(flow, ("o-1", 100)), "failed")
        bank.answer = None
        assert await (await app.start(flow, ("o-1", 100))).result(timeout="30s") == "receipt o-1"
        assert bank.charged == [("o-1", 100)]


async def test_an_identity_survives_the_kill_of_its_run(stage: Stage, bank: Bank) -> None:
    flow = payment(bank)
    bank.answer = RuntimeError("line broke")
    async with stage.app(flow) as app:
        one = await app.start(flow, ("o-1", 100))
        await parked(one, "unknown")
        await app.kill(one.id, why="enough")
        bank.answer = None
        two = await app.start(flow, ("o-1", 100))
        await parked(two, "unknown")
        assert bank.charged == [("o-1", 100)]


async def test_two_calls_in_one_run_share_an_identity_too(stage: Stage, bank: Bank) -> None:
    @mp.tool(effect="keyed", once=("order", "line"))
    async def charge(order: str, line: int) -> str:
        bank.charged.append((order, line))
        return f"{order}/{line}"

    @mp.workflow(version="1", tools=[charge])
    async def flow(run: mp.Run) -> list[str]:
        return list(await run.gather(charge("o-1", 1), charge("o-1", 1), charge("o-1", 2)))

    async with stage.app(flow) as app:
        assert await (await app.start(flow)).result(timeout="30s") == ["o-1/1", "o-1/1", "o-1/2"]
        assert sorted(bank.charged) == [("o-1", 1), ("o-1", 2)]


async def test_a_transactional_tool_with_an_identity_commits_once(stage: Stage) -> None:
    @mp.tool(effect="transactional", once="order")
    def book(tx: mp.Tx, order: str) -> int:
        tx.execute("CREATE TABLE IF NOT EXISTS bookings (customer_order TEXT)")
        tx.execute("INSERT INTO bookings VALUES ($1)", (order,))
        return int(tx.execute("SELECT count(*) FROM bookings")[0][0])

    @mp.workflow(version="1", tools=[book])
    async def flow(run: mp.Run, order: str) -> int:
        return await book(order)

    async with stage.app(flow) as app:
        assert await (await app.start(flow, "o-1")).result(timeout="30s") == 1
        assert await (await app.start(flow, "o-1")).result(timeout="30s") == 1
        assert await (await app.start(flow, "o-2")).result(timeout="30s") == 2
        assert stage.rows("SELECT customer_order FROM bookings") == [("o-1",), ("o-2",)]
