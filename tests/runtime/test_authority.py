"""Scopes, approvals and money: deny by default, park and ask, never raise into the segment."""

import asyncio
from decimal import Decimal

import pytest

import milepost as mp
from tests.runtime.stage import Stage, has_outcome, names, parked, status_of, until


class Outside:
    def __init__(self) -> None:
        self.sent: list[str] = []


@pytest.fixture
def outside() -> Outside:
    return Outside()


def one_call(tool: mp.Tool[[str], str]) -> mp.Workflow[str, str]:
    @mp.workflow(version="1", name="flow", tools=[tool])
    async def flow(run: mp.Run, to: str) -> str:
        return await tool(to)

    return flow


def mailing(outside: Outside, **options: object) -> mp.Tool[[str], str]:
    @mp.tool(name="mail", **options)  # type: ignore[call-overload, untyped-decorator]
    async def mail(call: mp.Call, to: str) -> str:
        outside.sent.append(to)
        if to == "flaky" and call.attempt == 1:
            raise mp.NotSent("no route")
        if to == "lost":
            raise RuntimeError("line broke")
        return f"sent {to}"

    tool: mp.Tool[[str], str] = mail
    return tool


# ---------------------------------------------------------------- scopes


async def test_a_missing_scope_parks_and_a_grant_lifts_it(stage: Stage, outside: Outside) -> None:
    """Requirement 17. Requirement 20. Requirement 40. The message says what to type."""
    flow = one_call(mailing(outside, scopes=["mail:send", "mail:read"]))
    async with stage.app(flow) as app:
        handle = await app.start(flow, "ann", authority=mp.Authority("bot", scopes=["mail:read"]))
        waiting = await parked(handle, "authority")
        assert waiting.ask == f"milepost grant {handle.id} mail:send"
        assert outside.sent == []
        assert [(e.path, e.outcome) for e in await app.inspect.open_effects()] == [("flow/mail#1", "not_started")]
        await app.grant(handle.id, by="ann", scopes=["mail:send"])
        assert await handle.result(timeout="30s") == "sent ann"
        assert outside.sent == ["ann"]


async def test_a_run_without_authority_holds_no_scope(stage: Stage, outside: Outside) -> None:
    flow = one_call(mailing(outside, scopes=["mail:send"]))
    async with stage.app(flow) as app:
        await parked(await app.start(flow, "ann"), "authority")
        assert outside.sent == []


async def test_an_expired_authority_starts_nothing(stage: Stage, outside: Outside) -> None:
    """Requirement 18. Requirement 49. A credential's expiry is looked at again before each effect."""
    tool = mailing(outside, scopes=["mail:send"])

    @mp.workflow(version="1", tools=[tool])
    async def flow(run: mp.Run) -> str:
        await tool("ann")
        await run.sleep("2h")
        return await tool("bob")

    async with stage.app(flow, still=True) as app:
        authority = mp.Authority("bot", scopes=["mail:send"], expires="1h")
        handle = await app.start(flow, authority=authority)
        await parked(handle, "time")
        stage.clock.advance("2h")
        await parked(handle, "authority")
        assert outside.sent == ["ann"]


async def test_a_grant_outlives_the_segment_and_a_restart(stage: Stage, outside: Outside) -> None:
    tool = mailing(outside, scopes=["mail:send"])
    flow = mp.Workflow("flow", version="1", input=int, result=str, tools=[tool])

    @flow.segment
    async def first(run: mp.Run, n: int) -> mp.Next[str]:
        await tool("ann")
        return mp.go(second, n)

    @flow.segment
    async def second(run: mp.Run, n: int) -> mp.Next[str]:
        await run.receive("go", int)
        return mp.done(await tool("bob"))

    async with stage.app(flow) as app:
        handle = await app.start(flow, 1)
        await parked(handle, "authority")
        await app.grant(handle.id, by="ann", scopes=["mail:send"])
        await parked(handle, "signal")
    async with stage.app(flow) as app:
        await app.send(handle.id, "go", 1)
        assert await app.handle(handle.id, flow).result(timeout="30s") == "sent bob"


# ---------------------------------------------------------------- approvals


async def test_an_approval_is_asked_shown_from_the_stored_bytes_and_used_once(stage: Stage, outside: Outside) -> None:
    """Requirement 36. Requirement 45."""
    tool = mailing(outside, approval=True)

    @mp.workflow(version="1", tools=[tool])
    async def flow(run: mp.Run) -> list[str]:
        return [await tool("ann"), await tool("ann")]

    async with stage.app(flow) as app:
        handle = await app.start(flow)
        waiting = await parked(handle, "approval")
        first = (await app.inspect.approvals("asked"))[0]
        assert (first.tool, first.path, first.args) == ("mail", "flow/mail#1", b'{"to":"ann"}')
        assert first.id in waiting.ask
        assert outside.sent == []
    async with stage.app(flow) as app:
        handle = app.handle(handle.id, flow)
        await app.approve(first.id, by="ann")

        async def asked_again() -> bool:
            return [row.path for row in await app.inspect.approvals("asked")] == ["flow/mail#2"]

        await until(asked_again)
        assert outside.sent == ["ann"]
        with pytest.raises(mp.UnknownApproval):
            await app.approve(first.id, by="ann")
        second = (await app.inspect.approvals("asked"))[0]
        assert second.id != first.id
        await app.approve(second.id, by="ann")
        assert await handle.result(timeout="30s") == ["sent ann", "sent ann"]


async def test_a_denied_effect_raises_denied_and_is_never_sent(stage: Stage, outside: Outside) -> None:
    """Requirement 17. Identically on re-entry."""
    tool = mailing(outside, approval=True)
    seen = []

    @mp.workflow(version="1", tools=[tool])
    async def flow(run: mp.Run) -> str:
        try:
            await tool("ann")
        except mp.Denied as denied:
            seen.append((denied.path, denied.why))
        await run.receive("go", int)
        return "gave up"

    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await parked(handle, "approval")
        await app.deny((await app.inspect.approvals())[0].id, by="ann", why="not today")
        await parked(handle, "signal")
        await app.send(handle.id, "go", 1)
        assert await handle.result(timeout="30s") == "gave up"
        assert outside.sent == []
        assert seen == [("flow/mail#1", "denied by ann: not today")] * 2


async def test_an_approval_belongs_to_the_effect_so_a_retry_needs_no_second_one(stage: Stage, outside: Outside) -> None:
    flow = one_call(mailing(outside, approval=True, retry=mp.Retry(3, first="1ms")))
    async with stage.app(flow) as app:
        handle = await app.start(flow, "flaky")
        await parked(handle, "approval")
        await app.approve((await app.inspect.approvals())[0].id, by="ann")
        assert await handle.result(timeout="30s") == "sent flaky"
        assert outside.sent == ["flaky", "flaky"]
        assert len(await app.inspect.approvals()) == 1


async def test_a_rule_decides_which_calls_need_approval_and_one_that_errs_asks(stage: Stage, outside: Outside) -> None:
    """Deny by default."""

    def needs(to: str) -> bool:
        if to == "odd":
            raise KeyError(to)
        return to != "ann"

    flow = one_call(mailing(outside, approval=needs))
    async with stage.app(flow) as app:
        assert await (await app.start(flow, "ann")).result(timeout="30s") == "sent ann"
        await parked(await app.start(flow, "bob"), "approval")
        await parked(await app.start(flow, "odd"), "approval")
        assert outside.sent == ["ann"]


async def test_an_approval_id_may_be_abbreviated_and_an_unknown_one_is_refused(stage: Stage, outside: Outside) -> None:
    flow = one_call(mailing(outside, approval=True))
    async with stage.app(flow) as app:
        handle = await app.start(flow, "ann")
        await parked(handle, "approval")
        full = (await app.inspect.approvals())[0].id
        with pytest.raises(mp.UnknownApproval):
            await app.approve("ap-nothing", by="ann")
        await app.approve(full[:10], by="ann")
        assert await handle.result(timeout="30s") == "sent ann"


async def test_a_read_with_approval_waits_too(stage: Stage, outside: Outside) -> None:
    flow = one_call(mailing(outside, effect="read", approval=True))
    async with stage.app(flow) as app:
        handle = await app.start(flow, "ann")
        await parked(handle, "approval")
        assert outside.sent == []
        await app.approve((await app.inspect.approvals())[0].id, by="ann")
        assert await handle.result(timeout="30s") == "sent ann"


# ---------------------------------------------------------------- money


async def test_a_cost_without_a_budget_parks_and_a_grant_lifts_it(stage: Stage, outside: Outside) -> None:
    """Requirement 20. The default is zero: nothing is spent that was not granted."""
    flow = one_call(mailing(outside, cost={"usd": Decimal("1.5")}))
    async with stage.app(flow) as app:
        handle = await app.start(flow, "ann")
        waiting = await parked(handle, "budget")
        assert waiting.ask == f"milepost grant {handle.id} --budget usd=1.5"
        assert outside.sent == []
        await app.grant(handle.id, by="ann", budget={"usd": 1})
        await status_of(handle, "parked")

        async def asks_for_the_rest() -> bool:
            now = (await handle.status()).waiting
            return now is not None and now.ask.endswith("--budget usd=0.5")

        await until(asks_for_the_rest)
        await app.grant(handle.id, by="ann", budget={"usd": Decimal("0.5")})
        assert await handle.result(timeout="30s") == "sent ann"
        detail = await app.inspect.detail(handle.id)
        assert (detail.granted, detail.spent, detail.reserved) == ({"usd": "1.5"}, {"usd": "1.5"}, {})


async def test_what_was_really_spent_is_booked_and_the_rest_is_free_again(stage: Stage) -> None:
    @mp.tool(effect="read", cost={"usd": 10, "calls": 1})
    async def model(call: mp.Call, text: str) -> str:
        call.spent(usd=Decimal("0.25"), calls=1)
        return text.upper()

    @mp.workflow(version="1", tools=[model])
    async def flow(run: mp.Run) -> str:
        one = await model("a")
        return one + await model("b")

    async with stage.app(flow) as app:
        handle = await app.start(flow, budget={"usd": Decimal("10.25"), "calls": 2})
        assert await handle.result(timeout="30s") == "AB"
        assert (await app.inspect.detail(handle.id)).spent == {"usd": "0.50", "calls": "2"}


async def test_an_unknown_effect_keeps_its_reservation(stage: Stage, outside: Outside) -> None:
    tool = mailing(outside, cost={"usd": 2})

    async def call(to: str) -> str:
        return await tool(to)

    @mp.workflow(version="1", tools=[tool])
    async def flow(run: mp.Run) -> list[str]:
        return await run.map(call, ["lost", "ann"], limit=1)

    async with stage.app(flow) as app:
        handle = await app.start(flow, budget={"usd": 3})
        await has_outcome(app, handle.id, "flow/0.0/mail#1", "unknown")
        await parked(handle, "unknown")
        assert (await app.inspect.detail(handle.id)).reserved == {"usd": "2"}


async def test_money_that_one_arm_sets_free_lets_the_next_one_go(stage: Stage) -> None:
    sent = []

    @mp.tool(effect="keyed", key_ttl="1h", cost={"usd": 3})
    async def act(call: mp.Call, n: int) -> int:
        sent.append(n)
        await asyncio.sleep(0.02)
        call.spent(usd=1)
        return n

    async def call(n: int) -> int:
        return await act(n)

    @mp.workflow(version="1", tools=[act])
    async def flow(run: mp.Run) -> list[int]:
        return await run.map(call, [1, 2])

    async with stage.app(flow) as app:
        handle = await app.start(flow, budget={"usd": 4})
        assert await handle.result(timeout="30s") == [1, 2]
        assert (await app.inspect.detail(handle.id)).spent == {"usd": "2"}


async def test_a_final_failure_costs_what_was_said_and_frees_the_rest(stage: Stage) -> None:
    @mp.tool(effect="keyed", cost={"usd": 3})
    async def act(call: mp.Call) -> int:
        call.spent(usd=1)
        raise mp.Rejected("no")

    @mp.workflow(version="1", tools=[act])
    async def flow(run: mp.Run) -> str:
        try:
            await act()
        except mp.StepFailed:
            return "refused"
        return ""

    async with stage.app(flow) as app:
        handle = await app.start(flow, budget={"usd": 3})
        assert await handle.result(timeout="30s") == "refused"
        detail = await app.inspect.detail(handle.id)
        assert (detail.spent, detail.reserved) == ({"usd": "1"}, {})


async def test_a_float_is_no_budget(stage: Stage, outside: Outside) -> None:
    flow = one_call(mailing(outside))
    async with stage.app(flow) as app:
        with pytest.raises(mp.InvalidValue, match="never float"):
            await app.start(flow, "ann", budget={"usd": 1.5})  # type: ignore[dict-item]
        assert await app.inspect.counts() == {}


async def test_nothing_of_a_waiting_effect_stands_as_started(stage: Stage, outside: Outside) -> None:
    """Requirement 27. An effect that waits is recorded as not started."""
    flow = one_call(mailing(outside, approval=True))
    async with stage.app(flow) as app:
        handle = await app.start(flow, "ann")
        await parked(handle, "approval")
        seen = await names(app, handle.id)
        assert "effect_planned" in seen
        assert "effect_started" not in seen
