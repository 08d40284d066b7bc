"""A tool whose provider fails again and again is held, by itself and for everybody, until one call finds it back."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import milepost as mp
from milepost.core import codec
from milepost.core import store_entries as s
from tests.runtime.stage import Patience, Stage, has_entry, names, parked, until

BREAKER = mp.Breaker(3, cooldown="10s", most="40s")
ONCE = mp.Retry(1)
SIX = mp.Retry(6, first="1ms", most="2ms")


class Provider:
    """What is outside: `answer` is what it does to a call."""

    def __init__(self, answer: Callable[[], str]) -> None:
        self.answer = answer
        self.calls = 0
        self.inside = 0
        self.most = 0

    async def call(self) -> str:
        self.calls += 1
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            await asyncio.sleep(0)
            return self.answer()
        finally:
            self.inside -= 1


def away() -> str:
    raise mp.NotSent("connection refused")


def broken() -> str:
    raise RuntimeError("503")


def fine() -> str:
    return "paid"


class Status(Exception):
    """What a client library raises for an HTTP status."""

    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP {status}")
        self.status_code = status


def raises(error: Exception) -> Callable[[], str]:
    def answer() -> str:
        raise error

    return answer


def paying(provider: Provider, **options: Any) -> mp.Workflow[Any, str]:
    declared = {"effect": "keyed", "key_ttl": "24h", "retry": ONCE, "cost": {"usd": 1}, **options}

    @mp.tool(name="pay", **declared)
    async def pay(order: str) -> str:
        return await provider.call()

    @mp.workflow(name="paying", version="1", tools=[pay])
    async def flow(run: mp.Run, order: str) -> str:
        try:
            return await pay(order)
        except mp.StepFailed as failed:
            return f"failed: {failed.why}"

    return flow


async def start(app: mp.App, flow: mp.Workflow[Any, Any], count: int) -> list[mp.Handle[Any]]:
    return [await app.start(flow, f"o-{number}", budget={"usd": 9}) for number in range(count)]


async def audit(app: mp.App) -> list[Any]:
    """What the store's own journal says of breakers."""
    lines = await app.inspect.journal("system")
    return [line.name for line in lines]


async def opened(app: mp.App) -> Any:
    async def ask() -> Any:
        return [switch for switch in await app.inspect.switches() if switch.kind == "breaker"]

    (found,) = await until(ask, "the breaker opens")
    return found


async def test_a_tool_that_fails_repeatedly_is_held_and_its_calls_are_not_started(stage: Stage) -> None:
    """Requirement 64. Requirement 70. The budget of what is held is untouched."""
    provider = Provider(away)
    flow = paying(provider)
    async with stage.app(flow, still=True, breaker=BREAKER) as app:
        for handle in await start(app, flow, 3):
            assert "connection refused" in await handle.result(timeout="30s")
        held = await opened(app)

        (waiting,) = await start(app, flow, 1)
        told = await parked(waiting, "breaker")

        assert (held.scope, provider.calls) == ("tool:pay", 3)
        assert told.ask == "", "nobody has to do anything"
        detail = await app.inspect.detail(waiting.id)
        assert [(effect.outcome, effect.attempt) for effect in detail.effects] == [("not_started", 0)]
        assert (detail.spent, detail.reserved) == ({}, {})


async def test_after_the_cool_down_one_call_finds_out_and_the_rest_follow(stage: Stage) -> None:
    """Requirement 64. Requirement 70."""
    provider = Provider(away)
    flow = paying(provider)
    async with stage.app(flow, still=True, breaker=BREAKER) as app:
        for handle in await start(app, flow, 3):
            await handle.result(timeout="30s")
        await opened(app)
        waiting = await start(app, flow, 5)
        for handle in waiting:
            await parked(handle, "breaker")
        stage.clock.advance("10s")

        async def opened_again() -> bool:
            return (await audit(app)).count("breaker_opened") == 2

        await until(opened_again, "one probe, which found it away")
        held = await opened(app)
        assert provider.calls == 4
        ended = [handle.id for handle in waiting if (await handle.status()).status == "done"]
        assert len(ended) <= 1
        provider.answer = fine
        stage.clock.advance(f"{held.until - stage.clock.now()}ms")

        async def closed() -> bool:
            return bool((await audit(app))[-1] == "breaker_closed")

        await until(closed)
        stage.clock.advance("1s")  # the others are woken one after the other
        results = [await handle.result(timeout="30s") for handle in waiting]

        assert sorted(results)[1:] == ["paid"] * 4, "the first probe found it still away, and its only try was spent"
        assert provider.most == 1 or "breaker_closed" in await audit(app)
        assert (await audit(app))[:2] == ["breaker_opened", "breaker_probed"]
        assert await app.inspect.switches() == []


async def test_a_held_run_rests_without_looking_again_and_again(stage: Stage) -> None:
    provider = Provider(away)
    flow = paying(provider)
    async with stage.app(flow, still=True, breaker=BREAKER) as app:
        for handle in await start(app, flow, 3):
            await handle.result(timeout="30s")
        (waiting,) = await start(app, flow, 1)
        await parked(waiting, "breaker")
        before = await names(app, waiting.id)
        stage.clock.advance("4s")
        await asyncio.sleep(0.5)

        assert await names(app, waiting.id) == before


@pytest.mark.parametrize(
    "answer",
    [
        raises(mp.Rejected("no such customer")),
        raises(Status(400)),
        raises(Status(401)),
        raises(Status(404)),
    ],
    ids=["rejected", "400", "401", "404"],
)
async def test_what_is_not_the_provider_s_fault_never_trips_it(stage: Stage, answer: Callable[[], str]) -> None:
    provider = Provider(answer)
    flow = paying(provider, effect="read", retry=ONCE, key_ttl=None)
    async with stage.app(flow, breaker=BREAKER) as app:
        for handle in await start(app, flow, 5):
            await handle.result(timeout="30s")

        assert provider.calls == 5
        assert await app.inspect.switches() == []


@pytest.mark.parametrize("error", [Status(500), Status(503), Status(429), RuntimeError("reset"), TimeoutError()])
async def test_what_is_the_provider_s_fault_does(stage: Stage, error: Exception) -> None:
    provider = Provider(raises(error))
    flow = paying(provider, effect="read", retry=ONCE, key_ttl=None)
    async with stage.app(flow, still=True, breaker=BREAKER) as app:
        for handle in await start(app, flow, 3):
            await handle.result(timeout="30s")

        assert (await opened(app)).scope == "tool:pay"


async def test_a_provider_s_retry_after_is_the_floor_of_the_cool_down(stage: Stage) -> None:
    provider = Provider(raises(mp.NotSent("429", retry_after="35s")))
    flow = paying(provider)
    async with stage.app(flow, still=True, breaker=BREAKER) as app:
        for handle in await start(app, flow, 3):
            await handle.result(timeout="30s")

        assert (await opened(app)).until == stage.clock.now() + 35_000


async def test_a_free_read_respects_an_open_breaker_and_may_be_the_probe(stage: Stage) -> None:
    provider = Provider(away)

    @mp.tool(effect="read", retry=ONCE)
    async def look(what: str) -> str:
        return await provider.call()

    @mp.workflow(version="1", tools=[look])
    async def looking(run: mp.Run, what: str) -> str:
        try:
            return await look(what)
        except mp.StepFailed:
            return "failed"

    async with stage.app(looking, still=True, breaker=BREAKER) as app:
        for number in range(3):
            assert await (await app.start(looking, f"{number}")).result(timeout="30s") == "failed"
        held = await opened(app)
        provider.answer = fine
        await asyncio.sleep(0.6)
        waiting = await app.start(looking, "x")
        await parked(waiting, "breaker")
        assert provider.calls == 3
        stage.clock.advance(f"{held.until - stage.clock.now()}ms")

        assert await waiting.result(timeout="30s") == "paid"
        assert await app.inspect.switches() == []


async def test_a_tool_whose_calls_must_not_be_made_on_trial_waits_for_a_person(stage: Stage) -> None:
    """No call of an irreversible tool is a probe: if it is lost, a person has to find out about it."""
    provider = Provider(away)
    flow = paying(provider, effect="irreversible", key_ttl=None)
    async with stage.app(flow, still=True, breaker=BREAKER) as app:
        for handle in await start(app, flow, 3):
            await handle.result(timeout="30s")
        provider.answer = fine
        (waiting,) = await start(app, flow, 1)
        told = await parked(waiting, "breaker")
        stage.clock.advance("5m")
        await asyncio.sleep(0.3)
        assert provider.calls == 3
        assert told.ask.startswith("milepost thaw tool:pay --why …")

        thrown = await app._operator().thaw("tool:pay", by="ann", why="their status page is green")

        assert thrown.lifted == 1
        assert await waiting.result(timeout="30s") == "paid"
        assert (await audit(app))[-1] == "breaker_closed"


async def test_the_resend_of_an_unknown_effect_is_a_probe_like_any_other(stage: Stage) -> None:
    provider = Provider(broken)
    flow = paying(provider, retry=SIX)
    async with stage.app(flow, still=True, breaker=BREAKER) as app:
        (handle,) = await start(app, flow, 1)
        await has_entry(app, handle.id, "effect_unknown")
        for attempt in (1, 2, 3):
            await has_entry(app, handle.id, "effect_unknown", attempt)
            stage.clock.advance("4s")
        held = await opened(app)
        provider.answer = fine
        stage.clock.advance("40s")

        assert await handle.result(timeout="30s") == "paid"
        assert held.scope == "tool:pay"
        assert await app.inspect.switches() == []
        entries = [codec.decode(row[0]) for row in stage.rows("SELECT body FROM mp_journal WHERE run = 0 ORDER BY seq")]
        assert isinstance(entries[-1], s.BreakerClosed)
        assert entries[-1].by.startswith(handle.id)


async def test_the_count_survives_a_restart(stage: Stage) -> None:
    """Requirement 70. Requirement 36. Counters that live in a process forget what it has seen."""
    provider = Provider(away)
    flow = paying(provider)
    for number in range(3):
        async with stage.app(flow, still=True, breaker=BREAKER) as app:
            (handle,) = await start(app, flow, 1)
            await handle.result(timeout="30s")
            assert len(await app.inspect.switches()) == (number == 2)
    async with stage.app(flow, still=True, breaker=BREAKER) as app:
        (handle,) = await start(app, flow, 1)
        await parked(handle, "breaker")
        assert provider.calls == 3


async def test_a_breaker_can_be_left_out(stage: Stage) -> None:
    provider = Provider(away)
    flow = paying(provider)
    async with stage.app(flow, breaker=None) as app:
        for handle in await start(app, flow, 7):
            await handle.result(timeout="30s")

        assert provider.calls == 7
        assert await app.inspect.switches() == []


async def test_a_cancelled_probe_gives_its_place_back(stage: Stage) -> None:
    provider = Provider(away)
    patience = Patience()

    async def hangs() -> str:
        patience.ends()
        await asyncio.Event().wait()
        return "never"

    @mp.tool(effect="keyed", key_ttl="24h", retry=ONCE)
    async def pay(order: str) -> str:
        return await hangs() if order == "hangs" else await provider.call()

    @mp.workflow(version="1", tools=[pay])
    async def flow(run: mp.Run, order: str) -> str:
        try:
            async with patience.limit():
                return await pay(order)
        except mp.StepFailed:
            return "failed"

    async with stage.app(flow, still=True, breaker=BREAKER) as app:
        for number in range(3):
            await (await app.start(flow, f"{number}")).result(timeout="30s")
        await opened(app)
        stage.clock.advance("10s")
        hanging = await app.start(flow, "hangs")
        await has_entry(app, hanging.id, "effect_unknown")

        held = await opened(app)

        assert held.until <= stage.clock.now(), "the next one need not wait for the lease of one that was cancelled"
