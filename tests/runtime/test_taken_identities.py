"""A call whose business identity another run holds: it waits, takes the outcome over, or fails; it never sends."""

import asyncio
from typing import Any

import pytest

import milepost as mp
from tests.runtime.stage import Stage, has_entry, names, parked, until


class Bank:
    """Charges orders, each when it is let go."""

    def __init__(self, **options: Any) -> None:
        self.go_on = asyncio.Event()
        self.charged: list[tuple[str, int]] = []

        @mp.tool(name="charge", effect="keyed", once="order", **options)
        async def charge(order: str, cents: int) -> str | None:
            self.charged.append((order, cents))
            await self.go_on.wait()
            return f"receipt {order}" if cents else None

        self.tool = charge

    def flow(self) -> mp.Workflow[tuple[str, int], str | None]:
        @mp.workflow(version="1", name="pay", tools=[self.tool])
        async def flow(run: mp.Run, given: tuple[str, int]) -> str | None:
            return await self.tool(*given)

        return flow


async def lines(app: mp.App, run_id: str, name: str) -> list[dict[str, Any]]:
    return [dict(line.fields) for line in await app.inspect.journal(run_id) if line.name == name]


async def test_the_same_identity_with_other_arguments_is_a_conflict_and_no_attempt(stage: Stage) -> None:
    bank = Bank()
    bank.go_on.set()
    flow = bank.flow()
    async with stage.app(flow) as app:
        one = await app.start(flow, ("o-1", 100))
        await one.result(timeout="30s")
        two = await app.start(flow, ("o-1", 200))
        with pytest.raises(mp.RunFailed, match="other arguments"):
            await two.result(timeout="30s")

        (failed,) = await lines(app, two.id, "effect_failed")
        assert (failed["attempt"], failed["reason"], failed["final"]) == (0, "conflict", True)
        assert one.id in failed["why"]
        assert bank.charged == [("o-1", 100)]
        assert await (await app.start(flow, ("o-1", 100))).result(timeout="30s") == "receipt o-1"


@pytest.mark.parametrize(("cents", "answer"), [(100, "receipt o-1"), (0, None)])
async def test_a_call_waits_for_whoever_holds_its_identity_and_then_takes_the_outcome_over(
    stage: Stage, cents: int, answer: str | None
) -> None:
    bank = Bank(cost={"usd": 2})
    flow = bank.flow()
    async with stage.app(flow, still=True) as app:
        one = await app.start(flow, ("o-1", cents), budget={"usd": 5})
        await has_entry(app, one.id, "effect_started")
        two = await app.start(flow, ("o-1", cents), budget={"usd": 5})
        for _ in range(2):
            assert (await parked(two, "unknown")).ask == ""
            stage.clock.advance("2s")
        bank.go_on.set()
        assert await one.result(timeout="30s") == answer

        async def taken_over() -> bool:
            stage.clock.advance("2s")
            return (await two.status()).status == "done"

        await until(taken_over)
        (confirmed,) = await lines(app, two.id, "effect_confirmed")
        assert (confirmed["attempt"], confirmed["by"], confirmed["spent"]) == (0, "once", {})
        assert (await names(app, two.id)).count("effect_planned") == 1
        assert bank.charged == [("o-1", cents)]
