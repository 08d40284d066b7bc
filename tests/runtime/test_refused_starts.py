"""A start that the store refused leaves nothing behind: not the money it reserved, not the approval it used."""

import asyncio
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

import milepost as mp
from tests.runtime.stage import Stage, has_entry, names, parked, status_of, until

HELD = "INSERT INTO mp_switches (scope, kind, why, by, at) VALUES ('tool:held', 'freeze', 'stock take', 'ann', 1)"


async def switched_off(stage: Stage, flow: mp.Workflow[Any, Any]) -> None:
    """Create the store, and stand a switch on tool `held`."""
    async with stage.app(flow).client():
        pass
    stage.write(HELD)


async def looked_again(stage: Stage, handle: mp.Handle[Any]) -> None:
    """Let the time pass after which a refused call is tried again, and wait until it was refused once more."""
    before = (await parked(handle, "switch")).until
    stage.clock.advance("2s")

    async def refused() -> bool:
        waiting = (await handle.status()).waiting
        return waiting is not None and isinstance(waiting.until, datetime) and waiting.until != before

    await until(refused)


async def let_go(stage: Stage, handle: mp.Handle[Any]) -> None:
    stage.write("DELETE FROM mp_switches")

    async def done() -> bool:
        stage.clock.advance("2s")
        return (await handle.status()).status == "done"

    await until(done)


@pytest.mark.parametrize("looks", [0, 1])
async def test_money_that_a_refused_call_reserved_is_there_for_another(stage: Stage, looks: int) -> None:
    sent: list[str] = []

    @mp.tool(effect="keyed", key_ttl="1h", cost={"usd": 2})
    async def held() -> str:
        sent.append("held")
        return "held"

    @mp.tool(effect="keyed", key_ttl="1h", cost={"usd": 2})
    async def free() -> str:
        sent.append("free")
        return "free"

    @mp.workflow(version="1", name="flow", tools=[held, free])
    async def flow(run: mp.Run) -> list[str]:
        async def later() -> str:
            await run.sleep("1m")
            return await free()

        return list(await run.gather(held(), later()))

    await switched_off(stage, flow)
    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow, budget={"usd": 2})
        for _ in range(looks):
            await looked_again(stage, handle)
        await parked(handle, "switch")
        stage.clock.advance("1m")
        await has_entry(app, handle.id, "effect_confirmed")

        assert sent == ["free"]


async def test_a_refused_call_is_planned_once_however_often_it_is_refused(stage: Stage) -> None:
    calls: list[str] = []

    @mp.tool(effect="keyed", key_ttl="1h")
    async def held() -> str:
        calls.append("held")
        return "held"

    @mp.workflow(version="1", name="flow", tools=[held])
    async def flow(run: mp.Run) -> str:
        return await held()

    await switched_off(stage, flow)
    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow)
        for _ in range(2):
            await looked_again(stage, handle)
        await let_go(stage, handle)

        assert (await names(app, handle.id)).count("effect_planned") == 1
        assert calls == ["held"]


async def test_a_refused_transactional_call_is_planned_once_too(stage: Stage) -> None:
    @mp.tool(effect="transactional")
    def held(tx: mp.Tx) -> str:
        return "held"

    @mp.workflow(version="1", name="flow", tools=[held])
    async def flow(run: mp.Run) -> str:
        return await held()

    await switched_off(stage, flow)
    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow)
        for _ in range(2):
            await looked_again(stage, handle)
        await let_go(stage, handle)

        assert (await names(app, handle.id)).count("effect_planned") == 1


async def test_an_approval_outlives_the_refusal_of_the_call_that_it_was_given_for(stage: Stage) -> None:
    """Requirement 20."""

    @mp.tool(effect="keyed", key_ttl="1h", approval=True)
    async def held() -> str:
        return "held"

    @mp.workflow(version="1", name="flow", tools=[held])
    async def flow(run: mp.Run) -> str:
        return await held()

    await switched_off(stage, flow)
    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow)
        await parked(handle, "approval")
        (asked,) = (line.fields for line in await app.inspect.journal(handle.id) if line.name == "approval_asked")
        await app.approve(asked["id"], by="ann")
        await looked_again(stage, handle)
        await let_go(stage, handle)

        (started,) = (line.fields for line in await app.inspect.journal(handle.id) if line.name == "effect_started")
        assert started["approval"] == asked["id"]
        assert (await names(app, handle.id)).count("approval_asked") == 1


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
        assert await handle.result(timeout="10s") == "done"


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
        assert await handle.result(timeout="10s") == "donedone"
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
        assert await handle.result(timeout="10s") == seen
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
        assert await handle.result(timeout="10s") == "done"
