"""A run that cannot move rests, and one that rests is not looked at without a pause."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import milepost as mp
from milepost.runtime import locks
from tests.runtime.stage import Stage, parked, status_of, until


@mp.tool
async def mail(to: str) -> str:
    raise RuntimeError("the connection was lost")


@mp.workflow(version="1", tools=[mail])
async def mailing(run: mp.Run) -> str:
    return await mail("ann")


@mp.workflow(version="1", tools=[mail])
async def mailing_beside_a_sleep(run: mp.Run) -> str:
    await run.gather(run.sleep("600ms"), mail("ann"))
    return "done"


@mp.workflow(version="1", tools=[mail])
async def mailing_after_what_was_given_up(run: mp.Run) -> str:
    for waiting in (run.sleep("300ms"), run.receive("news", str, timeout="300ms")):
        try:
            async with asyncio.timeout(0.01):
                await waiting
        except TimeoutError:
            continue
    return await mail("ann")


async def quiet(stage: Stage, run_id: str) -> None:
    """Return once nobody holds the run and nothing of it is due; AssertionError if it is taken up again."""

    def look() -> tuple[object, object, int]:
        ((owner, due, epoch),) = stage.rows(
            "SELECT owner, due, epoch FROM mp_runs JOIN mp_heads USING (run) WHERE id = ?", run_id
        )
        return owner, due, epoch

    async def rests() -> bool:
        return look()[:2] == (None, None)

    await until(rests, "it rests")
    seen = look()
    await asyncio.sleep(0.3)
    assert look() == seen


async def test_a_deadline_that_passed_wakes_a_run_once(stage: Stage) -> None:
    """It then waits for a person, without being claimed again and again."""
    async with stage.app(mailing, still=True) as app:
        handle = await app.start(mailing, deadline="10m")
        assert (await parked(handle, "unknown")).ask
        stage.clock.advance("10m")
        await quiet(stage, handle.id)
        await app.resolve(handle.id, "mailing/mail#1", mp.happened("sent"), by="ann", why="looked")
        assert (await status_of(handle, "failed")).status == "failed"


async def test_a_sleep_that_passed_does_not_move_a_run_that_was_stopped(stage: Stage) -> None:
    """Neither one that was cancelled nor one that was killed, while a person is waited for."""
    async with stage.app(mailing_beside_a_sleep) as app:
        handles = [await app.start(mailing_beside_a_sleep) for _ in range(2)]
        for handle in handles:
            await parked_effect(app, handle.id)
        await app.cancel(handles[0].id, why="no longer wanted")
        await app.kill(handles[1].id, why="no longer wanted")
        await asyncio.sleep(0.7)
        for handle in handles:
            await quiet(stage, handle.id)


async def parked_effect(app: mp.App, run_id: str) -> None:
    """Wait until a person is asked about an effect of the run."""

    async def asked() -> bool:
        return any(effect.person for effect in await app.inspect.effects(run_id))

    await until(asked, "a person is asked")


def test_a_script_is_told_at_once_that_only_a_person_helps(stage: Stage) -> None:
    """Also where a wait was given up before, and where a deadline lies ahead."""
    for flow in (mailing, mailing_after_what_was_given_up):
        with pytest.raises(mp.NeedsPerson):
            stage.app(mailing, mailing_after_what_was_given_up).run(flow, deadline="1h", timeout="30s")


async def test_a_call_cancelled_while_its_started_was_refused_leaves_nothing_to_wait_for(stage: Stage) -> None:
    """It was never written, so the segment goes on as if it had not been made."""

    @mp.tool(effect="keyed", key_ttl="1h")
    async def pay() -> str:
        return "paid"

    @mp.workflow(version="1", tools=[pay])
    async def impatient(run: mp.Run) -> str:
        async def hurried() -> None:
            async with asyncio.timeout(0):
                await pay()

        try:
            await run.gather(hurried(), run.sleep("10ms"))
        except TimeoutError:
            return "gave up"
        return "paid"

    async with stage.app(impatient):
        pass
    stage.write("INSERT INTO mp_switches VALUES ('tool:pay', 'hold', '', 'a test', 'ann', 1)")
    async with stage.app(impatient) as app:
        handle = await app.start(impatient)
        assert await handle.result(timeout="30s") == "gave up"


async def test_a_tool_that_is_slow_to_end_after_its_time_holds_no_killed_run(stage: Stage) -> None:
    """The worker lets go of it when the tool has ended."""
    ending = asyncio.Event()

    @mp.tool(timeout="50ms")
    async def stubborn() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ending.set()
            await asyncio.sleep(0.5)
            raise
        return "never"

    @mp.workflow(version="1", tools=[stubborn])
    async def flow(run: mp.Run) -> str:
        return await stubborn()

    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await ending.wait()
        assert await app.kill(handle.id, why="a test") == ["flow/stubborn#1"]

        async def let_go() -> bool:
            return not any(task.get_name() == f"milepost-{handle.id}" for task in asyncio.all_tasks())

        await until(let_go, "the worker lets go")


async def test_a_worker_is_not_taken_for_dead_while_a_tool_keeps_its_cancellation_to_itself(stage: Stage) -> None:
    """Its lock stays to the end of the process: what it does until then is not quiet."""
    started, go_on = asyncio.Event(), asyncio.Event()

    @mp.tool
    async def deaf() -> str:
        started.set()
        while not go_on.is_set():
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                continue
        return "done"

    @mp.workflow(version="1", tools=[deaf])
    async def flow(run: mp.Run) -> str:
        return await deaf()

    async with stage.app(flow).client() as app:
        await app.start(flow)
    stop = asyncio.Event()
    serving = asyncio.ensure_future(stage.app(flow).serve(stop, together=5, grace="50ms"))
    await started.wait()
    stop.set()
    await serving
    files = list(locks.folder_of(stage.local).glob("*.lock"))
    assert len(files) == 1
    assert not locks.is_dead(stage.local, files[0].name.removesuffix(".lock"))
    go_on.set()


async def test_a_host_is_told_when_its_run_is_killed_while_an_effect_is_being_settled(stage: Stage) -> None:
    """It waits for the settling, and what it waits for will not come."""
    asked, answer = asyncio.Event(), asyncio.Event()

    @mp.tool(effect="queryable", visible_within="1h")
    async def charge() -> str:
        raise RuntimeError("the connection was lost")

    @charge.reconcile
    async def find() -> mp.Finding[str]:
        asked.set()
        await answer.wait()
        return mp.still_unknown(ask_again="1h")

    async with stage.app(tools=[charge]) as app, app.attach(key="thread") as run:
        attempt = asyncio.ensure_future(run.attempt("a", charge))
        await asked.wait()
        await app.kill(run.id, why="a test")
        with pytest.raises(mp.EpochLost):
            await asyncio.wait_for(attempt, 30)
        answer.set()


KILLED_ELSEWHERE = """
import asyncio, os, signal, socket, sys
socket.gethostname = lambda: "another-machine"
import tests.runtime.test_coming_to_rest as here
async def main():
    async with here.moving(sys.argv[1]) as app:
        await app.start(here.lost_elsewhere)
        await asyncio.sleep(60)
asyncio.run(main())
"""


@mp.tool(effect="queryable", visible_within="100ms", timeout="300ms")
async def post(x: str) -> str:
    if os.environ.get("MILEPOST_TEST_DIES"):
        os.kill(os.getpid(), signal.SIGKILL)
    return "posted"


@post.reconcile
async def _find(x: str) -> mp.Finding[str]:
    return mp.did_not_happen()


@mp.workflow(version="1", tools=[post])
async def lost_elsewhere(run: mp.Run) -> str:
    return await post("x")


def moving(url: str) -> mp.App:
    """Return an app whose workers are soon taken for gone."""
    return mp.App(url, workflows=[lost_elsewhere], lease="1s")


def test_a_worker_of_another_machine_is_taken_for_quiet_after_its_lease_and_the_attempts_time(stage: Stage) -> None:
    """A container that comes back under another name is such a worker: else its effect would never be settled."""
    root = Path(__file__).parents[2]
    environment = {**os.environ, "MILEPOST_TEST_DIES": "1", "PYTHONPATH": f"{root / 'src'}:{root}"}
    process = subprocess.run(
        [sys.executable, "-c", KILLED_ELSEWHERE, stage.url], env=environment, cwd=root, timeout=60, check=False
    )
    assert process.returncode == -signal.SIGKILL

    async def wait() -> str:
        async with moving(stage.url) as app:
            ((run_id,),) = stage.rows("SELECT id FROM mp_runs WHERE run > 0")
            return await app.handle(run_id, lost_elsewhere).result(timeout="30s")

    assert asyncio.run(wait()) == "posted"
