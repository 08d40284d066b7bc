"""Attached runs by the host's key: shared inside one process, held against others, reachable from plain threads."""

import asyncio
import contextvars
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

import milepost as mp
from milepost.adapters.foreign import foreign
from milepost.adapters.threads import Threads
from milepost.stores.api import Query
from tests.crash.killing import ROOT
from tests.runtime.stage import Stage

NOTE: dict[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


@mp.tool
async def mail(to: str) -> str:
    return f"sent {to}"


class Counting(mp.App):
    """An app that counts how often runs are attached, and by how many at once."""

    attachments = together = most = 0

    @asynccontextmanager
    async def attach(self, **options: Any) -> AsyncIterator[mp.AttachedRun]:
        self.attachments += 1
        async with super().attach(**options) as run:
            self.together += 1
            self.most = max(self.most, self.together)
            try:
                yield run
            finally:
                self.together -= 1


# ---------------------------------------------------------------- sharing inside one process


async def test_users_of_one_key_share_one_claim_also_when_they_come_at_the_same_instant(stage: Stage) -> None:
    app = Counting(stage.url, tools=[mail])
    threads = Threads(app)

    async def use(number: int) -> tuple[str, mp.Outcome[str]]:
        async with threads.attached("thread-7") as run:
            return run.id, await run.attempt(f"c{number}", mail, f"p{number}")

    found = await asyncio.gather(*(use(number) for number in range(8)))

    assert len({run_id for run_id, _ in found}) == 1
    assert [outcome for _, outcome in found] == [mp.Confirmed(f"sent p{number}") for number in range(8)]
    assert (app.attachments, app.most) == (1, 1)
    assert app.loop is None


async def test_the_last_one_to_leave_lets_go_and_no_one_before(stage: Stage) -> None:
    app, other = mp.App(stage.url, tools=[mail]), mp.App(stage.url, tools=[mail])
    threads = Threads(app)
    first_may_leave = asyncio.Event()

    async def first() -> None:
        async with threads.attached("k"):
            await first_may_leave.wait()

    task = asyncio.ensure_future(first())
    async with threads.attached("k") as run:
        first_may_leave.set()
        await task
        assert await run.attempt("c1", mail, "ann") == mp.Confirmed("sent ann")
        with pytest.raises(mp.RunHeld):
            async with other.attach(key="k"):
                raise AssertionError("never entered")
    async with other.attach(key="k") as again:
        assert again.id == run.id


async def test_different_keys_at_the_same_instant_are_different_runs_of_one_open_app(stage: Stage) -> None:
    app = mp.App(stage.url, tools=[mail])
    threads = Threads(app)
    inside = asyncio.Barrier(4)

    async def use(key: str) -> str:
        async with threads.attached(key) as run:
            await inside.wait()
            assert await run.attempt("c1", mail, key) == mp.Confirmed(f"sent {key}")
            return run.id

    assert len(set(await asyncio.gather(*(use(f"k{number}") for number in range(4))))) == 4


async def test_who_comes_while_the_last_one_leaves_attaches_anew(stage: Stage) -> None:
    app = Counting(stage.url, tools=[mail])
    threads = Threads(app)

    async def use(rounds: int) -> None:
        for number in range(rounds):
            async with threads.attached("k") as run:
                assert await run.attempt(f"c{rounds}-{number}", mail, f"{rounds}-{number}")
            await asyncio.sleep(0)

    await asyncio.gather(*(use(rounds) for rounds in (2, 3, 4)))

    assert app.most == 1


async def test_what_attaching_raises_reaches_each_who_waits_and_the_next_one_tries_anew(stage: Stage) -> None:
    app, other = Counting(stage.url, tools=[mail]), mp.App(stage.url, tools=[mail])
    threads = Threads(app)

    async def use(number: int) -> mp.Outcome[str]:
        async with threads.attached("k") as run:
            return await run.attempt(f"c{number}", mail, f"p{number}")

    async with other.attach(key="k"):
        errors = await asyncio.gather(*(use(number) for number in range(3)), return_exceptions=True)
    assert [type(error) for error in errors] == [mp.RunHeld] * 3
    assert app.attachments == 1
    assert await use(9) == mp.Confirmed("sent p9")


async def test_a_user_that_is_cancelled_leaves_the_others_attached(stage: Stage) -> None:
    app = mp.App(stage.url, tools=[mail])
    threads = Threads(app)
    inside = asyncio.Event()

    async def hangs() -> None:
        async with threads.attached("k"):
            inside.set()
            await asyncio.Event().wait()

    coming = asyncio.ensure_future(hangs())
    early = asyncio.ensure_future(hangs())
    await asyncio.sleep(0)
    early.cancel()  # while it is being attached
    await inside.wait()
    async with threads.attached("k") as run:
        coming.cancel()
        await asyncio.wait([coming, early])
        assert await run.attempt("c1", mail, "ann") == mp.Confirmed("sent ann")
    assert app.loop is None


async def test_an_app_that_the_host_opened_stays_open(stage: Stage) -> None:
    app = mp.App(stage.url, tools=[mail])
    threads = Threads(app)

    async with app:
        async with threads.attached("k") as run:
            assert await run.attempt("c1", mail, "ann") == mp.Confirmed("sent ann")
        assert app.loop is asyncio.get_running_loop()
        assert len(await app.inspect.journal(run.id)) > 0


async def test_authority_and_budget_are_those_that_a_run_begins_with(stage: Stage) -> None:
    pay = foreign("pay", NOTE, scopes=["pay"], cost={"usd": 2})
    app = mp.App(stage.url, tools=[pay])
    threads = Threads(app, authority=mp.Authority("bot", scopes=["pay"]), budget={"usd": 2})

    async def send(call: mp.Call, arguments: dict[str, Any]) -> str:
        return "paid"

    assert await threads.attempt("k", "c1", pay, {"text": "a"}, send=send) == mp.Confirmed("paid")
    short = await threads.attempt("k", "c2", pay, {"text": "b"}, send=send)
    assert isinstance(short, mp.Waiting)
    assert short.reason == "budget"


def started(program: str, stage: Stage) -> subprocess.Popen[str]:
    """Start a program on the store."""
    return subprocess.Popen([sys.executable, "-c", program, stage.url], stdout=subprocess.PIPE, text=True)


# ---------------------------------------------------------------- attempts


async def test_an_attempt_takes_what_a_model_made_and_refuses_what_does_not_fit(stage: Stage) -> None:
    app = mp.App(stage.url, tools=[mail])
    threads = Threads(app)

    assert await threads.attempt("k", "c1", mail, '{"to": "ann"}') == mp.Confirmed("sent ann")
    with pytest.raises(mp.InvalidArguments, match="bob"):
        await threads.attempt("k", "c2", mail, {"to": "ann", "bob": 1})


async def test_what_moves_by_itself_soon_is_waited_for_in_place(stage: Stage) -> None:
    tries: list[int] = []

    @mp.tool(retry=mp.Retry(3, first="50ms", most="50ms"))
    async def flaky(call: mp.Call, to: str) -> str:
        tries.append(call.attempt)
        if call.attempt < 3:
            raise mp.NotSent("no line")
        return to

    app = mp.App(stage.url, tools=[flaky])

    waiting = await Threads(app, patience="0s").attempt("a", "c1", flaky, {"to": "ann"})
    assert isinstance(waiting, mp.Waiting)
    assert waiting.reason == "time"
    tries.clear()
    assert await Threads(app).attempt("b", "c1", flaky, {"to": "ann"}) == mp.Confirmed("ann")
    assert tries == [1, 2, 3]


# ---------------------------------------------------------------- plain threads


def test_a_plain_script_attempts_from_its_main_thread_and_from_a_pool(stage: Stage) -> None:
    pay = foreign("pay", NOTE)
    app = Counting(stage.url, tools=[pay])
    threads = Threads(app)
    together = threading.Barrier(4, timeout=20)

    def handler(call: mp.Call, arguments: dict[str, Any]) -> str:
        together.wait()  # all four are in flight at once, or none gets on
        return f"paid {arguments['text']}"

    def attempt(number: int) -> mp.Outcome[Any]:
        given = {"text": str(number)}
        return threads.sync(lambda: threads.attempt("k", f"c{number}", pay, given, send=handler))

    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(attempt, range(4)))

    assert outcomes == [mp.Confirmed(f"paid {number}") for number in range(4)]
    assert app.most == 1
    assert attempt(2) == mp.Confirmed("paid 2")  # from its record: nobody else is at the barrier
    threads.close()


def test_a_plain_thread_is_served_by_the_loop_in_which_the_app_is_open(stage: Stage) -> None:
    pay = foreign("pay", NOTE)
    app = mp.App(stage.url, tools=[pay])
    threads = Threads(app)

    async def where(call: mp.Call, arguments: dict[str, Any]) -> str:
        return threading.current_thread().name

    async def host() -> mp.Outcome[Any]:
        async with app:
            attempt = lambda: threads.attempt("k", "c1", pay, {"text": "a"}, send=where)  # noqa: E731
            with pytest.raises(mp.InvalidDeclaration, match="await"):
                threads.sync(attempt)
            return await asyncio.to_thread(threads.sync, attempt)

    assert asyncio.run(host()) == mp.Confirmed("MainThread")


def test_the_callers_context_is_that_of_the_work(stage: Stage) -> None:
    """A framework keeps what its handler needs in context variables."""
    config: contextvars.ContextVar[str] = contextvars.ContextVar("config", default="none")
    pay = foreign("pay", NOTE)
    threads = Threads(mp.App(stage.url, tools=[pay]))

    def handler(call: mp.Call, arguments: dict[str, Any]) -> str:
        return config.get()

    config.set("mine")
    assert threads.sync(lambda: threads.attempt("k", "c1", pay, {"text": "a"}, send=handler)) == mp.Confirmed("mine")
    threads.close()


def test_what_the_work_raises_reaches_the_caller(stage: Stage) -> None:
    threads = Threads(mp.App(stage.url, tools=[mail]))

    with pytest.raises(mp.InvalidArguments):
        threads.sync(lambda: threads.attempt("k", "c1", mail, {}))
    threads.close()


@pytest.mark.parametrize("form", ["async def", "def"])
@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError])
def test_a_tool_that_would_end_the_process_leaves_its_call_unknown_and_the_others_go_on(
    error: type[BaseException], form: str, stage: Stage
) -> None:
    """Also where it is awaited in the loop that the threads share: that goes on turning."""
    pay = foreign("pay", NOTE)
    threads = Threads(mp.App(stage.url, tools=[pay]))

    def blocking(call: mp.Call, arguments: dict[str, Any]) -> str:
        if arguments["text"] == "ends":
            raise error("enough")
        return "paid"

    async def awaited(call: mp.Call, arguments: dict[str, Any]) -> str:
        return blocking(call, arguments)

    def attempt(text: str) -> mp.Outcome[Any]:
        send: Any = awaited if form == "async def" else blocking
        return threads.sync(lambda: threads.attempt("k", text, pay, {"text": text}, send=send))

    with suppress(error):
        attempt("ends")
    assert attempt("goes on") == mp.Confirmed("paid")
    again = attempt("ends")

    assert isinstance(again, mp.Waiting)
    assert again.reason == "unknown"
    threads.close()


def test_a_thread_that_waits_for_a_loop_which_is_closed_is_told_so_and_does_not_wait_for_ever(stage: Stage) -> None:
    gone = asyncio.new_event_loop()
    asked = threading.Event()

    class OpenThere(mp.App):
        @property
        def loop(self) -> asyncio.AbstractEventLoop:
            asked.set()
            return gone  # it has stopped, and is closed a moment later: as at the end of `asyncio.run`

    threads = Threads(OpenThere(stage.url, tools=[mail]))

    def attempt() -> mp.Outcome[str]:
        return threads.sync(lambda: threads.attempt("k", "c1", mail, {"to": "ann"}))

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(attempt)
        assert asked.wait(20)
        gone.close()
        with pytest.raises(mp.InvalidDeclaration, match="closed"):
            waiting.result(20)
    with pytest.raises(mp.InvalidDeclaration, match="closed"):
        attempt()


async def test_another_event_loop_is_told_where_the_app_is_open(stage: Stage) -> None:
    app = mp.App(stage.url, tools=[mail])
    threads = Threads(app)

    def elsewhere() -> None:
        with pytest.raises(mp.InvalidDeclaration, match="another event loop"):
            asyncio.run(threads.attempt("k", "c1", mail, {"to": "ann"}))
        with pytest.raises(mp.InvalidDeclaration, match="another event loop"):
            asyncio.run(attach())

    async def attach() -> None:
        async with app.attach(key="z"):
            raise AssertionError("never entered")

    async with threads.attached("k"):
        await asyncio.to_thread(elsewhere)


INTERRUPTED = """
import asyncio, sys, threading
import milepost as mp
from milepost.adapters.threads import Threads

@mp.tool
async def mail(to: str) -> str:
    print("in flight", flush=True)
    await asyncio.Event().wait()

threads = Threads(mp.App(sys.argv[1], tools=[mail]))
try:
    threads.sync(lambda: threads.attempt("k", "c1", mail, {"to": "ann"}))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


async def test_ctrl_c_in_a_script_records_what_is_not_known(stage: Stage) -> None:
    process = started(INTERRUPTED, stage)
    assert process.stdout is not None
    assert await asyncio.to_thread(process.stdout.readline) == "in flight\n"
    process.send_signal(signal.SIGINT)
    out, _ = await asyncio.to_thread(process.communicate, timeout=30)

    assert (process.returncode, out) == (0, "interrupted\n")
    app = mp.App(stage.url, tools=[mail])
    async with app.client():
        view = (await app.inspect.runs(Query()))[0]
        assert [effect.outcome for effect in await app.inspect.effects(view.id)] == ["unknown"]


# ---------------------------------------------------------------- several processes

HOLDS = """
import asyncio, sys
import milepost as mp
from milepost.adapters.threads import Threads

@mp.tool
async def mail(to: str) -> str:
    return to

async def main():
    async with Threads(mp.App(sys.argv[1], tools=[mail])).attached("k") as run:
        print(run.id, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_another_process_with_the_same_key_is_told_who_holds_it_and_takes_over_once_it_is_dead(
    stage: Stage,
) -> None:
    """Requirement 59."""
    threads = Threads(mp.App(stage.url, tools=[mail]))
    process = started(HOLDS, stage)
    assert process.stdout is not None
    run_id = (await asyncio.to_thread(process.stdout.readline)).strip()
    try:
        with pytest.raises(mp.RunHeld, match="alive") as held:
            await threads.attempt("k", "c1", mail, {"to": "ann"})
        assert held.value.run_id == run_id
        assert f"-{process.pid}-" in held.value.owner
    finally:
        process.kill()
        process.communicate()
    assert await threads.attempt("k", "c1", mail, {"to": "ann"}) == mp.Confirmed("sent ann")


def test_a_process_that_is_forked_is_told_that_threads_do_not_come_along_and_its_parent_goes_on(stage: Stage) -> None:
    """It would wait for an event loop that does not turn in it."""
    program = [sys.executable, "-W", "ignore", "-m", "tests.adapters.forked_host", stage.url]

    ended = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=30, check=True)

    assert ended.stdout == "child: invalid_declaration\nparent: sent before, sent after\n"
