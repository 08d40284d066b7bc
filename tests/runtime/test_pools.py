"""Budgets that runs share, as runs meet them: parked and asking, never overspent, right again after a crash."""

import asyncio
import logging
from collections.abc import Mapping
from decimal import Decimal

import pytest

import milepost as mp
from milepost.core.pools import Per
from milepost.operations import budgets
from milepost.operations.budgets import pools
from milepost.operations.recounting import recount
from tests.runtime.stage import Stage, has_outcome, names, parked, status_of, until

USD1 = {"usd": Decimal(1)}
RICH = {"usd": 1_000}
BOT = mp.Authority("bot", tenant="acme")


class Shop:
    """Sells for a dollar each; `mode` says how it answers."""

    def __init__(self) -> None:
        self.sold: list[str] = []
        self.really: Mapping[str, Decimal] = {}

    def tool(self, **options: object) -> mp.Tool[[str], str]:
        @mp.tool(name="buy", **{"cost": USD1, "effect": "keyed", "key_ttl": "24h", **options})  # type: ignore[call-overload, untyped-decorator]
        async def buy(call: mp.Call, what: str) -> str:
            self.sold.append(what)
            if what == "refused":
                raise mp.Rejected("sold out")
            if what == "lost":
                raise RuntimeError("line broke")
            if what == "late" and call.attempt == 1:
                raise mp.NotSent("no route")
            if self.really:
                call.spent(**self.really)
            return f"{what} sold"

        tool: mp.Tool[[str], str] = buy
        return tool


@pytest.fixture
def shop() -> Shop:
    return Shop()


def buying(tool: mp.Tool[[str], str]) -> mp.Workflow[list[str], list[str]]:
    @mp.workflow(version="1", name="flow", tools=[tool])
    async def flow(run: mp.Run, things: list[str]) -> list[str]:
        return [await tool(thing) for thing in things]

    return flow


async def limit(app: mp.App, pool: str = "total", per: Per = "ever", **units: Decimal | int | None) -> int:
    return await app._operator().set_ceiling(pool, units, per=per, by="ann", why="a try")


async def stands(app: mp.App) -> dict[str, tuple[str, str]]:
    """Return what is spent and reserved, and hold the rows against the journals."""
    engine = app._need_engine()
    assert await recount(engine.store) == []
    views = await pools(engine.store, engine.clock.now())
    return {f"{view.pool} {view.per}": (f"{view.spent:f}", f"{view.reserved:f}") for view in views}


async def test_a_shared_budget_that_is_spent_parks_and_a_higher_ceiling_lets_the_run_go_on(
    stage: Stage, shop: Shop
) -> None:
    """Requirement 72. Requirement 83. It says what to type; nothing is lost."""
    flow = buying(shop.tool())
    async with stage.app(flow) as app:
        await limit(app, "tenant:acme", usd=2)
        first = await app.start(flow, ["a", "b"], authority=BOT, budget=RICH)
        await first.result(timeout="10s")
        second = await app.start(flow, ["c"], authority=BOT, budget=RICH)
        waiting = await parked(second, "budget")
        assert waiting.ask == "milepost budget set tenant:acme usd=3 --why …"
        assert shop.sold == ["a", "b"]
        assert [(f.path, f.outcome) for f in await app.inspect.open_effects()] == [("flow/buy#1", "not_started")]
        assert await stands(app) == {"tenant:acme ever": ("2", "0")}
        assert await limit(app, "tenant:acme", usd=3) == 1
        assert await second.result(timeout="10s") == ["c sold"]
        other = await app.start(flow, ["d"], authority=mp.Authority("bot", tenant="other"), budget=RICH)
        assert await other.result(timeout="10s") == ["d sold"]


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
        await (await app.start(flow, ["a", "b", "c"], budget=RICH)).result(timeout="10s")
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
    async with stage.app(flow, still=True) as app:
        assert await stands(app) == {"total ever": ("1", "0"), "total day": ("0", "0")}
        assert (await app.inspect.detail(handle.id)).spent == before.spent == {"usd": "1"}
        assert await app.handle(handle.id, flow).result(timeout="10s") == "b sold"
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
        assert await handle.result(timeout="10s") == ["a sold", "b sold"]


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
        assert await (await app.start(flow, budget={"usd": 2})).result(timeout="10s") == "a sold"
        assert shop.sold == ["late", "late", "refused", "a"]
        assert await stands(app) == {"total ever": ("2", "0")}


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
        tx.execute("INSERT INTO notes VALUES (?)", (text,))
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
        assert await (await app.start(flow, ["a", "broken", "b"], budget=RICH)).result(timeout="10s") == 2
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
        assert len(await (await app.start(flow, budget=RICH)).result(timeout="10s")) == 5
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
            await handle.result(timeout="10s")
        assert (await names(app, handle.id)).count("overspent") == 2
        assert f"run {handle.id}: flow/buy#1 spent 0.50 usd, 3 tokens more than was reserved" in caplog.messages
        assert (await app.inspect.detail(handle.id)).overspent == {"usd": "1.00", "tokens": "6"}
        over = await app._need_engine().store.overspent()
        assert over == {handle.id: {"usd": Decimal("1.00"), "tokens": Decimal(6)}}
        views = await pools(app._need_engine().store, 0)
        assert [(view.unit, f"{view.spent:f}") for view in views] == [("tokens", "6"), ("usd", "3.00")]


async def test_what_stays_within_its_reservation_raises_no_alarm(stage: Stage, shop: Shop) -> None:
    shop.really = {"usd": Decimal(1)}
    flow = buying(shop.tool())
    async with stage.app(flow) as app:
        handle = await app.start(flow, ["a"], budget=RICH)
        await handle.result(timeout="10s")
        assert "overspent" not in await names(app, handle.id)
        assert await app._need_engine().store.overspent() == {}


# ---------------------------------------------------------------- a run's own limits, made tighter


async def revoke(app: mp.App, run_id: str, *scopes: str, **ceilings: int) -> bool:
    return await app._operator().revoke(run_id, by="ann", why="too much", scopes=scopes, ceilings=ceilings)


async def test_a_ceiling_that_was_lowered_holds_at_once_over_boundaries_and_on_resume(stage: Stage, shop: Shop) -> None:
    """Requirement 83. Requirement 49. What was spent counts; only a new grant lifts it."""
    tool = shop.tool()
    flow = mp.Workflow("flow", version="1", input=int, result=str, tools=[tool])

    @flow.segment
    async def first(run: mp.Run, n: int) -> mp.Next[str]:
        await tool("a")
        await run.receive("go", int)
        return mp.go(second, n)

    @flow.segment
    async def second(run: mp.Run, n: int) -> mp.Next[str]:
        return mp.done(await tool("b"))

    async with stage.app(flow) as app:
        handle = await app.start(flow, 1, budget={"usd": 10})
        await parked(handle, "signal")
        assert await revoke(app, handle.id, usd=1)
    async with stage.app(flow) as app:
        handle = app.handle(handle.id, flow)
        await app.send(handle.id, "go", 1)
        assert (await parked(handle, "budget")).ask == f"milepost grant {handle.id} --budget usd=1"
        assert shop.sold == ["a"]
        detail = await app.inspect.detail(handle.id)
        assert (detail.stage, detail.granted, detail.spent) == ("second", {"usd": "1"}, {"usd": "1"})
        await app.grant(handle.id, by="ann", budget={"usd": 1})
        assert await handle.result(timeout="10s") == "b sold"


async def test_a_scope_that_was_revoked_stays_revoked_wherever_it_came_from(stage: Stage, shop: Shop) -> None:
    """Requirement 49. Gone at once, over a boundary, and in a new process, until somebody grants it anew."""
    tool = shop.tool(cost=None, scopes=["shop:buy"])
    flow = mp.Workflow("flow", version="1", input=int, result=str, tools=[tool])

    @flow.segment
    async def first(run: mp.Run, n: int) -> mp.Next[str]:
        await tool("a")
        await run.receive("go", int)
        return mp.go(second, n)

    @flow.segment
    async def second(run: mp.Run, n: int) -> mp.Next[str]:
        await run.receive("on", int)
        return mp.done(await tool("b"))

    granted = mp.Authority("bot", scopes=["shop:buy", "shop:look"])
    async with stage.app(flow) as app:
        handle = await app.start(flow, 1, authority=granted)
        await parked(handle, "signal")
        assert await revoke(app, handle.id, "shop:buy")
        await app.send(handle.id, "go", 1)

        async def over_the_boundary() -> bool:
            return (await app.inspect.detail(handle.id)).stage == "second"

        await until(over_the_boundary)
        await parked(handle, "signal")
    async with stage.app(flow) as app:
        handle = app.handle(handle.id, flow)
        detail = await app.inspect.detail(handle.id)
        assert (detail.scopes, detail.about.authority.scopes) == (("shop:look",), ("shop:look",))
        await app.send(handle.id, "on", 1)
        assert (await parked(handle, "authority")).ask == f"milepost grant {handle.id} shop:buy"
        assert shop.sold == ["a"]
        await app.grant(handle.id, by="ann", scopes=["shop:buy"])
        assert await handle.result(timeout="10s") == "b sold"


async def test_a_child_does_not_get_what_its_parent_has_lost(stage: Stage, shop: Shop) -> None:
    tool = shop.tool(cost=None, scopes=["shop:buy"])
    flow = buying(tool)

    @mp.workflow(version="1", tools=[tool])
    async def parent(run: mp.Run) -> list[str]:
        await run.receive("go", int)
        child = await run.start(flow, ["a"])
        return await child.result()

    async with stage.app(flow, parent) as app:
        handle = await app.start(parent, authority=mp.Authority("bot", scopes=["shop:buy"]))
        await parked(handle, "signal")
        await revoke(app, handle.id, "shop:buy")
        await app.send(handle.id, "go", 1)
        await parked(handle, "child")

        async def child_waits() -> bool:
            return any(f.outcome == "not_started" for f in await app.inspect.open_effects())

        await until(child_waits)
        assert shop.sold == []


async def test_an_effect_that_was_sent_is_not_sent_again_without_the_scope_that_it_had(
    stage: Stage, shop: Shop
) -> None:
    tool = shop.tool(cost=None, scopes=["shop:buy"], effect="irreversible", key_ttl=None)
    flow = buying(tool)
    async with stage.app(flow) as app:
        handle = await app.start(flow, ["lost"], authority=mp.Authority("bot", scopes=["shop:buy"]))
        await has_outcome(app, handle.id, "flow/buy#1", "unknown")
        await parked(handle, "unknown")
        await revoke(app, handle.id, "shop:buy")
        await app.resolve(handle.id, "flow/buy#1", mp.did_not_happen(), by="ann", why="looked")
        await parked(handle, "authority")
        assert shop.sold == ["lost"]


async def test_revoking_from_a_run_that_is_driven_right_now_holds_when_it_returns(stage: Stage) -> None:
    """Requirement 83. Requirement 49. What is in flight finishes; nothing starts after it."""
    sent: list[str] = []
    go = asyncio.Event()

    @mp.tool(scopes=["shop:buy"], cost=USD1)
    async def buy(what: str) -> str:
        sent.append(what)
        await go.wait()
        return what

    @mp.workflow(version="1", tools=[buy])
    async def flow(run: mp.Run) -> list[str]:
        return [await buy("a"), await buy("b")]

    async with stage.app(flow) as app:
        handle = await app.start(flow, authority=mp.Authority("bot", scopes=["shop:buy"]), budget=RICH)
        await has_outcome(app, handle.id, "flow/buy#1", "started")
        assert await revoke(app, handle.id, "shop:buy", usd=1)
        go.set()
        await parked(handle, "authority")
        await app.grant(handle.id, by="ann", scopes=["shop:buy"])
        await parked(handle, "budget")
        assert sent == ["a"]


async def test_revoking_says_where_the_worker_has_not_taken_it_yet(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    @mp.workflow(version="1")
    async def flow(run: mp.Run) -> None:
        await run.receive("go", int)

    monkeypatch.setattr(budgets, "TAKEN_WITHIN_S", 0.05)
    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await parked(handle, "signal")
    stage.write("UPDATE mp_runs SET owner = 'a worker that does not answer' WHERE id = ?", handle.id)
    async with stage.app(flow).client() as app:
        assert await revoke(app, handle.id, "shop:buy") is False


# ---------------------------------------------------------------- taken back, and from elsewhere


async def test_a_rewind_brings_back_neither_money_nor_scopes(stage: Stage, shop: Shop) -> None:
    """Requirement 49. Requirement 83. What was spent stays spent, what was revoked stays revoked; reservations go."""
    undone: list[str] = []

    @mp.tool(name="unbuy", effect="keyed", key_ttl="24h")
    async def unbuy(what: str) -> None:
        undone.append(what)

    tool = shop.tool(scopes=["shop:buy"], retry=mp.Retry(3, first="1h"))
    tool.compensate(unbuy)
    flow = mp.Workflow("flow", version="1", input=int, result=str, tools=[tool])

    @flow.segment
    async def first(run: mp.Run, n: int) -> mp.Next[str]:
        return mp.go(second, n)

    @flow.segment
    async def second(run: mp.Run, n: int) -> mp.Next[str]:
        await tool("a")
        return mp.done(await tool("late"))

    async with stage.app(flow) as app:
        await limit(app, usd=10)
        handle = await app.start(flow, 1, budget={"usd": 2}, authority=mp.Authority("bot", scopes=["shop:buy"]))
        await parked(handle, "time")
        assert await stands(app) == {"total ever": ("1", "1")}
        assert await revoke(app, handle.id, "shop:buy", usd=1)
        await app.rewind(handle.id, to="second", by="ann", why="again")
        await parked(handle, "authority")
        assert undone == ["a sold"]
        assert await stands(app) == {"total ever": ("1", "0")}
        detail = await app.inspect.detail(handle.id)
        assert (detail.scopes, detail.granted, detail.spent) == ((), {"usd": "1"}, {"usd": "1"})
