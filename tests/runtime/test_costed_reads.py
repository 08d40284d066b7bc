"""A read that costs money: never in doubt, tried again as its policy says, and paid for each time it was tried."""

import asyncio
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import httpx
import pytest

import milepost as mp
from tests.runtime.stage import Stage, names, parked, until

USD = Decimal(2)
Answer = Callable[[mp.Call], str]


class Model:
    """A model that answers as it is told, and remembers which attempts reached it."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.attempts: list[int] = []

    def asking(self, **options: Any) -> mp.Workflow[None, str]:
        """Return a workflow that asks it once, for two dollars at most."""

        @mp.tool(effect="read", cost={"usd": 2}, **{"retry": mp.Retry(3, first="1ms"), **options})
        async def ask(call: mp.Call) -> str:
            self.attempts.append(call.attempt)
            return self.answer(call)

        @mp.workflow(version="1", name="flow", tools=[ask])
        async def flow(run: mp.Run) -> str:
            return await ask()

        return flow


def raising(times: int, error: Exception, spent: str | None = None) -> Answer:
    def answer(call: mp.Call) -> str:
        if spent is not None:
            call.spent(usd=Decimal(spent))
        if call.attempt <= times:
            raise error
        return "yes"

    return answer


async def failures(app: mp.App, run_id: str) -> list[dict[str, Any]]:
    lines = await app.inspect.journal(run_id)
    return [{"at": line.at, **line.fields} for line in lines if line.name == "effect_failed"]


async def test_a_costed_read_that_raises_is_tried_again_and_is_never_in_doubt(stage: Stage) -> None:
    model = Model(raising(2, RuntimeError("line broke")))
    flow = model.asking()
    async with stage.app(flow) as app:
        handle = await app.start(flow, budget={"usd": 20})
        assert await handle.result(timeout="30s") == "yes"

        assert model.attempts == [1, 2, 3]
        assert "effect_unknown" not in await names(app, handle.id)
        first, second = await failures(app, handle.id)
        assert (first["attempt"], first["reason"], first["why"]) == (1, "raised", "RuntimeError: line broke")
        assert (first["final"], second["final"]) == (False, False)
        assert all(failed["retry_at"] >= failed["at"] for failed in (first, second))
        started = [line.fields for line in await app.inspect.journal(handle.id) if line.name == "effect_started"]
        assert [fields.get("reserve") for fields in started] == [{"usd": "2"}] * 3


async def test_a_costed_read_that_keeps_raising_fails_for_good_and_is_paid_for_each_try(stage: Stage) -> None:
    model = Model(raising(9, RuntimeError("line broke")))
    flow = model.asking()
    async with stage.app(flow) as app:
        handle = await app.start(flow, budget={"usd": 20})
        with pytest.raises(mp.RunFailed, match="line broke"):
            await handle.result(timeout="30s")

        last = (await failures(app, handle.id))[-1]
        assert (last["attempt"], last["final"], last.get("retry_at")) == (3, True, None)
        assert [Decimal(failed["spent"]["usd"]) for failed in await failures(app, handle.id)] == [USD] * 3
        assert model.attempts == [1, 2, 3]


async def test_a_costed_read_that_says_what_it_spent_is_paid_that_and_no_more(stage: Stage) -> None:
    model = Model(raising(9, RuntimeError("line broke"), spent="0.5"))
    flow = model.asking(retry=mp.Retry(1))
    async with stage.app(flow) as app:
        handle = await app.start(flow, budget={"usd": 20})
        with pytest.raises(mp.RunFailed, match="line broke"):
            await handle.result(timeout="30s")

        (last,) = await failures(app, handle.id)
        assert Decimal(last["spent"]["usd"]) == Decimal("0.5")


async def test_a_costed_read_that_was_rejected_is_not_tried_again(stage: Stage) -> None:
    model = Model(raising(9, mp.Rejected("no such model"), spent="0.5"))
    flow = model.asking()
    async with stage.app(flow) as app:
        handle = await app.start(flow, budget={"usd": 20})
        with pytest.raises(mp.RunFailed, match="no such model"):
            await handle.result(timeout="30s")

        (last,) = await failures(app, handle.id)
        assert (last["reason"], last["final"], Decimal(last["spent"]["usd"])) == ("rejected", True, Decimal("0.5"))
        assert model.attempts == [1]


async def test_a_costed_read_that_takes_too_long_is_a_failure_like_any_other(stage: Stage) -> None:
    hanging = asyncio.Event()
    attempts: list[int] = []

    @mp.tool(effect="read", cost={"usd": 2}, timeout="50ms", retry=mp.Retry(2, first="1ms"))
    async def ask(call: mp.Call) -> str:
        attempts.append(call.attempt)
        if call.attempt == 1:
            await hanging.wait()
        return "yes"

    @mp.workflow(version="1", tools=[ask])
    async def flow(run: mp.Run) -> str:
        return await ask()

    async with stage.app(flow) as app:
        handle = await app.start(flow, budget={"usd": 20})
        assert await handle.result(timeout="30s") == "yes"

        (failed,) = await failures(app, handle.id)
        assert (failed["reason"], failed["final"]) == ("raised", False)
        assert "no answer within 0.05 s" in failed["why"]
        assert attempts == [1, 2]


async def test_a_pause_that_the_provider_asks_for_is_kept_by_a_costed_read_too(stage: Stage) -> None:
    model = Model(raising(1, mp.NotSent("busy", retry_after="1h")))
    flow = model.asking()
    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow, budget={"usd": 20})
        waiting = await parked(handle, "time")

        assert waiting.until is not None
        (failed,) = await failures(app, handle.id)
        assert failed["retry_at"] - failed["at"] == 3_600_000
        stage.clock.advance("1h")
        assert await handle.result(timeout="30s") == "yes"


def refused(status: int, **headers: str) -> Exception:
    """Return what httpx raises for an answer of this status."""
    response = httpx.Response(status, headers=headers, request=httpx.Request("POST", "http://model.test"))
    return httpx.HTTPStatusError("refused", request=response.request, response=response)


async def test_what_httpx_proves_of_a_costed_read_decides_whether_it_is_tried_again(stage: Stage) -> None:
    forbidden, busy = Model(raising(9, refused(403))), Model(raising(1, refused(429, **{"Retry-After": "3600"})))
    flow, other = forbidden.asking(), busy.asking()
    async with stage.app(flow, still=True) as app:
        with pytest.raises(mp.RunFailed, match="refused"):
            await (await app.start(flow, budget={"usd": 20})).result(timeout="30s")
        assert forbidden.attempts == [1]
    async with stage.app(other, still=True) as app:
        handle = await app.start(other, budget={"usd": 20})
        await parked(handle, "time")
        (failed,) = await failures(app, handle.id)
        assert failed["retry_at"] - failed["at"] == 3_600_000


@pytest.mark.parametrize(
    "error",
    [mp.NotSent("busy"), mp.NotSent("busy", retry_after="soon"), RuntimeError("line broke")],
    ids=["no pause", "no span", "another error"],
)
async def test_where_nobody_asks_for_a_pause_a_read_is_called_again_as_soon_as_its_policy_says(
    stage: Stage, error: Exception
) -> None:
    model = Model(raising(1, error))
    flow = model.asking(retry=mp.Retry(2, first="0s"))
    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow, budget={"usd": 20})
        assert await handle.result(timeout="30s") == "yes"

        (failed,) = await failures(app, handle.id)
        assert failed["retry_at"] == failed["at"]


async def test_a_costed_read_that_was_cut_off_is_called_again_and_both_tries_are_paid(stage: Stage) -> None:
    reached = asyncio.Event()
    hanging = asyncio.Event()

    @mp.tool(effect="read", cost={"usd": 2})
    async def ask(call: mp.Call) -> str:
        reached.set()
        if call.attempt == 1:
            await hanging.wait()
        return "yes"

    @mp.workflow(version="1", tools=[ask])
    async def flow(run: mp.Run) -> str:
        return await ask()

    stop = asyncio.Event()
    async with stage.app(flow).client() as app:
        handle = await app.start(flow, budget={"usd": 4})
    serving = asyncio.get_running_loop().create_task(stage.app(flow).serve(stop, together=1, grace="10ms"))
    await reached.wait()
    stop.set()
    await serving
    async with stage.app(flow) as app:
        assert await app.handle(handle.id, flow).result(timeout="30s") == "yes"

        lines = await app.inspect.journal(handle.id)
        started = [line.fields for line in lines if line.name == "effect_started"]
        assert [Decimal(fields["reserve"]["usd"]) for fields in started] == [USD, USD]
        assert [fields.get("resend", False) for fields in started] == [False, True]


@pytest.mark.parametrize(
    ("says", "attempts"),
    [(mp.Rejected("no such model"), [1, 2]), (mp.NotSent("too many requests"), [1, 2, 3])],
)
async def test_what_a_costed_read_is_told_after_it_was_cut_off_counts_as_without_that(
    stage: Stage, says: Exception, attempts: list[int]
) -> None:
    """Requirement 68."""
    reached, hanging = asyncio.Event(), asyncio.Event()
    seen: list[int] = []

    @mp.tool(effect="read", cost={"usd": 2}, retry=mp.Retry(3, first="1ms"))
    async def ask(call: mp.Call) -> str:
        seen.append(call.attempt)
        reached.set()
        if call.attempt == 1:
            await hanging.wait()
        raise says

    @mp.workflow(version="1", tools=[ask])
    async def flow(run: mp.Run) -> str:
        return await ask()

    stop = asyncio.Event()
    async with stage.app(flow).client() as app:
        handle = await app.start(flow, budget={"usd": 100})
    serving = asyncio.get_running_loop().create_task(stage.app(flow).serve(stop, together=1, grace="10ms"))
    await reached.wait()
    stop.set()
    await serving
    async with stage.app(flow) as app:
        with pytest.raises(mp.RunFailed, match=str(says)):
            await app.handle(handle.id, flow).result(timeout="30s")

        assert seen == attempts


async def test_the_answer_of_a_costed_read_stands_in_the_record_and_is_not_paid_again(stage: Stage) -> None:
    model = Model(lambda _: "yes")
    flow = model.asking()

    async with stage.app(flow) as app:
        handle = await app.start(flow, budget={"usd": 2})
        assert await handle.result(timeout="30s") == "yes"
        assert model.attempts == [1]

    async def again() -> bool:
        async with stage.app(flow) as app:
            return await app.handle(handle.id, flow).result(timeout="30s") == "yes"

    await until(again)
    assert model.attempts == [1]


async def test_an_answer_that_was_paid_for_is_durable_before_anything_is_chosen_by_it(stage: Stage) -> None:
    """Requirement 19."""
    seen: list[list[tuple[object, ...]]] = []

    @mp.tool(effect="read", cost={"usd": 2})
    async def ask() -> str:
        return "look"

    @mp.tool(effect="read")
    def look() -> str:
        seen.append(stage.rows("SELECT outcome FROM mp_effects"))  # what is not settled
        return "seen"

    @mp.workflow(version="1", tools=[ask, look])
    async def flow(run: mp.Run) -> str:
        await ask()
        return await look()

    async with stage.app(flow) as app:
        handle = await app.start(flow, budget={"usd": 2})
        assert await handle.result(timeout="30s") == "seen"

    assert seen == [[]]


async def test_a_costed_read_whose_answer_cannot_be_stored_fails_at_once_and_is_paid(stage: Stage) -> None:
    """Requirement 68. Asked again, it would say the same."""
    asked: list[int] = []

    @mp.tool(effect="read", cost={"usd": 2})
    async def ask() -> float:
        asked.append(1)
        return float("nan")

    @mp.workflow(version="1", tools=[ask])
    async def flow(run: mp.Run) -> float:
        return await ask()

    async with stage.app(flow) as app:
        handle = await app.start(flow, budget={"usd": 20})
        with pytest.raises(mp.RunFailed, match="result of ask"):
            await handle.result(timeout="30s")

        assert len(asked) == 1
        assert (await app.inspect.detail(handle.id)).spent == {"usd": "2"}


async def test_what_a_costed_read_is_paid_follows_from_its_arguments(stage: Stage) -> None:
    @mp.tool(effect="read", retry=mp.Retry(2, first="1ms"))
    async def ask(words: int) -> str:
        raise RuntimeError("line broke")

    @ask.cost
    def _(words: int) -> dict[str, Decimal]:
        return {"usd": Decimal(words) / 100}

    @mp.workflow(version="1", tools=[ask])
    async def flow(run: mp.Run) -> str:
        return await ask(50)

    async with stage.app(flow) as app:
        handle = await app.start(flow, budget={"usd": 20})
        with pytest.raises(mp.RunFailed, match="line broke"):
            await handle.result(timeout="30s")

        assert [Decimal(failed["spent"]["usd"]) for failed in await failures(app, handle.id)] == [Decimal("0.5")] * 2
