"""Several tasks of one host make calls of one attached run at the same time."""

import asyncio
import threading
from typing import Any

import pytest

import milepost as mp
from tests.runtime.stage import Stage, names, until


class Outside:
    """What was applied outside, and gates that hold an answer back once it was."""

    def __init__(self) -> None:
        self.applied: list[str] = []
        self.holding: dict[str, asyncio.Event] = {}

    def hold(self, what: str) -> asyncio.Event:
        """Let the answer to this wait until the event is set."""
        return self.holding.setdefault(what, asyncio.Event())

    async def apply(self, what: str) -> str:
        self.applied.append(what)
        if what in self.holding:
            await self.holding[what].wait()
        return f"did {what}"

    async def has(self, what: str) -> None:
        async def ask() -> bool:
            return what in self.applied

        await until(ask, f"{what} is applied")


@pytest.fixture
def outside() -> Outside:
    return Outside()


class Tools:
    """One of each kind."""

    def __init__(self, outside: Outside) -> None:
        @mp.tool
        async def mail(to: str) -> str:
            if to == "lost":
                outside.applied.append(to)
                raise RuntimeError("line broke")
            return await outside.apply(to)

        @mp.tool(approval=True)
        async def publish(text: str) -> str:
            return await outside.apply(text)

        @mp.tool(effect="keyed", key_ttl="1h", cost={"usd": 5})
        async def buy(what: str) -> str:
            return await outside.apply(what)

        @mp.tool(effect="read")
        async def look(what: str) -> str:
            return await outside.apply(what)

        @mp.tool(scopes=["admin"])
        async def wipe(what: str) -> str:
            return await outside.apply(what)

        self.mail, self.publish, self.buy, self.look, self.wipe = mail, publish, buy, look, wipe
        self.all: list[mp.Tool[..., Any]] = [mail, publish, buy, look, wipe]


def asking(waiting: object) -> tuple[str, str]:
    """Return the reason and the command of a Waiting."""
    assert isinstance(waiting, mp.Waiting), waiting
    return waiting.reason, waiting.ask


async def test_each_call_of_a_batch_waits_for_what_is_its_own(stage: Stage, outside: Outside) -> None:
    tools = Tools(outside)
    app = mp.App(stage.url, tools=tools.all)
    async with app.attach(key="k", budget={"usd": 6}) as run:
        first, lost, poor, bare, seen, mailed = await asyncio.gather(
            run.attempt("c1", tools.publish, "news"),
            run.attempt("c2", tools.mail, "lost"),
            run.attempt("c3", tools.buy, "pen"),
            run.attempt("c4", tools.wipe, "disk"),
            run.attempt("c5", tools.look, "sky"),
            run.attempt("c6", tools.mail, "ann"),
        )
        dear = await run.attempt("c7", tools.buy, "book")
        approval = (await app.inspect.approvals())[0].id

        assert asking(first) == ("approval", f"milepost approve {approval}, or milepost deny {approval} --why …")
        assert asking(lost)[0] == "unknown"
        assert f"resolve {run.id} @c2 " in asking(lost)[1]
        assert "@c1" not in asking(lost)[1]
        assert poor == mp.Confirmed("did pen")
        assert asking(bare) == ("authority", f"milepost grant {run.id} admin")
        assert seen == mp.Confirmed("did sky")
        assert mailed == mp.Confirmed("did ann")
        assert asking(dear) == ("budget", f"milepost grant {run.id} --budget usd=4")


async def test_a_call_that_waits_neither_cancels_its_siblings_nor_waits_for_them(
    stage: Stage, outside: Outside
) -> None:
    """Requirement 7. The second of three objects; the two others are in flight, finish and are recorded."""
    tools = Tools(outside)
    app = mp.App(stage.url, tools=tools.all)
    go = outside.hold("one")
    outside.holding["three"] = go
    async with app.attach(key="k") as run:
        async with asyncio.TaskGroup() as group:
            one = group.create_task(run.attempt("c1", tools.mail, "one"))
            three = group.create_task(run.attempt("c3", tools.mail, "three"))
            await outside.has("one")
            await outside.has("three")
            assert asking(await run.attempt("c2", tools.publish, "two"))[0] == "approval"
            assert not one.done()
            assert not three.done()
            go.set()
        assert (one.result(), three.result()) == (mp.Confirmed("did one"), mp.Confirmed("did three"))
        assert (await names(app, run.id)).count("effect_confirmed") == 2
    assert outside.applied == ["one", "three"]


async def test_a_call_that_waits_is_not_kept_by_a_sibling_that_is_being_settled(stage: Stage) -> None:
    asked, answer = asyncio.Event(), asyncio.Event()

    @mp.tool(effect="queryable", visible_within="0s")
    async def ship(parcel: str) -> str:
        raise RuntimeError("line broke")

    @ship.reconcile
    async def _find(parcel: str) -> mp.Finding[str]:
        asked.set()
        await answer.wait()
        return mp.happened(f"{parcel} is on its way")

    @mp.tool(approval=True)
    async def publish(text: str) -> str:
        return text

    app = mp.App(stage.url, tools=[ship, publish])
    async with app.attach(key="k") as run, asyncio.TaskGroup() as group:
        shipped = group.create_task(run.attempt("c1", ship, "box"))
        await asked.wait()
        assert asking(await run.attempt("c2", publish, "news"))[0] == "approval"
        assert not shipped.done()
        answer.set()
        assert await shipped == mp.Confirmed("box is on its way")


async def test_one_id_that_two_tasks_attempt_at_once_is_one_effect_with_one_outcome(
    stage: Stage, outside: Outside
) -> None:
    """Requirement 53."""
    tools = Tools(outside)
    app = mp.App(stage.url, tools=tools.all)
    go = outside.hold("ann")
    async with app.attach(key="k") as run:
        tasks = [asyncio.ensure_future(run.attempt("c1", tools.mail, "ann")) for _ in range(3)]
        await outside.has("ann")
        go.set()
        assert await asyncio.gather(*tasks) == [mp.Confirmed("did ann")] * 3
        lost = await asyncio.gather(*(run.attempt("c2", tools.mail, "lost") for _ in range(3)))
        assert {asking(waiting)[0] for waiting in lost} == {"unknown"}
    assert outside.applied == ["ann", "lost"]


async def test_one_id_with_other_arguments_at_once_diverges_and_concerns_no_other_call(
    stage: Stage, outside: Outside
) -> None:
    tools = Tools(outside)
    app = mp.App(stage.url, tools=tools.all)
    go = outside.hold("ann")
    async with app.attach(key="k") as run:
        right = asyncio.ensure_future(run.attempt("c1", tools.mail, "ann"))
        await outside.has("ann")
        wrong = asyncio.ensure_future(run.attempt("c1", tools.mail, "bob"))
        go.set()
        with pytest.raises(mp.Diverged):
            await wrong
        assert await right == mp.Confirmed("did ann")
        assert await run.attempt("c2", tools.mail, "cyd") == mp.Confirmed("did cyd")
    assert outside.applied == ["ann", "cyd"]


async def test_an_equal_call_under_another_id_at_once_parks(stage: Stage, outside: Outside) -> None:
    tools = Tools(outside)
    app = mp.App(stage.url, tools=tools.all)
    async with app.attach(key="k") as run:
        first, second = await asyncio.gather(run.attempt("c1", tools.mail, "ann"), run.attempt("c2", tools.mail, "ann"))
        assert first == mp.Confirmed("did ann")
        assert "@c1" in asking(second)[1]
    assert outside.applied == ["ann"]


async def test_a_checkpoint_while_a_call_is_in_flight_covers_nothing_that_is_unsettled(
    stage: Stage, outside: Outside
) -> None:
    tools = Tools(outside)
    app = mp.App(stage.url, tools=tools.all)
    go = outside.hold("ann")
    async with app.attach(key="k") as run:
        flying = asyncio.ensure_future(run.attempt("c1", tools.mail, "ann"))
        await outside.has("ann")
        await run.checkpoint({"turn": 1})
        assert "checkpointed" not in await names(app, run.id)
        go.set()
        await flying
        await run.checkpoint({"turn": 2})
        assert (await names(app, run.id)).count("checkpointed") == 1
    async with app.attach(key="k") as run:
        assert await run.attempt("c1", tools.mail, "ann") == mp.Confirmed("did ann")
    assert outside.applied == ["ann"]


async def test_a_checkpoint_never_hides_an_outcome_from_the_call_that_waits_for_it(stage: Stage) -> None:
    """The call is woken after the checkpoint: without its record it would begin anew, under another key."""
    sent: list[str] = []
    found = asyncio.Event()

    @mp.tool(effect="queryable", visible_within="0s")
    async def ship(parcel: str) -> str:
        sent.append(parcel)
        raise RuntimeError("line broke")

    @ship.reconcile
    async def _find(parcel: str) -> mp.Finding[str]:
        found.set()
        return mp.happened(f"{parcel} is on its way")

    app = mp.App(stage.url, tools=[ship])
    async with app.attach(key="k") as run:

        async def checkpoints() -> None:
            await found.wait()
            await run.checkpoint({"turn": 1})

        outcome, _ = await asyncio.gather(run.attempt("c1", ship, "box"), checkpoints())
        assert outcome == mp.Confirmed("box is on its way")
    assert sent == ["box"]


async def test_a_task_that_is_cancelled_leaves_only_its_own_call_unknown(stage: Stage, outside: Outside) -> None:
    tools = Tools(outside)
    app = mp.App(stage.url, tools=tools.all)
    go = outside.hold("two")
    outside.hold("one")
    async with app.attach(key="k") as run:
        one = asyncio.ensure_future(run.attempt("c1", tools.mail, "one"))
        two = asyncio.ensure_future(run.attempt("c2", tools.mail, "two"))
        await outside.has("one")
        await outside.has("two")
        one.cancel()
        with pytest.raises(asyncio.CancelledError):
            await one
        go.set()
        assert await two == mp.Confirmed("did two")
        assert await run.attempt("c3", tools.mail, "three") == mp.Confirmed("did three")
        assert asking(await run.attempt("c1", tools.mail, "one"))[0] == "unknown"
    assert outside.applied == ["one", "two", "three"]


async def test_a_read_whose_task_was_cancelled_is_called_again(stage: Stage, outside: Outside) -> None:
    tools = Tools(outside)
    app = mp.App(stage.url, tools=tools.all)
    go = outside.hold("sky")
    async with app.attach(key="k") as run:
        reading = asyncio.ensure_future(run.attempt("c1", tools.look, "sky"))
        await outside.has("sky")
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        go.set()
        assert await run.attempt("c1", tools.look, "sky") == mp.Confirmed("did sky")
    assert outside.applied == ["sky", "sky"]


async def test_what_a_person_says_while_the_host_stays_attached_is_seen_by_the_next_call(
    stage: Stage, outside: Outside
) -> None:
    """Requirement 46. Nobody has to let go of the run first."""
    tools = Tools(outside)
    app = mp.App(stage.url, tools=tools.all)
    elsewhere = mp.App(stage.url, tools=tools.all)
    async with app.attach(key="k", budget={"usd": 1}) as run, elsewhere.client():
        assert asking(await run.attempt("c1", tools.publish, "news"))[0] == "approval"
        assert asking(await run.attempt("c2", tools.mail, "lost"))[0] == "unknown"
        assert asking(await run.attempt("c3", tools.buy, "pen"))[0] == "budget"
        await elsewhere.approve((await elsewhere.inspect.approvals())[0].id, by="ann")
        await elsewhere.resolve(run.id, "@c2", mp.happened("it came"), by="ann", why="looked")
        await elsewhere.grant(run.id, budget={"usd": 9}, by="ann")
        assert await run.attempt("c1", tools.publish, "news") == mp.Confirmed("did news")
        assert await run.attempt("c2", tools.mail, "lost") == mp.Confirmed("it came")
        assert await run.attempt("c3", tools.buy, "pen") == mp.Confirmed("did pen")


async def test_a_run_does_not_finish_over_a_call_in_flight_or_unknown(stage: Stage, outside: Outside) -> None:
    """Requirement 11."""
    tools = Tools(outside)
    app = mp.App(stage.url, tools=tools.all)
    go = outside.hold("ann")
    async with app.attach(key="k") as run:
        flying = asyncio.ensure_future(run.attempt("c1", tools.mail, "ann"))
        await outside.has("ann")
        with pytest.raises(mp.Parked, match="@c1"):
            await run.finish("done")
        go.set()
        await flying
        await run.attempt("c2", tools.mail, "lost")
        with pytest.raises(mp.Parked, match=f"resolve {run.id} @c2"):
            await run.finish("done")
        await app.resolve(run.id, "@c2", mp.happened("it came"), by="ann", why="looked")
        assert await run.attempt("c2", tools.mail, "lost") == mp.Confirmed("it came")
        await run.finish("done")


async def test_a_run_that_has_finished_answers_what_it_did_and_begins_nothing_new(
    stage: Stage, outside: Outside
) -> None:
    """Requirement 59. What is sent again after the end would be sent twice."""
    tools = Tools(outside)
    app = mp.App(stage.url, tools=tools.all)
    async with app.attach(key="k") as run:
        await run.attempt("c1", tools.mail, "ann")
        await run.attempt("c2", tools.publish, "news")
        await run.finish("done")
        assert await run.attempt("c1", tools.mail, "ann") == mp.Confirmed("did ann")
        with pytest.raises(mp.RunEnded, match="begins nothing new"):
            await run.attempt("c3", tools.mail, "bob")
    async with app.attach(key="k") as again:
        assert await again.attempt("c1", tools.mail, "ann") == mp.Confirmed("did ann")
        for id_ in ("c2", "c3"):
            with pytest.raises(mp.RunEnded, match="begins nothing new"):
                await again.attempt(id_, tools.publish, "news")
    assert outside.applied == ["ann"]


async def test_a_run_that_is_blocked_or_killed_begins_nothing_new_for_its_host_either(stage: Stage) -> None:
    """Requirement 11. Also not for one that attaches anew."""
    answers = threading.Event()

    @mp.tool(effect="queryable", visible_within="0s", timeout="50ms")
    def ship(parcel: str) -> str:
        answers.wait(60)
        return "on its way"

    @ship.reconcile
    async def _find(parcel: str) -> mp.Finding[str]:
        return mp.rejected("no such parcel")

    @mp.tool
    async def mail(to: str) -> str:
        raise AssertionError("never sent")

    app = mp.App(stage.url, tools=[ship, mail])
    async with app.attach(key="k") as run:
        assert await run.attempt("c1", ship, "box") == mp.Failed("no such parcel")
        answers.set()  # what was refused is on its way after all

        async def blocked() -> bool:
            return "contradicted" in await names(app, run.id)

        await until(blocked, "it is blocked")
        with pytest.raises(mp.RunBlocked, match="contradicted"):
            await run.attempt("c2", mail, "ann")
    async with app.attach(key="k") as run:
        with pytest.raises(mp.RunBlocked, match="contradicted"):
            await run.attempt("c2", mail, "ann")
        assert await run.attempt("c1", ship, "box") == mp.Failed("no such parcel")
    async with app.attach(key="other") as run:
        pass
    async with app.client():
        await app.kill(run.id, by="ann", why="enough")
    async with app.attach(key="other") as run:
        with pytest.raises(mp.RunEnded, match="killed"):
            await run.attempt("c2", mail, "ann")


async def test_a_host_whose_process_is_ending_is_told_to_wait_and_sends_nothing(stage: Stage, outside: Outside) -> None:
    tools = Tools(outside)
    app = mp.App(stage.url, tools=tools.all)
    async with app:
        async with app.attach(key="k") as run:
            assert app._worker is not None
            await app._worker.drain()
            assert asking(await run.attempt("c1", tools.mail, "ann"))[0] == "switch"
        assert outside.applied == []
    async with app.attach(key="k") as run:
        assert await run.attempt("c1", tools.mail, "ann") == mp.Confirmed("did ann")
