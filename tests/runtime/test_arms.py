"""Arms of gather and map: they settle together, and one that waits does not stop the others."""

import asyncio
import gc

import pytest

import milepost as mp
from tests.runtime.stage import Stage, has_outcome, names, parked, until


class Outside:
    """A mail server: what it was sent, in order."""

    def __init__(self) -> None:
        self.sent: list[str] = []


@pytest.fixture
def outside() -> Outside:
    return Outside()


def mailer(outside: Outside) -> mp.Tool[[str], str]:
    @mp.tool(effect="keyed", key_ttl="1h")
    async def mail(to: str) -> str:
        if to == "nobody":
            raise mp.Rejected("no such address")
        await asyncio.sleep(0.02)
        outside.sent.append(to)
        return f"sent {to}"

    return mail


async def test_results_come_in_the_order_of_the_arms(stage: Stage, outside: Outside) -> None:
    mail = mailer(outside)

    @mp.workflow(version="1", tools=[mail])
    async def flow(run: mp.Run) -> list[list[str]]:
        two = await run.gather(mail("a"), mail("b"))
        three = await run.gather(mail("c"), mail("d"), mail("e"))
        many = await run.gather(*[mail(to) for to in "fghi"])
        assert isinstance(two, tuple)
        assert isinstance(three, tuple)
        return [list(two), list(three), many, await run.map(mail, ["j", "k"]), await run.map(mail, [])]

    async with stage.app(flow) as app:
        expected = [["sent a", "sent b"], [f"sent {to}" for to in "cde"], [f"sent {to}" for to in "fghi"]]
        result = await (await app.start(flow)).result(timeout="30s")
        assert result == [*expected, ["sent j", "sent k"], []]


async def test_paths_of_arms_name_the_gather_and_the_arm(stage: Stage, outside: Outside) -> None:
    mail = mailer(outside)

    async def twice(to: str) -> None:
        await mail(to)
        await mail(to + "2")

    @mp.workflow(version="1", tools=[mail])
    async def flow(run: mp.Run) -> None:
        await mail("x")
        await run.map(twice, ["a", "b"])

    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await handle.result(timeout="30s")
        assert sorted(view.path for view in await app.inspect.effects(handle.id)) == [
            "flow/1.0/mail#1",
            "flow/1.0/mail#2",
            "flow/1.1/mail#1",
            "flow/1.1/mail#2",
            "flow/mail#1",
        ]


async def test_siblings_settle_before_one_failure_is_raised_as_itself(stage: Stage, outside: Outside) -> None:
    mail = mailer(outside)

    @mp.workflow(version="1", tools=[mail])
    async def flow(run: mp.Run) -> list[str]:
        try:
            await run.gather(mail("nobody"), mail("a"), mail("b"))
        except mp.StepFailed as failed:
            return [failed.path, *sorted(outside.sent)]
        return []

    async with stage.app(flow) as app:
        result = await (await app.start(flow)).result(timeout="30s")
        assert result == ["flow/mail#1", "a", "b"]


async def test_several_failures_are_raised_as_a_group(stage: Stage, outside: Outside) -> None:
    mail = mailer(outside)

    async def call(to: str) -> str:
        return await mail(to)

    @mp.workflow(version="1", tools=[mail])
    async def flow(run: mp.Run) -> list[str]:
        paths = []
        try:
            await run.map(call, ["nobody", "a", "nobody"])
        except* mp.StepFailed as group:
            paths = [error.path for error in group.exceptions if isinstance(error, mp.StepFailed)]
        return paths

    async with stage.app(flow) as app:
        result = await (await app.start(flow)).result(timeout="30s")
        assert result == ["flow/0.0/mail#1", "flow/0.2/mail#1"]
        assert outside.sent == ["a"]


async def test_an_arm_that_parks_does_not_stop_its_siblings(stage: Stage, outside: Outside) -> None:
    """What is in flight finishes and is recorded; then the segment unloads."""
    mail = mailer(outside)

    @mp.tool(effect="irreversible", approval=True)
    async def publish(text: str) -> str:
        outside.sent.append(f"published {text}")
        return "up"

    async def announce() -> str:
        return await publish("news")

    async def mails() -> str:
        await mail("a")
        return await mail("b")

    @mp.workflow(version="1", tools=[mail, publish])
    async def flow(run: mp.Run) -> list[str]:
        return list(await run.gather(announce(), mails()))

    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await parked(handle, "approval")
        assert outside.sent == ["a", "b"]
        await app.approve((await app.inspect.approvals())[0].id, by="ann")
        assert await handle.result(timeout="30s") == ["up", "sent b"]
        assert outside.sent == ["a", "b", "published news"]


async def test_an_arm_that_is_unknown_does_not_raise_into_its_siblings(stage: Stage, outside: Outside) -> None:
    """Requirement 23."""
    mail = mailer(outside)

    @mp.tool
    async def call_bank() -> str:
        outside.sent.append("bank")
        raise RuntimeError("line broke")

    @mp.workflow(version="1", tools=[mail, call_bank])
    async def flow(run: mp.Run) -> list[str]:
        return list(await run.gather(call_bank(), mail("a")))

    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await parked(handle, "unknown")
        await has_outcome(app, handle.id, "flow/mail#1", "confirmed")
        await app.resolve(handle.id, "flow/call_bank#1", mp.happened("said yes"), by="ann", why="rang them")
        assert await handle.result(timeout="30s") == ["said yes", "sent a"]
        assert sorted(outside.sent) == ["a", "bank"]


async def test_map_runs_no_more_than_its_limit_at_once(stage: Stage) -> None:
    running, most = 0, 0

    @mp.tool(effect="read")
    async def work(n: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.005)
        running -= 1
        return n

    async def call(n: int) -> int:
        return await work(n)

    @mp.workflow(version="1", tools=[work])
    async def flow(run: mp.Run) -> list[int]:
        return await run.map(call, range(12), limit=3)

    async with stage.app(flow) as app:
        assert await (await app.start(flow)).result(timeout="30s") == list(range(12))
        assert most == 3


async def test_map_refuses_a_limit_that_starts_nothing(stage: Stage) -> None:
    @mp.workflow(version="1")
    async def flow(run: mp.Run) -> None:
        await run.map(lambda _: run.sleep("1ms"), [1], limit=0)

    async with stage.app(flow) as app:
        with pytest.raises(mp.RunFailed, match="limit=0"):
            await (await app.start(flow)).result(timeout="30s")


async def test_a_map_with_a_limit_is_entered_again_where_it_was(stage: Stage, outside: Outside) -> None:
    mail = mailer(outside)

    async def one(to: str) -> str:
        got = await mail(to)
        if to == "b":
            await runs[0].receive("go", int)
        return got

    runs: list[mp.Run] = []

    @mp.workflow(version="1", tools=[mail])
    async def flow(run: mp.Run) -> list[str]:
        runs[:] = [run]
        return await run.map(one, ["a", "b", "c", "d"], limit=2)

    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await parked(handle, "signal")
        assert outside.sent == ["a", "b", "c", "d"]
        await app.send(handle.id, "go", 1)
        assert await handle.result(timeout="30s") == [f"sent {to}" for to in "abcd"]
        assert outside.sent == ["a", "b", "c", "d"]


async def test_arms_may_have_arms(stage: Stage, outside: Outside) -> None:
    mail = mailer(outside)

    @mp.workflow(version="1", tools=[mail])
    async def flow(run: mp.Run) -> int:
        async def inner(to: str) -> int:
            return len(await run.gather(mail(to + "1"), mail(to + "2")))

        counts = await run.map(inner, ["a", "b", "c"])
        await run.receive("go", int)
        return sum(counts)

    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await parked(handle, "signal")
        await app.send(handle.id, "go", 1)
        assert await handle.result(timeout="30s") == 6
        assert sorted(outside.sent) == ["a1", "a2", "b1", "b2", "c1", "c2"]


async def test_an_arm_that_sleeps_leaves_the_others_working(stage: Stage, outside: Outside) -> None:
    mail = mailer(outside)

    @mp.workflow(version="1", tools=[mail])
    async def flow(run: mp.Run) -> str:
        _, sent = await run.gather(run.sleep("1h"), mail("a"))
        return sent

    async with stage.app(flow, still=True) as app:
        handle = await app.start(flow)
        await parked(handle, "time")
        assert outside.sent == ["a"]
        stage.clock.advance("1h")
        assert await handle.result(timeout="30s") == "sent a"
        assert (await names(app, handle.id)).count("sleep_ended") == 1


async def test_a_gather_made_beforehand_rests_where_it_is_awaited(stage: Stage, outside: Outside) -> None:
    mail = mailer(outside)

    @mp.workflow(version="1", tools=[mail])
    async def flow(run: mp.Run) -> int:
        inner = run.gather(run.receive("a", int), run.receive("b", int))
        (a, b), _ = await run.gather(inner, mail("x"))
        return a + b

    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await parked(handle, "signal")
        await app.send(handle.id, "a", 1)
        await app.send(handle.id, "b", 2)
        assert await handle.result(timeout="30s") == 3
        assert outside.sent == ["x"]


@pytest.mark.parametrize("how", ["gather", "map"])
async def test_an_arm_whose_tool_keeps_a_cancellation_to_itself_leaves_no_error_that_nobody_retrieved(
    stage: Stage, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    """The run is killed; the arm goes on, makes its next call, and learns there that it is over."""
    begun: list[str] = []

    @mp.tool
    async def deaf(to: str) -> str:
        begun.append(to)
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            return "late"
        return "never"

    async def twice(to: str) -> None:
        await deaf(to)
        await deaf(to + " again")

    @mp.workflow(version="1", tools=[deaf])
    async def flow(run: mp.Run) -> None:
        await (run.gather(twice("a"), twice("b")) if how == "gather" else run.map(twice, "abcd", limit=2))

    async with stage.app(flow) as app:
        handle = await app.start(flow)

        async def in_flight() -> bool:
            return len(begun) == 2

        await until(in_flight)
        await app.kill(handle.id, why="a test")

        async def let_go() -> bool:
            gc.collect()
            return handle.id not in app._need_engine().sessions

        await until(let_go)
        await asyncio.sleep(0)
    gc.collect()
    assert "never retrieved" not in caplog.text
    assert begun == ["a", "b"]
