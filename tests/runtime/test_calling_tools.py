"""What calling a tool means, and what each programming mistake is told."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import milepost as mp
from tests.runtime.stage import Stage, names, parked


@mp.tool(effect="read")
async def look(n: int) -> int:
    return n * 2


@mp.tool(effect="read")
async def unlisted(n: int) -> int:
    return n


async def test_an_unlisted_tool_fails_as_a_step_and_is_not_called(stage: Stage) -> None:
    """Requirement 17. Listing is permission."""
    caught = []

    @mp.workflow(version="1", tools=[look])
    async def flow(run: mp.Run) -> int:
        try:
            await unlisted(1)
        except mp.StepFailed as failed:
            caught.append(failed)
        return await look(3)

    async with stage.app(flow) as app:
        assert await (await app.start(flow)).result(timeout="30s") == 6
        assert "unlisted is not listed" in caught[0].why
        assert caught[0].path == "flow/unlisted#1"


def test_a_tool_called_outside_a_run_raises_norun_and_names_the_mend() -> None:
    with pytest.raises(mp.NoRun, match=r"look\.direct"):
        _ = look(1)
    with pytest.raises(mp.NoRun):
        _ = look.from_json({"n": 1})


async def test_direct_calls_the_bare_function() -> None:
    @mp.tool
    def mail(call: mp.Call, to: str) -> str:
        return f"{to} {call.attempt}"

    assert await look.direct(4) == 8
    assert await mail.direct("ann") == "ann 1"


async def test_a_tool_called_inside_a_tool_raises_nested_step(stage: Stage) -> None:
    @mp.tool(effect="read", retry=mp.Retry(1))
    async def outer(n: int) -> int:
        return await look(n)

    @mp.tool(effect="read", retry=mp.Retry(1))
    def outer_in_thread(n: int) -> int:
        _ = look(n)
        return n

    seen = []

    @mp.workflow(version="1", tools=[outer, outer_in_thread, look])
    async def flow(run: mp.Run) -> None:
        for tool in (outer, outer_in_thread):
            try:
                await tool(1)
            except mp.StepFailed as failed:
                seen.append(failed.why)

    async with stage.app(flow) as app:
        await (await app.start(flow)).result(timeout="30s")
        assert [why.partition(".")[0] for why in seen] == [
            "look was called inside outer",
            "look was called inside outer_in_thread",
        ]


async def test_a_run_value_asked_for_inside_a_tool_raises_nested_step(stage: Stage) -> None:
    runs: list[mp.Run] = []

    @mp.tool(effect="read", retry=mp.Retry(1))
    async def outer() -> str:
        return runs[0].now().isoformat()

    @mp.workflow(version="1", tools=[outer])
    async def flow(run: mp.Run) -> str:
        runs.append(run)
        return await outer()

    async with stage.app(flow) as app:
        with pytest.raises(mp.RunFailed, match="inside outer"):
            await (await app.start(flow)).result(timeout="30s")


async def test_a_tool_called_in_a_task_that_is_no_branch_is_a_stray(stage: Stage) -> None:
    sent = []

    @mp.tool
    async def mail(to: str) -> None:
        sent.append(to)

    async def astray() -> None:
        await mail("ann")

    @mp.workflow(version="1", tools=[mail])
    async def flow(run: mp.Run) -> None:
        await asyncio.create_task(astray())

    async with stage.app(flow) as app:
        handle = await app.start(flow)
        with pytest.raises(mp.RunFailed, match=r"run\.gather"):
            await handle.result(timeout="30s")
        assert sent == []


async def test_wait_for_around_a_coroutine_that_calls_a_tool_says_what_to_use_instead(stage: Stage) -> None:
    async def asking() -> int:
        return await look(1)

    @mp.workflow(version="1", tools=[look])
    async def flow(run: mp.Run) -> int:
        task = asyncio.ensure_future(asking())  # what asyncio.wait_for does before Python 3.12
        return await task

    async with stage.app(flow) as app:
        with pytest.raises(mp.RunFailed, match=r"asyncio\.timeout"):
            await (await app.start(flow)).result(timeout="30s")


async def test_asyncio_gather_of_calls_is_as_good_as_run_gather(stage: Stage) -> None:
    """Each call takes its place when it is made, so what decides the place is the code and never the timing."""
    sent = []
    b_was_sent = asyncio.Event()

    @mp.tool(effect="keyed", key_ttl="1h")
    async def charge(order: str) -> str:
        await (b_was_sent.wait() if order == "a" else asyncio.sleep(0))
        sent.append(order)
        b_was_sent.set()
        return order.upper()

    @mp.workflow(version="1", tools=[charge])
    async def flow(run: mp.Run) -> list[str]:
        both = await asyncio.gather(charge("a"), charge("b"))
        await run.receive("go", int)
        return list(both)

    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await parked(handle, "signal")
        await app.send(handle.id, "go", 1)

        assert await handle.result(timeout="30s") == ["A", "B"]
        assert sent == ["b", "a"]
        paths = {view.path: view.result for view in await app.inspect.effects(handle.id)}
        assert paths == {"flow/charge#1": "A", "flow/charge#2": "B"}


async def test_a_call_that_was_never_awaited_fails_the_segment_and_sends_nothing(stage: Stage) -> None:
    sent = []

    @mp.tool
    async def mail(to: str) -> None:
        sent.append(to)

    @mp.workflow(version="1", tools=[mail])
    async def flow(run: mp.Run) -> None:
        _ = mail("ann")

    async with stage.app(flow) as app:
        with pytest.raises(mp.RunFailed, match="never awaited: flow/mail#1"):
            await (await app.start(flow)).result(timeout="30s")
        assert sent == []


@pytest.mark.parametrize(
    "arguments",
    ['{"to": "ann", "times": "many"}', '{"to": "ann"', '{"times": 1}', '{"to": "ann", "times": 1, "more": 2}', "[1]"],
    ids=["wrong type", "no json", "missing", "unknown", "no object"],
)
async def test_arguments_that_do_not_fit_are_refused_before_anything_is_recorded(stage: Stage, arguments: str) -> None:
    said = []

    @mp.tool
    async def mail(to: str, times: int) -> int:
        raise AssertionError("never called")

    @mp.workflow(version="1", tools=[mail])
    async def flow(run: mp.Run) -> None:
        try:
            await mail.from_json(arguments)
        except mp.InvalidArguments as wrong:
            said.append(wrong.for_model())

    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await handle.result(timeout="30s")
        assert "mail" in said[0]
        assert "Nothing was done" in said[0]
        assert not [name for name in await names(app, handle.id) if name.startswith("effect")]


async def test_a_refused_call_takes_no_place_so_that_its_repair_stands_where_it_was(stage: Stage) -> None:
    @mp.workflow(version="1", tools=[look])
    async def flow(run: mp.Run) -> list[int]:
        try:
            await look.from_json({"n": "x"})
        except mp.InvalidArguments:
            first = await look.from_json({"n": 2})
        await run.receive("go", int)
        return [first, await look(5)]

    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await parked(handle, "signal")
        await app.send(handle.id, "go", 1)
        assert await handle.result(timeout="30s") == [4, 10]


async def test_arguments_made_by_a_model_are_converted_and_recorded(stage: Stage) -> None:
    @mp.workflow(version="1", tools=[look])
    async def flow(run: mp.Run) -> int:
        return await look.from_json('{"n": 21}')

    async with stage.app(flow) as app:
        assert await (await app.start(flow)).result(timeout="30s") == 42


async def test_a_def_tool_runs_in_a_thread_and_leaves_the_loop_free(stage: Stage) -> None:
    threads = []
    going = threading.Event()

    @mp.tool(effect="keyed", key_ttl="1h")
    def slow(call: mp.Call) -> str:
        threads.append(threading.current_thread())
        assert going.wait(60)
        return call.key

    @mp.tool(effect="read")
    async def quick() -> None:
        going.set()

    @mp.workflow(version="1", tools=[slow, quick])
    async def flow(run: mp.Run) -> str:
        key, _ = await run.gather(slow(), quick())
        return key

    async with stage.app(flow) as app:
        assert len(await (await app.start(flow)).result(timeout="30s")) >= 32
        assert threads != [threading.current_thread()]
        assert threads[0].daemon


async def test_a_volatile_argument_may_differ_on_reentry_and_is_recorded_as_first_sent(stage: Stage) -> None:
    """The digest leaves it out, so that a trace id made anew is no divergence."""
    made = iter(range(100))
    got = []

    @mp.tool(effect="keyed", key_ttl="1h", volatile=("trace_id",))
    async def charge(order: str, trace_id: int) -> int:
        got.append((order, trace_id))
        return trace_id

    @mp.workflow(version="1", tools=[charge])
    async def flow(run: mp.Run) -> int:
        value = await charge("o-1", next(made))
        await run.receive("go", int)
        return value

    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await parked(handle, "signal")
        await app.send(handle.id, "go", 1)

        assert await handle.result(timeout="30s") == 0
        assert got == [("o-1", 0)]
        assert next(made) == 2


async def test_two_runs_and_two_calls_have_different_keys_and_one_call_keeps_its_own(stage: Stage) -> None:
    """Requirement 13. The key is derived from store, run and place, stored before the call and kept in retries."""
    keys = []

    @mp.tool(effect="keyed", key_ttl="1h", retry=mp.Retry(3, first="1ms"))
    async def charge(call: mp.Call, order: str) -> None:
        keys.append((order, call.attempt, call.key))
        if call.attempt < 3 and order == "o-1":
            raise mp.NotSent("no route")

    @mp.workflow(version="1", tools=[charge])
    async def flow(run: mp.Run) -> None:
        await charge("o-1")
        await charge("o-2")

    async with stage.app(flow) as app:
        first = await app.start(flow)
        await first.result(timeout="30s")
        await (await app.start(flow)).result(timeout="30s")

        assert [(order, attempt) for order, attempt, _ in keys] == [
            ("o-1", 1),
            ("o-1", 2),
            ("o-1", 3),
            ("o-2", 1),
        ] * 2
        assert len({key for _, _, key in keys}) == 4
        planned = [
            line.fields["plan"]["key"] for line in await app.inspect.journal(first.id) if line.fields.get("plan")
        ]
        assert planned == [keys[0][2], keys[3][2]]


async def test_a_resource_is_opened_once_and_handed_to_tools(stage: Stage) -> None:
    opened = []

    class Client:
        def ask(self) -> int:
            return 7

    @asynccontextmanager
    async def client() -> AsyncIterator[Client]:
        opened.append("open")
        yield Client()
        opened.append("closed")

    @mp.tool(effect="read")
    async def ask(call: mp.Call) -> int:
        return call.resource(Client).ask()

    @mp.workflow(version="1", tools=[ask])
    async def flow(run: mp.Run) -> int:
        return await ask() + await ask()

    async with stage.app(flow, resources={Client: client}) as app:
        assert await (await app.start(flow)).result(timeout="30s") == 14
        assert opened == ["open"]
    assert opened == ["open", "closed"]
