"""A start that the store refused leaves nothing behind: not the money it reserved, not the approval it used."""

import asyncio
from decimal import Decimal
from typing import Any

import pytest

import milepost as mp
from tests.runtime.stage import Stage, has_entry, names, parked, status_of, until


async def frozen(app: mp.App, *scopes: str) -> None:
    for scope in scopes:
        await app._operator().freeze(scope, by="ann", why=f"{scope} is closed")


async def thaw(app: mp.App, scope: str) -> None:
    await app._operator().thaw(scope, by="ann", why="it is open again")


async def refused_by(handle: mp.Handle[Any], scope: str) -> None:
    """Wait until the run rests on a switch on this scope."""

    async def ask() -> bool:
        waiting = (await handle.status()).waiting
        return waiting is not None and waiting.reason == "switch" and f"{scope} is closed" in (waiting.ask or "")

    await until(ask, scope)


async def planned_over_two_refusals(stage: Stage, flow: mp.Workflow[None, str]) -> int:
    """Run a workflow whose one call, `held`, is refused by two switches in turn; return how often it was planned."""
    async with stage.app(flow, still=True) as app:
        await frozen(app, "all", "tool:held")
        handle = await app.start(flow)
        await refused_by(handle, "all")
        await thaw(app, "all")
        await refused_by(handle, "tool:held")
        await thaw(app, "tool:held")

        assert await handle.result(timeout="30s") == "held"
        return (await names(app, handle.id)).count("effect_planned")


async def test_a_refused_call_is_planned_once_however_often_it_is_refused(stage: Stage) -> None:
    calls: list[str] = []

    @mp.tool(effect="keyed", key_ttl="1h")
    async def held() -> str:
        calls.append("held")
        return "held"

    @mp.workflow(version="1", name="flow", tools=[held])
    async def flow(run: mp.Run) -> str:
        return await held()

    assert await planned_over_two_refusals(stage, flow) == 1
    assert calls == ["held"]


async def test_a_refused_transactional_call_is_planned_once_too(stage: Stage) -> None:
    @mp.tool(effect="transactional")
    def held(tx: mp.Tx) -> str:
        return "held"

    @mp.workflow(version="1", name="flow", tools=[held])
    async def flow(run: mp.Run) -> str:
        return await held()

    assert await planned_over_two_refusals(stage, flow) == 1


async def test_a_call_that_waited_for_a_scope_is_asked_about_when_it_has_it(stage: Stage) -> None:
    @mp.tool(effect="keyed", key_ttl="1h", approval=True, scopes=["pay"])
    async def act() -> str:
        return "done"

    @mp.workflow(version="1", name="flow", tools=[act])
    async def flow(run: mp.Run) -> str:
        return await act()

    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await parked(handle, "authority")
        await app.grant(handle.id, by="ann", scopes=["pay"])
        waiting = await parked(handle, "approval")

        assert waiting.ask is not None
        await app.approve(waiting.ask.split()[2].rstrip(","), by="ann")
        assert await handle.result(timeout="30s") == "done"


async def test_what_is_missing_of_several_units_is_asked_for_unit_by_unit(stage: Stage) -> None:
    @mp.tool(effect="keyed", key_ttl="1h", cost={"usd": 2, "tokens": 30})
    async def act() -> str:
        return "done"

    @mp.workflow(version="1", name="flow", tools=[act])
    async def flow(run: mp.Run) -> str:
        return await act()

    async with stage.app(flow) as app:
        handle = await app.start(flow, budget={"usd": Decimal("0.5")})

        waiting = await parked(handle, "budget")

        assert waiting.ask == f"milepost grant {handle.id} --budget usd=1.5 --budget tokens=30"


async def test_a_call_knows_until_when_it_may_take_and_is_counted_while_it_does(stage: Stage) -> None:
    go_on = asyncio.Event()
    told: list[mp.Call] = []

    @mp.tool(effect="keyed", key_ttl="1h", timeout="20s")
    async def act(call: mp.Call) -> str:
        told.append(call)
        await go_on.wait()
        return "done"

    @mp.workflow(version="1", name="flow", tools=[act])
    async def flow(run: mp.Run) -> str:
        return await act() + await act()

    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow)
        await has_entry(app, handle.id, "effect_started")
        writer = app._need_engine().writer

        async def in_flight() -> bool:
            return writer.tools_in_flight == 1

        await until(in_flight)
        go_on.set()
        assert await handle.result(timeout="30s") == "donedone"
        assert writer.tools_in_flight == 0
        assert [int(call.deadline.timestamp() * 1_000) for call in told] == [stage.clock.now() + 20_000] * 2


@pytest.mark.parametrize(
    ("error", "seen"), [(mp.Rejected("card stolen"), "failed"), (mp.NotSent("no route"), "failed")]
)
async def test_only_a_denial_is_seen_as_one(stage: Stage, error: Exception, seen: str) -> None:
    @mp.tool(effect="keyed", key_ttl="1h", retry=mp.Retry(1))
    async def act() -> str:
        raise error

    @mp.workflow(version="1", name="flow", tools=[act])
    async def flow(run: mp.Run) -> str:
        try:
            return await act()
        except mp.Denied:
            return "denied"
        except mp.StepFailed:
            return "failed"

    async with stage.app(flow) as app:
        handle = await app.start(flow)
        assert await handle.result(timeout="30s") == seen
        (failed,) = (line.fields for line in await app.inspect.journal(handle.id) if line.name == "effect_failed")
        assert failed["reason"] == ("not_sent" if isinstance(error, mp.NotSent) else "rejected")


async def test_a_free_read_keeps_the_pause_that_its_provider_asks_for(stage: Stage) -> None:
    calls: list[int] = []

    @mp.tool(effect="read", retry=mp.Retry(2, first="1ms"))
    async def look() -> str:
        calls.append(1)
        if len(calls) == 1:
            raise mp.NotSent("busy", retry_after="1h")
        return "done"

    @mp.workflow(version="1", name="flow", tools=[look])
    async def flow(run: mp.Run) -> str:
        return await look()

    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow)
        await parked(handle, "time")
        stage.clock.advance("59m")
        assert (await status_of(handle, "parked")).status == "parked"
        assert calls == [1]
        stage.clock.advance("1m")
        assert await handle.result(timeout="30s") == "done"


class Loaded:
    """A workflow whose call of `held` is refused while another arm keeps the run in memory."""

    def __init__(self, **options: Any) -> None:
        self.hold = asyncio.Event()
        self.sent: list[str] = []

        @mp.tool(name="held", effect="keyed", key_ttl="1h", **options)
        async def held() -> str:
            self.sent.append("held")
            return "held"

        @mp.tool(name="free", effect="keyed", key_ttl="1h", cost={"usd": 2})
        async def free() -> str:
            self.sent.append("free")
            return "free"

        async def busy() -> str:
            await self.hold.wait()
            return "busy"

        async def later(run: mp.Run) -> str:
            await run.receive("go", int)
            return await free()

        @mp.workflow(version="1", name="flow", tools=[held, free])
        async def flow(run: mp.Run) -> list[str]:
            return list(await run.gather(held(), busy(), later(run)))

        self.flow = flow

    async def refused_by(self, app: mp.App, scope: str) -> None:
        """Wait until the call rests on a switch on this scope."""

        async def ask() -> bool:
            sessions = app._need_engine().sessions.values()
            return any(f"{scope} is closed" in waiting.ask for held in sessions for waiting in held.waits.values())

        await until(ask, scope)


async def test_money_that_was_reserved_in_memory_is_given_back_each_time_the_call_is_refused(stage: Stage) -> None:
    loaded = Loaded(cost={"usd": 2})
    async with stage.app(loaded.flow, still=True) as app:
        await frozen(app, "all", "tool:held")
        handle = await app.start(loaded.flow, budget={"usd": 2})
        await has_entry(app, handle.id, "effect_planned")
        await loaded.refused_by(app, "all")
        await thaw(app, "all")
        await loaded.refused_by(app, "tool:held")
        await app.send(handle.id, "go", 1)

        await has_entry(app, handle.id, "effect_confirmed")

        assert loaded.sent == ["free"]
        loaded.hold.set()


async def test_an_approval_that_was_used_in_memory_is_given_back_each_time_the_call_is_refused(stage: Stage) -> None:
    """Requirement 20."""
    loaded = Loaded(approval=True)
    async with stage.app(loaded.flow, still=True) as app:
        await frozen(app, "all", "tool:held")
        handle = await app.start(loaded.flow, budget={"usd": 2})
        await has_entry(app, handle.id, "approval_asked")
        (asked,) = (line.fields for line in await app.inspect.journal(handle.id) if line.name == "approval_asked")
        await app.approve(asked["id"], by="ann")
        await loaded.refused_by(app, "all")
        await thaw(app, "all")
        await loaded.refused_by(app, "tool:held")
        await thaw(app, "tool:held")

        await has_entry(app, handle.id, "effect_started")

        (start,) = (line.fields for line in await app.inspect.journal(handle.id) if line.name == "effect_started")
        assert start["approval"] == asked["id"]
        assert (await names(app, handle.id)).count("approval_asked") == 1
        loaded.hold.set()


async def test_what_was_never_sent_is_sent_though_its_key_would_have_expired_meanwhile(stage: Stage) -> None:
    """A key that nobody has seen cannot have been forgotten."""
    attempts: list[int] = []

    @mp.tool(effect="keyed", key_ttl="1h")
    async def act(call: mp.Call) -> str:
        attempts.append(call.attempt)
        if call.attempt == 1:
            raise mp.NotSent("busy", retry_after="2h")
        return "done"

    @mp.workflow(version="1", name="flow", tools=[act])
    async def flow(run: mp.Run) -> str:
        return await act()

    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow)
        await parked(handle, "time")
        stage.clock.advance("2h")
        assert await handle.result(timeout="30s") == "done"
        assert attempts == [1, 2]


@pytest.mark.parametrize("effect", ["irreversible", "transactional"])
async def test_a_call_that_is_cancelled_while_its_start_is_being_refused_leaves_nothing_that_is_waited_for(
    stage: Stage, effect: str
) -> None:
    calls: list[str] = []

    def act(*_: mp.Tx) -> str:
        calls.append("act")
        return "done"

    def in_a_transaction(tx: mp.Tx) -> str:
        return act(tx)

    def outside() -> str:
        return act()

    made = mp.tool(name="act", effect=effect, cost={"usd": 1})  # type: ignore[call-overload]
    tool = made(in_a_transaction if effect == "transactional" else outside)

    @mp.tool(effect="irreversible")
    async def free() -> str:
        return "free"

    async def hasty() -> str:
        try:
            async with asyncio.timeout(0):
                return str(await tool())
        except TimeoutError:
            return "gave up"

    @mp.workflow(version="1", name="flow", tools=[tool, free])
    async def flow(run: mp.Run) -> list[str]:
        return list(await run.gather(hasty(), free()))

    async with stage.app(flow, still=True) as app:
        await frozen(app, "tool:act")
        handle = await app.start(flow, budget={"usd": 1})

        assert await handle.result(timeout="30s") == ["gave up", "free"]
        assert (await names(app, handle.id)).count("effect_started") == 1  # of the other call
        assert calls == []


async def test_a_call_that_is_cancelled_while_its_run_is_taken_away_lets_go_of_it(stage: Stage) -> None:
    calls: list[str] = []
    go_on = asyncio.Event()
    seen: list[BaseException] = []

    @mp.tool(effect="irreversible")
    async def act() -> str:
        calls.append("act")
        return "done"

    @mp.tool(effect="irreversible")
    async def free() -> str:
        return "free"

    async def hasty() -> str:
        try:
            await go_on.wait()  # unless the loss is found out before: then it is cancelled here
            async with asyncio.timeout(0):
                return await act()
        except BaseException as error:
            seen.append(error)
            raise

    @mp.workflow(version="1", name="flow", tools=[act, free])
    async def flow(run: mp.Run) -> list[str]:
        return list(await run.gather(hasty(), free()))

    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow)
        await has_entry(app, handle.id, "claimed")
        engine = app._need_engine()

        async def waits() -> bool:
            return handle.id in engine.sessions

        await until(waits)
        operator = stage.app(flow, still=True)
        async with operator.client():
            await operator.kill(handle.id, why="runaway")
        go_on.set()

        async def let_go() -> bool:
            return handle.id not in engine.sessions and bool(seen)

        await until(let_go)
        assert calls == []
        assert (await handle.status()).status == "killed"
