"""Cancel lets what is in flight finish; kill needs nobody's cooperation; a deadline starts nothing more."""

import asyncio
import threading

import pytest

import milepost as mp
from milepost.stores.api import Query
from tests.runtime.stage import Patience, Stage, has_entry, has_outcome, names, outcome, parked, status_of, until


class Outside:
    """A slow service: it answers when it is let go, and remembers what it was sent."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.answers = asyncio.Event()


@pytest.fixture
def outside() -> Outside:
    return Outside()


def two_calls(outside: Outside, effect: str = "keyed") -> mp.Workflow[None, str]:
    @mp.tool(effect=effect)  # type: ignore[call-overload, untyped-decorator]
    async def slow(order: str) -> str:
        outside.sent.append(order)
        await outside.answers.wait()
        return f"receipt {order}"

    @mp.workflow(version="1", name="flow", tools=[slow])
    async def flow(run: mp.Run) -> str:
        await slow("first")
        return str(await slow("second"))

    return flow


async def sending(outside: Outside) -> None:
    async def ask() -> bool:
        return bool(outside.sent)

    await until(ask)


async def test_cancel_lets_what_is_in_flight_finish_and_starts_nothing_new(stage: Stage, outside: Outside) -> None:
    """Requirement 60. Requirement 18. An operator's interrupt is survived with a known state."""
    flow = two_calls(outside)
    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await sending(outside)
        await app.cancel(handle.id, why="changed our mind")
        await has_entry(app, handle.id, "cancel_asked")
        outside.answers.set()
        with pytest.raises(mp.RunCancelled, match="changed our mind"):
            await handle.result(timeout="30s")
        assert outside.sent == ["first"]
        assert await outcome(app, handle.id, "flow/slow#1") == "confirmed"


async def test_a_parked_run_is_cancelled_at_once(stage: Stage) -> None:
    @mp.workflow(version="1")
    async def flow(run: mp.Run) -> int:
        return await run.receive("go", int)

    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await parked(handle, "signal")
        await app.cancel(handle.id, why="no need")
        await status_of(handle, "cancelled")
        with pytest.raises(mp.WrongStatus):
            await app.cancel(handle.id, why="again")


@pytest.mark.parametrize("how", ["cancel", "kill"])
async def test_what_a_stopped_run_had_planned_is_not_listed_as_open_any_more(
    stage: Stage, outside: Outside, how: str
) -> None:
    flow = two_calls(outside)
    async with stage.app(flow) as app:
        await app.freeze("tool:slow", by="ann", why="a test")
        handle = await app.start(flow)
        await parked(handle, "switch")
        store = app.inspect._store
        assert [effect.outcome for effect in await store.effects(handle.id)] == ["not_started"]

        await (app.cancel if how == "cancel" else app.kill)(handle.id, why="no need", by="ann")
        await status_of(handle, "cancelled", "killed")

        assert await store.effects(handle.id) == []
        assert outside.sent == []


async def test_a_run_with_an_unknown_effect_is_cancelled_only_when_it_is_settled(stage: Stage) -> None:
    """Requirement 39. Uncertain effects stay visible until somebody settles them."""
    sent = []

    @mp.tool
    async def mail(to: str) -> None:
        sent.append(to)
        raise RuntimeError("line broke")

    @mp.workflow(version="1", tools=[mail])
    async def flow(run: mp.Run) -> None:
        await mail("ann")

    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await parked(handle, "unknown")
        await app.cancel(handle.id, why="no need")
        await has_entry(app, handle.id, "cancel_asked")
        await parked(handle, "unknown")
        assert [effect.path for effect in await app.inspect.open_effects()] == ["flow/mail#1"]
        await app.resolve(handle.id, "flow/mail#1", mp.happened(None), by="bo", why="it arrived")
        await status_of(handle, "cancelled")
        assert sent == ["ann"]
        assert await app.inspect.open_effects() == []


async def test_kill_from_another_app_returns_while_the_tool_hangs_and_lists_what_is_unknown(stage: Stage) -> None:
    """Requirement 66. Requirement 31. Requirement 39. After it returns nothing new starts.

    What the fenced worker sees of its own attempt is kept as evidence, and settles the effect.
    """
    sent: list[str] = []
    go_on = threading.Event()

    @mp.tool(effect="keyed")
    def slow(order: str) -> str:
        sent.append(order)
        go_on.wait(60)
        return f"receipt {order}"

    @mp.workflow(version="1", tools=[slow])
    async def flow(run: mp.Run) -> str:
        await slow("first")
        return await slow("second")

    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await has_entry(app, handle.id, "effect_started")
        operator = stage.app(flow)
        async with operator.client():
            assert list(await operator.kill(handle.id, why="runaway")) == ["flow/slow#1"]
            row = (await operator.inspect.open_effects(handle.id))[0]
            assert (row.path, row.outcome) == ("flow/slow#1", "unknown")
            assert (await operator.handle(handle.id).status()).status == "killed"
        go_on.set()
        with pytest.raises(mp.RunKilled, match="runaway"):
            await handle.result(timeout="30s")
        await has_outcome(app, handle.id, "flow/slow#1", "confirmed")
        assert sent == ["first"]
        assert (await app.inspect.verify(handle.id)).damage is None


async def test_kill_by_the_app_that_drives_stops_it_too(stage: Stage, outside: Outside) -> None:
    flow = two_calls(outside)
    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await sending(outside)
        assert list(await app.kill(handle.id, why="enough")) == ["flow/slow#1"]
        await has_entry(app, handle.id, "attempt_quieted")  # the hanging code was stopped, and that is known
        outside.answers.set()
        assert [(e.path, e.outcome) for e in await app.inspect.open_effects()] == [("flow/slow#1", "unknown")]
        assert outside.sent == ["first"]
        with pytest.raises(mp.WrongStatus):
            await app.kill(handle.id, why="again")


async def test_a_killed_runs_unknown_effect_is_still_looked_up(stage: Stage) -> None:
    """Ended runs stay claimable for settling only."""
    ledger = []

    @mp.tool(effect="queryable", visible_within="1h")
    async def charge(order: str) -> str:
        ledger.append(order)
        raise RuntimeError("line broke")

    asked = []

    @charge.reconcile
    async def find(order: str) -> mp.Finding[str]:
        asked.append(order)
        return mp.happened("receipt") if len(asked) > 1 else mp.still_unknown(ask_again="10m")

    @mp.workflow(version="1", tools=[charge])
    async def flow(run: mp.Run) -> str:
        return await charge("o-1")

    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow)
        await parked(handle, "unknown")
        assert list(await app.kill(handle.id, why="enough")) == ["flow/charge#1"]
        stage.clock.advance("10m")
        await has_outcome(app, handle.id, "flow/charge#1", "confirmed")
        assert (await handle.status()).status == "killed"
        assert ledger == ["o-1"]


async def test_past_its_deadline_a_run_starts_nothing(stage: Stage, outside: Outside) -> None:
    """Requirement 18. Requirement 49. An execution limit that is reached ends the run visibly."""
    flow = two_calls(outside)
    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow, deadline="10m")
        await sending(outside)
        stage.clock.advance("10m")
        outside.answers.set()
        with pytest.raises(mp.RunFailed, match="deadline"):
            await handle.result(timeout="30s")
        assert outside.sent == ["first"]
        assert await outcome(app, handle.id, "flow/slow#1") == "confirmed"


async def test_a_parked_run_fails_when_its_deadline_passes(stage: Stage) -> None:
    @mp.workflow(version="1")
    async def flow(run: mp.Run) -> int:
        return await run.receive("go", int)

    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow, deadline="10m")
        await parked(handle, "signal")
        stage.clock.advance("10m")
        with pytest.raises(mp.RunFailed, match="deadline"):
            await handle.result(timeout="30s")
        assert "signal_received" not in await names(app, handle.id)


async def test_tags_are_kept_and_found(stage: Stage) -> None:
    @mp.workflow(version="1")
    async def flow(run: mp.Run) -> int:
        return 1

    async with stage.app(flow) as app:
        one = await app.start(flow, tags={"team": "blue", "odd \"name'": "x"})
        await app.start(flow, tags={"team": "red"})
        assert [row.id for row in await app.inspect.runs(Query(tag=("team", "blue")))] == [one.id]
        assert [row.id for row in await app.inspect.runs(Query(tag=("odd \"name'", "x")))] == [one.id]
        assert (await app.inspect.detail(one.id)).about.tags["team"] == "blue"


async def test_a_cancelled_effect_is_unknown_and_closes_its_branch_only(stage: Stage) -> None:
    """Requirement 31. Later calls in that branch wait until it is settled; other arms go on."""
    sent = []
    patience = Patience()

    @mp.tool
    async def mail(to: str) -> str:
        sent.append(to)
        if to == "slow":
            patience.ends()
            await asyncio.Event().wait()
        return f"sent {to}"

    async def impatient() -> str:
        try:
            async with patience.limit():
                await mail("slow")
        except TimeoutError:
            pass
        return await mail("after")

    async def other() -> str:
        await mail("one")
        return await mail("two")

    @mp.workflow(version="1", tools=[mail])
    async def flow(run: mp.Run) -> list[str]:
        return list(await run.gather(impatient(), other()))

    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await parked(handle, "unknown")
        assert sorted(sent) == ["one", "slow", "two"]
        assert await outcome(app, handle.id, "flow/0.0/mail#1") == "unknown"
        await app.resolve(handle.id, "flow/0.0/mail#1", mp.happened("sent slow"), by="bo", why="it arrived")
        assert await handle.result(timeout="30s") == ["sent after", "sent two"]
        assert sorted(sent) == ["after", "one", "slow", "two"]


async def test_an_effect_cancelled_before_its_started_was_committed_was_not_sent(stage: Stage) -> None:
    """Its commit is under way when it is cancelled; the answer is awaited, and nothing is sent after it."""
    sent = []

    @mp.tool
    async def mail(to: str) -> str:
        sent.append(to)
        return f"sent {to}"

    async def hasty() -> str:
        try:
            async with asyncio.timeout(0):
                return await mail("ann")
        except TimeoutError:
            return "gave up"

    async def patient() -> str:
        return await mail("bob")

    @mp.workflow(version="1", tools=[mail])
    async def flow(run: mp.Run) -> list[str]:
        return list(await run.gather(hasty(), patient()))

    async with stage.app(flow) as app:
        handle = await app.start(flow)
        assert await handle.result(timeout="30s") == ["gave up", "sent bob"]
        assert sent == ["bob"]
        view = next(view for view in await app.inspect.effects(handle.id) if view.path == "flow/0.0/mail#1")
        assert (view.outcome, view.why) == ("failed", "cancelled before it was sent")
