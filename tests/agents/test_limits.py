"""What a run of an agent may use, and what of it is left after a crash, a refusal, a retry."""

import asyncio
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

import milepost as mp
from milepost import agents
from tests.agents.desks import Desk, with_usage
from tests.runtime.stage import Stage, parked

CALL = agents.call("look_up", order="o-1")
USED = agents.Usage(input=1_000, output=50, cached=400, requests=1)
PRICES = {"scripted": agents.Price(input=Decimal("2.5"), output=10, cached=Decimal("0.25"))}


async def spent(app: mp.App, run_id: str) -> dict[str, str]:
    return (await app.inspect.detail(run_id)).spent


async def row_of(app: mp.App, run_id: str) -> str:
    detail = await app.inspect.detail(run_id)
    return detail.row.why or ""


async def test_a_run_without_a_budget_asks_no_model_and_says_what_to_type(stage: Stage) -> None:
    """Requirement 72."""
    desk = Desk()
    agent = desk.agent("Hello.")
    async with stage.app(agent.workflow) as app:
        handle = await app.start(agent.workflow, agents.Task("x"))

        waiting = await parked(handle, "budget")
        assert waiting.ask == f"milepost grant {handle.id} --budget turns=1"
        assert desk.asked == []


async def test_at_its_limit_of_turns_a_run_parks_and_goes_on_when_more_is_granted(stage: Stage) -> None:
    """Requirement 18. Requirement 83."""
    desk = Desk()
    agent = desk.agent(CALL, CALL, "Done.", limits=agents.Limits(turns=2))
    async with stage.app(agent.workflow) as app:
        handle = await app.start(agent.workflow, agents.Task("x"), budget=agent.budget)
        await parked(handle, "budget")
        assert len(desk.asked) == 2

        await app.grant(handle.id, budget={"turns": 1}, by="me")
        assert await handle.result(timeout="60s") == "Done."


async def test_tokens_and_money_are_reserved_at_worst_and_charged_as_they_were_counted(stage: Stage) -> None:
    desk = Desk()
    limits = agents.Limits(turns=9, tokens=100_000, usd=1)
    line = with_usage(CALL, USED)
    agent = desk.agent(line, with_usage(agents.Reply("Done."), USED), limits=limits, prices=PRICES)
    async with stage.app(agent.workflow) as app:
        handle = await app.start(agent.workflow, agents.Task("x"), budget=agent.budget)
        await handle.result(timeout="60s")

        dollars = (600 * Decimal("2.5") + 400 * Decimal("0.25") + 50 * 10) / 1_000_000
        found = {unit: Decimal(amount) for unit, amount in (await spent(app, handle.id)).items()}
        assert found == {"turns": 2, "tokens": 2_100, "usd": 2 * dollars}
        started = [line.fields for line in await app.inspect.journal(handle.id) if line.name == "effect_started"]
        reserved = [Decimal(fields["reserve"]["tokens"]) for fields in started]
        assert all(4_096 < most < 8_000 for most in reserved)


async def test_usage_is_recorded_raw_and_by_model(stage: Stage) -> None:
    desk = Desk()
    agent = desk.agent(with_usage(CALL, USED), with_usage(CALL, USED), "Done.")
    async with stage.app(agent.workflow) as app:
        handle = await app.start(agent.workflow, agents.Task("x"), budget=agent.budget)
        await handle.result(timeout="60s")

        visit = await app.inspect.visit(handle.id, "turn")
        assert visit is not None
        assert visit.state["usage"] == {"scripted": {"input": 2_000, "output": 100, "cached": 800, "requests": 2}}


async def test_a_reply_that_nobody_counted_is_charged_as_it_was_reserved(stage: Stage) -> None:
    class Silent:
        name = "silent"

        async def ask(self, request: agents.Request, said: agents.Said) -> agents.Reply:  # noqa: ARG002
            return agents.Reply("Done.")

    agent = Desk().agent(model=Silent(), limits=agents.Limits(tokens=10_000))
    async with stage.app(agent.workflow) as app:
        handle = await app.start(agent.workflow, agents.Task("x"), budget=agent.budget)
        await handle.result(timeout="60s")

        assert int((await spent(app, handle.id))["tokens"]) > 4_096


async def test_what_does_not_fit_under_the_limit_of_tokens_is_not_asked(stage: Stage) -> None:
    desk = Desk()
    agent = desk.agent("Done.", limits=agents.Limits(tokens=4_000))
    async with stage.app(agent.workflow) as app:
        handle = await app.start(agent.workflow, agents.Task("x"), budget=agent.budget)

        waiting = await parked(handle, "budget")
        assert "--budget tokens=" in waiting.ask
        assert desk.asked == []


async def test_limits_hold_over_a_model_call_that_was_cut_off_by_a_worker_that_left(stage: Stage) -> None:
    """Requirement 68. Requirement 83. What was lost is charged, and what is left is what the next worker may use."""
    reached, never = asyncio.Event(), asyncio.Event()
    asked: list[int] = []

    class Hanging:
        name = "hanging"

        async def ask(self, request: agents.Request, said: agents.Said) -> agents.Reply:  # noqa: ARG002
            asked.append(request.attempt)
            reached.set()
            await never.wait()
            return agents.Reply("never")

    agent = Desk().agent(model=Hanging(), limits=agents.Limits(turns=2))
    async with stage.app(agent.workflow).client() as app:
        handle = await app.start(agent.workflow, agents.Task("x"), budget=agent.budget)
    for _ in range(2):
        reached.clear()
        stop = asyncio.Event()
        serving = asyncio.get_running_loop().create_task(
            stage.app(agent.workflow).serve(stop, together=1, grace="10ms")
        )
        await reached.wait()
        stop.set()
        await serving
    async with stage.app(agent.workflow) as app:
        await parked(app.handle(handle.id), "budget")

        assert asked == [1, 2]
        assert await spent(app, handle.id) == {"turns": "1"}
        assert (await app.inspect.detail(handle.id)).reserved == {"turns": "1"}


async def test_a_model_call_that_is_cut_off_again_and_again_ends_at_its_retry_limit(stage: Stage) -> None:
    """Requirement 68. However much money there is."""
    reached, never = asyncio.Event(), asyncio.Event()

    class Hanging:
        name = "hanging"

        async def ask(self, request: agents.Request, said: agents.Said) -> agents.Reply:  # noqa: ARG002
            reached.set()
            await never.wait()
            return agents.Reply("never")

    agent = Desk().agent(model=Hanging(), limits=agents.Limits(turns=99), retry=mp.Retry(2, first="1ms"))
    async with stage.app(agent.workflow).client() as app:
        handle = await app.start(agent.workflow, agents.Task("x"), budget=agent.budget)
    for _ in range(2):
        reached.clear()
        stop = asyncio.Event()
        serving = asyncio.get_running_loop().create_task(
            stage.app(agent.workflow).serve(stop, together=1, grace="10ms")
        )
        await reached.wait()
        stop.set()
        await serving
    async with stage.app(agent.workflow) as app:
        with pytest.raises(mp.RunFailed, match="in each of 2 attempts"):
            await app.handle(handle.id).result(timeout="60s")

        assert (await row_of(app, handle.id)).startswith("model_failed: ")


async def test_a_model_that_turns_a_call_away_is_asked_again_later_and_nothing_is_charged(stage: Stage) -> None:
    """Requirement 65."""
    desk = Desk()
    agent = desk.agent([mp.NotSent("429", retry_after=timedelta(milliseconds=5)), "Done."])
    async with stage.app(agent.workflow) as app:
        handle = await app.start(agent.workflow, agents.Task("x"), budget={"turns": 1})

        assert await handle.result(timeout="60s") == "Done."
        assert await spent(app, handle.id) == {"turns": "1"}


async def test_an_attempt_that_broke_off_is_charged_because_nobody_knows_what_was_counted(stage: Stage) -> None:
    """Requirement 18. A provider that was not there for a moment."""
    desk = Desk()
    agent = desk.agent([TimeoutError("read"), "Done."])
    async with stage.app(agent.workflow) as app:
        handle = await app.start(agent.workflow, agents.Task("x"), budget={"turns": 5})

        assert await handle.result(timeout="60s") == "Done."
        assert await spent(app, handle.id) == {"turns": "2"}


@pytest.mark.parametrize(
    "failure",
    [agents.ContextTooLong, agents.ModelUnpaid, agents.ModelUnauthorized, agents.ModelRefused],
)
async def test_a_failure_that_time_does_not_mend_ends_the_run_at_once_with_its_code(
    stage: Stage, failure: type[agents.ModelFailed]
) -> None:
    """Requirement 65."""
    desk = Desk()
    agent = desk.agent(failure("it said no"))
    async with stage.app(agent.workflow) as app:
        handle = await app.start(agent.workflow, agents.Task("x"), budget=agent.budget)

        with pytest.raises(mp.RunFailed, match="it said no"):
            await handle.result(timeout="60s")
        assert await row_of(app, handle.id) == f"{failure.code}: it said no"
        assert len(desk.asked) == 1
        assert await spent(app, handle.id) == {}


async def test_a_model_whose_provider_is_down_is_held_by_a_breaker_of_its_agent(stage: Stage) -> None:
    """Requirement 64. Requirement 70. Another agent of the same program goes on."""
    desk = Desk()
    down: Any = [ConnectionError("down")] * 9
    agent = desk.agent(down, retry=mp.Retry(3, first="1ms"))
    fine = agents.Agent("fine", version="1", model=agents.ScriptedModel("Hello.", name="other"), result=str)
    async with stage.app(agent.workflow, fine.workflow, breaker=mp.Breaker(failures=2, cooldown="60s")) as app:
        handle = await app.start(agent.workflow, agents.Task("x"), budget=agent.budget)
        await parked(handle, "breaker")

        going_on = await app.start(fine.workflow, agents.Task("x"), budget=fine.budget)
        assert await going_on.result(timeout="60s") == "Hello."
        assert [one.switch.scope for one in await app.switches()] == ["tool:ask.refund-desk"]
