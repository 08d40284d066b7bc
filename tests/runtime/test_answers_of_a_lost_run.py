"""What an attempt sees after its run was taken away: it writes nothing; what it saw is kept and settles the effect."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import httpx
import pytest

import milepost as mp
from tests.runtime.stage import Stage, has_entry, has_outcome, names, until


class Service:
    """Holds a call until it is let go, then answers or raises as it was told."""

    def __init__(self, answer: Callable[[], str]) -> None:
        self.answer = answer
        self.go_on = threading.Event()
        self.calls: list[int] = []

    def flow(self, **options: Any) -> mp.Workflow[None, str]:
        @mp.tool(**{"name": "slow", "effect": "keyed", "key_ttl": "1h", **options})
        def slow(call: mp.Call) -> str:
            self.calls.append(call.attempt)
            self.go_on.wait(60)
            return self.answer()

        @mp.workflow(version="1", name="flow", tools=[slow])
        async def flow(run: mp.Run) -> str:
            return await slow()

        return flow


def raises(error: Exception) -> Callable[[], str]:
    def answer() -> str:
        raise error

    return answer


async def killed_in_flight(
    stage: Stage, app: mp.App, flow: mp.Workflow[None, str], *, let_go: bool = False, **start: Any
) -> str:
    """Start a run and kill it from another app while its one call is in flight; return its id.

    With `let_go`, return only when the worker has let go of it. Else that may, or may not, be before its call ends.
    """
    handle = await app.start(flow, **start)
    await has_entry(app, handle.id, "effect_started")
    operator = stage.app(flow)
    async with operator.client():
        await operator.kill(handle.id, why="runaway")

    async def is_let_go() -> bool:
        return handle.id not in app._need_engine().sessions

    if let_go:
        await until(is_let_go, "the worker lets go of it")
    return handle.id


def refused() -> Exception:
    """Return what httpx raises where a provider says that somebody may not."""
    request = httpx.Request("POST", "http://provider.test")
    return httpx.HTTPStatusError("forbidden", request=request, response=httpx.Response(403, request=request))


@pytest.mark.parametrize("let_go", [False, True], ids=["held or lost", "lost"])
@pytest.mark.parametrize(
    ("error", "outcome", "said"),
    [
        (mp.NotSent("no route"), "failed", ("not_sent", "no route")),
        (mp.Rejected("card stolen"), "failed", ("rejected", "card stolen")),
        (httpx.ConnectError("refused"), "failed", ("not_sent", "ConnectError: refused")),
        (refused(), "failed", ("rejected", "HTTP 403 Forbidden")),
    ],
    ids=["not sent", "rejected", "httpx: not sent", "httpx: rejected"],
)
async def test_proof_that_it_did_not_happen_settles_the_effect_of_a_lost_run(
    stage: Stage, error: Exception, outcome: str, said: tuple[str, str], *, let_go: bool
) -> None:
    """Also where its worker has heard of the loss, and given the thread up, before the thread has answered."""
    service = Service(raises(error))
    flow = service.flow()
    async with stage.app(flow) as app:
        run_id = await killed_in_flight(stage, app, flow, let_go=let_go)
        service.go_on.set()
        await has_outcome(app, run_id, "flow/slow#1", outcome)

        failed = next(line.fields for line in await app.inspect.journal(run_id) if line.name == "effect_failed")
        assert (failed["reason"], failed["why"]) == said
        assert (failed["attempt"], failed["by"], failed["final"]) == (1, "evidence", True)
        assert service.calls == [1]


async def test_an_answer_settles_the_effect_of_a_lost_run_with_its_very_value(stage: Stage) -> None:
    service = Service(lambda: "receipt 7")
    flow = service.flow()
    async with stage.app(flow) as app:
        run_id = await killed_in_flight(stage, app, flow)
        service.go_on.set()
        await has_outcome(app, run_id, "flow/slow#1", "confirmed")

        lines = await app.inspect.journal(run_id)
        confirmed = next(line.fields for line in lines if line.name == "effect_confirmed")
        assert (confirmed["result"], confirmed["attempt"], confirmed["by"]) == ("receipt 7", 1, "evidence")


@pytest.mark.parametrize("let_go", [False, True], ids=["held or lost", "lost"])
async def test_an_error_that_proves_nothing_only_says_that_the_attempt_of_a_lost_run_is_over(
    stage: Stage, *, let_go: bool
) -> None:
    service = Service(raises(RuntimeError("line broke")))
    flow = service.flow()
    async with stage.app(flow) as app:
        run_id = await killed_in_flight(stage, app, flow, let_go=let_go)
        service.go_on.set()
        await has_entry(app, run_id, "attempt_quieted")

        assert "effect_failed" not in await names(app, run_id)
        assert [effect.outcome for effect in await app.inspect.effects(run_id)] == ["unknown"]


async def test_a_costed_read_of_a_lost_run_leaves_nothing_to_settle(stage: Stage) -> None:
    service = Service(raises(RuntimeError("line broke")))
    flow = service.flow(effect="read", key_ttl=None, cost={"usd": 2})
    async with stage.app(flow) as app:
        run_id = await killed_in_flight(stage, app, flow, budget={"usd": 5})
        service.go_on.set()
        await has_outcome(app, run_id, "flow/slow#1", "failed")

        failed = next(line.fields for line in await app.inspect.journal(run_id) if line.name == "effect_failed")
        assert failed["final"] is True
        assert service.calls == [1]


def two_arms(
    second: Callable[[], str], ended: list[str], **options: Any
) -> tuple[mp.Workflow[None, str], asyncio.Event]:
    """Return a workflow with two calls at once, the second of which keeps a cancellation to itself and then answers.

    So does the first, should its worker hear of the loss before it has answered.
    """
    go_on = asyncio.Event()

    @mp.tool(effect="keyed", key_ttl="1h")
    async def first() -> str:
        with suppress(asyncio.CancelledError):
            await go_on.wait()
        return "receipt"

    @mp.tool(**{"name": "slow", "effect": "keyed", "key_ttl": "1h", **options})
    async def slow() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
        return second()

    @mp.workflow(version="1", name="flow", tools=[first, slow])
    async def flow(run: mp.Run) -> str:
        return "".join(await run.gather(first(), slow()))

    return flow, go_on


@pytest.mark.parametrize(
    ("answer", "outcome", "said"),
    [
        (raises(mp.NotSent("no route")), "failed", ("effect_failed", "not_sent", "no route")),
        (raises(mp.Rejected("card stolen")), "failed", ("effect_failed", "rejected", "card stolen")),
        (lambda: "late", "confirmed", ("effect_confirmed", None, None)),
    ],
    ids=["not sent", "rejected", "returned"],
)
async def test_what_an_attempt_answers_after_its_process_let_go_of_the_run_still_counts(
    stage: Stage, answer: Callable[[], str], outcome: str, said: tuple[str, str | None, str | None]
) -> None:
    ended: list[str] = []
    flow, go_on = two_arms(answer, ended)
    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await has_entry(app, handle.id, "effect_started", 2)
        operator = stage.app(flow)
        async with operator.client():
            await operator.kill(handle.id, why="runaway")
        go_on.set()
        await has_outcome(app, handle.id, "flow/first#1", "confirmed")
        await has_outcome(app, handle.id, "flow/slow#1", outcome)

        name, reason, why = said
        lines = [line for line in await app.inspect.journal(handle.id) if line.name == name]
        settled = next(line.fields for line in lines if line.fields.get("result") != "receipt")
        assert (settled.get("reason"), settled.get("why"), settled["by"]) == (reason, why, "evidence")
        assert ended == ["cancelled"]


async def test_an_attempt_that_proves_nothing_after_its_process_let_go_of_the_run_is_over(stage: Stage) -> None:
    ended: list[str] = []
    flow, go_on = two_arms(raises(RuntimeError("line broke")), ended)
    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await has_entry(app, handle.id, "effect_started", 2)
        operator = stage.app(flow)
        async with operator.client():
            await operator.kill(handle.id, why="runaway")
        go_on.set()
        await has_entry(app, handle.id, "attempt_quieted")

        assert {view.path: view.outcome for view in await app.inspect.effects(handle.id)} == {
            "flow/first#1": "confirmed", "flow/slow#1": "unknown",
        }  # fmt: skip


@pytest.mark.parametrize("lost", [False, True], ids=["held", "lost"])
@pytest.mark.parametrize(
    ("error", "reason"), [(mp.NotSent("no route"), "not_sent"), (mp.Rejected("card stolen"), "rejected")]
)
async def test_a_resend_that_did_not_happen_settles_itself_alone(
    stage: Stage, error: Exception, reason: str, *, lost: bool
) -> None:
    """The first attempt may still have happened, whoever holds the run when the second one answers."""
    go_on = asyncio.Event()
    attempts: list[int] = []

    @mp.tool(effect="keyed", key_ttl="1h")
    async def slow(call: mp.Call) -> str:
        attempts.append(call.attempt)
        if call.attempt == 2:
            await go_on.wait()
            raise error
        raise RuntimeError("line broke")

    @mp.workflow(version="1", name="flow", tools=[slow])
    async def flow(run: mp.Run) -> str:
        return await slow()

    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow)
        await has_entry(app, handle.id, "effect_unknown")
        stage.clock.advance("1s")
        await has_entry(app, handle.id, "effect_started", 2)
        if lost:
            operator = stage.app(flow, still=True)
            async with operator.client():
                await operator.kill(handle.id, why="runaway")
        go_on.set()
        await has_entry(app, handle.id, "attempt_settled")

        settled = next(one.fields for one in await app.inspect.journal(handle.id) if one.name == "attempt_settled")
        assert (settled["attempt"], settled["reason"], settled["why"]) == (2, reason, str(error))
        assert [view.outcome for view in await app.inspect.effects(handle.id)] == ["unknown"]
        assert "effect_failed" not in await names(app, handle.id)


async def test_a_call_whose_time_ended_in_a_lost_run_is_not_said_to_be_over_while_its_thread_still_runs(
    stage: Stage,
) -> None:
    service = Service(lambda: "late")
    flow = service.flow(timeout="200ms")
    async with stage.app(flow) as app:
        run_id = await killed_in_flight(stage, app, flow)
        await asyncio.sleep(0.6)  # its time ends, and there is time to say so
        assert "attempt_quieted" not in await names(app, run_id)

        service.go_on.set()

        await has_outcome(app, run_id, "flow/slow#1", "confirmed")
