"""The entry that an attempt begins with, what may keep it from being written, and what is paid for its refusal."""

import asyncio
from decimal import Decimal
from typing import Any

import httpx
import pytest

import milepost as mp
from tests.runtime.stage import Stage, parked


def acting(sent: list[int], **options: Any) -> mp.Workflow[None, str]:
    @mp.tool(**{"name": "act", "effect": "keyed", "key_ttl": "1h", **options})
    async def act(call: mp.Call) -> str:
        sent.append(call.attempt)
        return "done"

    @mp.workflow(version="1", name="flow", tools=[act])
    async def flow(run: mp.Run) -> str:
        return await act()

    return flow


async def fields(app: mp.App, run_id: str, name: str) -> dict[str, Any]:
    (line,) = (line for line in await app.inspect.journal(run_id) if line.name == name)
    return {"at": line.at, **line.fields}


async def test_a_start_says_until_when_it_may_take(stage: Stage) -> None:
    sent: list[int] = []
    flow = acting(sent, timeout="20s")
    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow)
        await handle.result(timeout="30s")

        started = await fields(app, handle.id, "effect_started")
        assert started["deadline"] - started["at"] == 20_000
        assert "approval" not in started


async def test_a_start_uses_the_very_approval_that_was_given_for_it(stage: Stage) -> None:
    """Requirement 20."""
    sent: list[int] = []
    flow = acting(sent, approval=True)
    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await parked(handle, "approval")
        asked = await fields(app, handle.id, "approval_asked")
        await app.approve(asked["id"], by="ann")
        await handle.result(timeout="30s")

        assert (await fields(app, handle.id, "effect_started"))["approval"] == asked["id"]
        assert sent == [1]


async def test_an_authority_is_no_more_from_the_moment_on_at_which_it_ends(stage: Stage) -> None:
    """Requirement 49."""
    sent: list[int] = []

    @mp.tool(effect="keyed", key_ttl="1h")
    async def act(call: mp.Call) -> str:
        sent.append(call.attempt)
        return "done"

    @mp.workflow(version="1", tools=[act])
    async def flow(run: mp.Run) -> str:
        await run.sleep("1h")
        return await act()

    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow, authority=mp.Authority("bot", expires="1h"))
        await parked(handle, "time")
        stage.clock.advance("1h")

        waiting = await parked(handle, "authority")

        assert waiting.ask == f"the authority of 'bot' expired: start a new run, or milepost cancel {handle.id}"
        assert sent == []


async def test_a_refusal_that_httpx_tells_of_is_paid_what_the_tool_said_it_spent(stage: Stage) -> None:
    response = httpx.Response(403, request=httpx.Request("POST", "http://bank.test"))

    @mp.tool(effect="keyed", key_ttl="1h", cost={"usd": 2})
    async def act(call: mp.Call) -> str:
        call.spent(usd=Decimal("0.5"))
        raise httpx.HTTPStatusError("refused", request=response.request, response=response)

    @mp.workflow(version="1", tools=[act])
    async def flow(run: mp.Run) -> str:
        return await act()

    async with stage.app(flow) as app:
        handle = await app.start(flow, budget={"usd": 5})
        with pytest.raises(mp.RunFailed):
            await handle.result(timeout="30s")

        failed = await fields(app, handle.id, "effect_failed")
        assert (failed["reason"], Decimal(failed["spent"]["usd"])) == ("rejected", Decimal("0.5"))


async def test_a_read_that_took_too_long_is_paid_what_the_tool_said_it_spent(stage: Stage) -> None:
    @mp.tool(effect="read", cost={"usd": 2}, timeout="50ms", retry=mp.Retry(1))
    async def ask(call: mp.Call) -> str:
        call.spent(usd=Decimal("0.5"))
        await asyncio.Event().wait()
        return "never"

    @mp.workflow(version="1", tools=[ask])
    async def flow(run: mp.Run) -> str:
        return await ask()

    async with stage.app(flow) as app:
        handle = await app.start(flow, budget={"usd": 5})
        with pytest.raises(mp.RunFailed, match="no answer"):
            await handle.result(timeout="30s")

        assert Decimal((await fields(app, handle.id, "effect_failed"))["spent"]["usd"]) == Decimal("0.5")
