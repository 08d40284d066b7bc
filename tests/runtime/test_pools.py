"""Budgets that runs share, as runs meet them: parked and asking, never overspent, right again after a crash."""

import logging
from decimal import Decimal

import pytest

import milepost as mp
from milepost.operations.budgets import pools
from tests.runtime.policies import fields
from tests.runtime.selling import BOT, RICH, USD1, Shop, buying, limit, stands
from tests.runtime.stage import Stage, names, parked, status_of, until


@pytest.fixture
def shop() -> Shop:
    return Shop()


async def test_a_shared_budget_that_is_spent_parks_and_a_higher_ceiling_lets_the_run_go_on(
    stage: Stage, shop: Shop
) -> None:
    """Requirement 72. Requirement 83. It says what to type; nothing is lost."""
    flow = buying(shop.tool())
    async with stage.app(flow) as app:
        await limit(app, "tenant:acme", usd=2)
        first = await app.start(flow, ["a", "b"], authority=BOT, budget=RICH)
        await first.result(timeout="30s")
        second = await app.start(flow, ["c"], authority=BOT, budget=RICH)
        waiting = await parked(second, "budget")
        assert waiting.ask == "milepost budget set tenant:acme usd=3 --why …"
        assert shop.sold == ["a", "b"]
        assert [(f.path, f.outcome) for f in await app.inspect.open_effects()] == [("flow/buy#1", "not_started")]
        assert await stands(app) == {"tenant:acme ever": ("2", "0")}
        assert await limit(app, "tenant:acme", usd=3) == 1
        assert await second.result(timeout="30s") == ["c sold"]
        other = await app.start(flow, ["d"], authority=mp.Authority("bot", tenant="other"), budget=RICH)
        assert await other.result(timeout="30s") == ["d sold"]


async def test_a_pool_does_not_pay_for_a_run_that_was_granted_nothing(stage: Stage, shop: Shop) -> None:
    """Requirement 72. Spending by itself is zero until somebody grants it, however much a pool may spend."""
    flow = buying(shop.tool())
    async with stage.app(flow) as app:
        await limit(app, usd=1_000)
        handle = await app.start(flow, ["a"])
        assert (await parked(handle, "budget")).ask == f"milepost grant {handle.id} --budget usd=1"
        assert shop.sold == []


async def test_a_budget_at_zero_grants_nothing_whatever_is_asked(stage: Stage, shop: Shop) -> None:
    """Requirement 72. The hole: a reservation that is cut down to what is left, and so is granted at zero."""
    flow = buying(shop.tool(cost={"usd": Decimal("0.01")}))
    async with stage.app(flow) as app:
        await limit(app, usd=0)
        await parked(await app.start(flow, ["a"], budget=RICH), "budget")
        assert (shop.sold, await stands(app)) == ([], {"total ever": ("0", "0")})


@pytest.mark.parametrize("amount", [None, "5", 0.5, -1, Decimal("NaN")])
async def test_a_missing_amount_is_no_amount_of_zero(stage: Stage, shop: Shop, amount: object) -> None:
    """Requirement 72. The hole: a call without a recognised amount counts as within every limit."""
    tool = shop.tool(cost=None)

    @tool.cost
    def _(what: str) -> dict[str, Decimal]:
        return {"usd": amount}  # type: ignore[dict-item]

    flow = buying(tool)
    async with stage.app(flow) as app:
        await limit(app, usd=1_000)
        await status_of(await app.start(flow, ["a"], budget=RICH), "failed", "blocked")
        assert (shop.sold, await stands(app)) == ([], {"total ever": ("0", "0")})


async def test_what_was_spent_is_known_to_the_next_process_and_a_ceiling_that_was_lowered_holds_there(
    stage: Stage, shop: Shop
) -> None:
    """Requirement 83. The hole: counters in memory, which never survive."""
    flow = buying(shop.tool())
    async with stage.app(flow) as app:
        await limit(app, usd=10)
        await (await app.start(flow, ["a", "b", "c"], budget=RICH)).result(timeout="30s")
    async with stage.app(flow) as app:
        await limit(app, usd=2)
    async with stage.app(flow) as app:
        handle = await app.start(flow, ["d"], budget=RICH)
        assert (await parked(handle, "budget")).ask == "milepost budget set total usd=4 --why …"
        assert await stands(app) == {"total ever": ("3", "0")}


async def test_three_days_down_cost_nothing_and_begin_a_new_day(stage: Stage, shop: Shop) -> None:
    """Requirement 83. What is charged is what was called, not the time that went by."""
    tool = shop.tool()

    @mp.workflow(version="1", tools=[tool])
    async def flow(run: mp.Run) -> str:
        await tool("a")
        await run.sleep("60h")
        return await tool("b")

    async with stage.app(flow, still=True) as app:
        await limit(app, usd=10)
        await limit(app, per="day", usd=1)
        handle = await app.start(flow, budget={"usd": 2})
        await parked(handle, "time")
        before = await app.inspect.detail(handle.id)
        assert await stands(app) == {"total ever": ("1", "0"), "total day": ("1", "0")}
    stage.clock.advance("72h")
    async with stage.app(flow, still=True).client() as app:
        assert await stands(app) == {"total ever": ("1", "0"), "total day": ("0", "0")}
    async with stage.app(flow, still=True) as app:
        assert (await app.inspect.detail(handle.id)).spent == before.spent == {"usd": "1"}
        assert await app.handle(handle.id, flow).result(timeout="30s") == "b sold"
        assert await stands(app) == {"total ever": ("2", "0"), "total day": ("1", "0")}


async def test_a_day_s_ceiling_lets_the_run_go_on_when_the_day_ends(stage: Stage, shop: Shop) -> None:
    flow = buying(shop.tool())
    async with stage.app(flow, still=True) as app:
        await limit(app, per="day", usd=1)
        handle = await app.start(flow, ["a", "b"], budget=RICH)
        waiting = await parked(handle, "budget")
        assert waiting.ask == "milepost budget set total usd=2 --per day --why …"
        stage.clock.advance("24h")
        app._need_engine().woken.set()
        assert await handle.result(timeout="30s") == ["a sold", "b sold"]


async def test_a_retry_reserves_once_and_a_refusal_for_good_releases(stage: Stage, shop: Shop) -> None:
    tool = shop.tool(retry=mp.Retry(3, first="1ms"))

    @mp.workflow(version="1", tools=[tool])
    async def flow(run: mp.Run) -> str:
        await tool("late")
        try:
            await tool("refused")
        except mp.StepFailed:
            return await tool("a")
        raise AssertionError

    async with stage.app(flow) as app:
        await limit(app, usd=2)
        assert await (await app.start(flow, budget={"usd": 2})).result(timeout="30s") == "a sold"
        assert shop.sold == ["late", "late", "refused", "a"]
        assert await stands(app) == {"total ever": ("2", "0")}


async def test_an_effect_that_is_sent_again_is_paid_for_once(stage: Stage) -> None:
    """Whatever became of the first attempt, the provider sees one key and charges once."""
    attempts: list[int] = []

    @mp.tool(effect="keyed", key_ttl="24h", cost=USD1, retry=mp.Retry(3, first="1ms"))
    async def pay(call: mp.Call) -> str:
        attempts.append(call.attempt)
        if call.attempt == 1:
            raise RuntimeError("line broke")
        return "paid"

    @mp.workflow(version="1", name="flow", tools=[pay])
    async def flow(run: mp.Run) -> str:
        return await pay()

    async with stage.app(flow) as app:
        await limit(app, usd=5)
        handle = await app.start(flow, budget=RICH)
        assert await handle.result(timeout="30s") == "paid"
        assert [one.get("reserve", {}) for one in await fields(app, handle.id, "effect_started")] == [{"usd": "1"}, {}]
        assert (attempts, await stands(app)) == ([1, 2], {"total ever": ("1", "0")})


async def test_each_try_of_a_read_that_costs_is_paid_for_by_itself(stage: Stage, shop: Shop) -> None:
    """Requirement 83. Three tries with money for two: the third one waits, and is not made on credit."""
    tool = shop.tool(effect="read", key_ttl=None, retry=mp.Retry(3, first="1ms"))
    flow = buying(tool)
    async with stage.app(flow) as app:
        await limit(app, usd=2)
        handle = await app.start(flow, ["lost"], budget=RICH)
        await parked(handle, "budget")
        assert shop.sold == ["lost", "lost"]
        assert (await app.inspect.detail(handle.id)).spent == {"usd": "2"}
        assert await stands(app) == {"total ever": ("2", "0")}


async def test_an_unknown_effect_keeps_its_reservation_after_a_kill_until_somebody_knows(
    stage: Stage, shop: Shop
) -> None:
    tool = shop.tool(effect="irreversible", key_ttl=None)
    flow = buying(tool)
    async with stage.app(flow) as app:
        await limit(app, usd=2)
        handle = await app.start(flow, ["a", "lost"], budget=RICH)
        await parked(handle, "unknown")
        assert await stands(app) == {"total ever": ("1", "1")}
        await app.kill(handle.id, why="enough")
        assert await stands(app) == {"total ever": ("1", "1")}
        await app.resolve(handle.id, "flow/buy#2", mp.did_not_happen(), by="ann", why="looked")

        async def released() -> bool:
            return await stands(app) == {"total ever": ("1", "0")}

        await until(released)


async def test_what_waits_to_be_tried_again_is_released_by_a_kill(stage: Stage, shop: Shop) -> None:
    flow = buying(shop.tool(retry=mp.Retry(3, first="1h")))
    async with stage.app(flow) as app:
        await limit(app, usd=2)
        handle = await app.start(flow, ["late"], budget=RICH)
        await parked(handle, "time")
        assert await stands(app) == {"total ever": ("0", "1")}
        await app.kill(handle.id, why="enough")
        assert await stands(app) == {"total ever": ("0", "0")}


async def test_what_waits_to_be_tried_again_is_released_where_its_run_is_cancelled(stage: Stage, shop: Shop) -> None:
    flow = buying(shop.tool(retry=mp.Retry(3, first="1h")))
    async with stage.app(flow) as app:
        await limit(app, usd=2)
        handle = await app.start(flow, ["late"], budget=RICH)
        await parked(handle, "time")
        await app.cancel(handle.id, why="enough")
        await status_of(handle, "cancelled")
        assert await stands(app) == {"total ever": ("0", "0")}
        assert (await app.inspect.detail(handle.id)).reserved == {}


async def test_a_transactional_tool_is_paid_for_in_the_transaction_in_which_it_acts(stage: Stage) -> None:
    @mp.tool(effect="transactional", cost=USD1)
    def note(tx: mp.Tx, text: str) -> int:
        tx.execute("CREATE TABLE IF NOT EXISTS notes (text TEXT)")
        tx.execute("INSERT INTO notes VALUES ($1)", (text,))
        if text == "broken":
            raise mp.Rejected("no")
        return int(tx.execute("SELECT count(*) FROM notes")[0][0])

    @mp.workflow(version="1", tools=[note])
    async def flow(run: mp.Run, texts: list[str]) -> int:
        count = 0
        for text in texts:
            try:
                count = await note(text)
            except mp.StepFailed:
                continue
        return count

    async with stage.app(flow) as app:
        await limit(app, usd=2)
        assert await (await app.start(flow, ["a", "broken", "b"], budget=RICH)).result(timeout="30s") == 2
        assert await stands(app) == {"total ever": ("2", "0")}
        await parked(await app.start(flow, ["c"], budget=RICH), "budget")
        assert stage.rows("SELECT text FROM notes") == [("a",), ("b",)]


async def test_arms_of_one_run_that_share_a_budget_go_on_as_it_is_set_free(stage: Stage, shop: Shop) -> None:
    shop.really = {"usd": Decimal("0.25")}
    tool = shop.tool()

    async def one(what: str) -> str:
        return await tool(what)

    @mp.workflow(version="1", tools=[tool])
    async def flow(run: mp.Run) -> list[str]:
        return await run.map(one, ["a", "b", "c", "d", "e"])

    async with stage.app(flow) as app:
        await limit(app, usd=2)
        assert len(await (await app.start(flow, budget=RICH)).result(timeout="30s")) == 5
        assert await stands(app) == {"total ever": ("1.25", "0")}


# ---------------------------------------------------------------- what is more than was reserved


async def test_what_costs_more_than_was_reserved_raises_an_alarm_and_is_booked(
    stage: Stage, shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """Requirement 83. Outlives the segment: it is seen for as long as the run is."""
    shop.really = {"usd": Decimal("1.50"), "tokens": Decimal(3)}
    flow = buying(shop.tool())
    async with stage.app(flow) as app:
        await limit(app, usd=10, tokens=10)
        with caplog.at_level(logging.WARNING, "milepost"):
            handle = await app.start(flow, ["a", "b"], budget=RICH)
            await handle.result(timeout="30s")
        assert (await names(app, handle.id)).count("overspent") == 2
        assert f"run {handle.id}: flow/buy#1 spent 0.50 usd, 3 tokens more than was reserved" in caplog.messages
        assert (await app.inspect.detail(handle.id)).overspent == {"usd": "1.00", "tokens": "6"}
        over = await app._need_engine().store.overspent()
        assert over == {handle.id: {"usd": Decimal("1.00"), "tokens": Decimal(6)}}
        views = await pools(app._need_engine().store, 0)
        assert [(view.unit, f"{view.spent:f}") for view in views] == [("tokens", "6"), ("usd", "3.00")]


@pytest.mark.parametrize("kind", ["refused for good", "a read that raises"])
async def test_what_failed_and_cost_more_than_was_reserved_raises_the_alarm_too(stage: Stage, kind: str) -> None:
    """Requirement 83."""
    options = {"effect": "read", "retry": mp.Retry(1)} if kind == "a read that raises" else {"effect": "irreversible"}

    @mp.tool(name="act", cost=USD1, **options)
    async def act(call: mp.Call) -> str:
        call.spent(usd=Decimal(3))
        raise mp.Rejected("too late") if kind == "refused for good" else RuntimeError("line broke")

    @mp.workflow(version="1", name="flow", tools=[act])
    async def flow(run: mp.Run) -> str:
        try:
            return str(await act())
        except mp.StepFailed:
            return "failed"

    async with stage.app(flow) as app:
        handle = await app.start(flow, budget=RICH)
        assert await handle.result(timeout="30s") == "failed"
        assert (await app.inspect.detail(handle.id)).overspent == {"usd": "2"}


async def test_what_stays_within_its_reservation_raises_no_alarm(stage: Stage, shop: Shop) -> None:
    shop.really = {"usd": Decimal(1)}
    flow = buying(shop.tool())
    async with stage.app(flow) as app:
        handle = await app.start(flow, ["a"], budget=RICH)
        await handle.result(timeout="30s")
        assert "overspent" not in await names(app, handle.id)
        assert await app._need_engine().store.overspent() == {}
