"""Several workers on one file: death, freezing, draining, and what a worker that lost its run may still do."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import milepost as mp
from milepost.runtime import locks
from tests.runtime import worker_process
from tests.runtime.stage import Stage, has_entry, has_outcome, names, parked, until

ROOT = Path(worker_process.__file__).parents[2]


class Others:
    """Worker processes that a test started, and the world that they share with it."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.timeout = "2m"  # so long that no call is given up before the test has done what it is about
        self.ledger = stage.folder / "ledger.txt"
        self.ledger.touch()
        self.go_on = stage.folder / "go-on"
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, *, lease: str = "30s", what: str = "serve") -> subprocess.Popen[str]:
        """Start a worker process and wait until it says that it is ready."""
        paths = (str(path) for path in (self.stage.url, self.ledger, self.go_on))
        command = [sys.executable, "-m", worker_process.__name__, *paths, lease, self.timeout, what]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        self.processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready")
        return process

    def lines(self) -> list[str]:
        """Return what the outside world was asked for, in order."""
        return self.ledger.read_text().splitlines()

    def flow(self) -> mp.Workflow[str, list[str]]:
        """Return the workflow that the other processes run, for an app in this one."""
        return worker_process.flow_over(self.ledger, self.go_on, self.timeout)

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                os.kill(process.pid, signal.SIGCONT)
                process.kill()
            process.wait(timeout=10)
            if process.stdout is not None:
                process.stdout.close()


@pytest.fixture
def others(stage: Stage) -> Iterator[Others]:
    """Other processes; whatever is left of them is ended after the test."""
    started = Others(stage)
    yield started
    started.close()


async def acting(others: Others, pid: int) -> None:
    async def ask() -> bool:
        return f"{pid} act slow x" in others.lines()

    await until(ask, "the tool is in flight")


async def test_a_killed_worker_is_replaced_at_once_and_its_effect_is_unknown(stage: Stage, others: Others) -> None:
    """Requirement 69. Requirement 18. Requirement 3. Requirement 85. Requirement 10.

    The lease would last for minutes; the lock file says at once that it is dead. The finished segment stays finished.
    """
    flow = others.flow()
    worker = others.start(lease="5m")
    app = stage.app(flow)
    async with app.client():
        handle = await app.start(flow, "x")
        await acting(others, worker.pid)
        worker.kill()
        worker.wait(timeout=10)
    others.go_on.touch()
    async with stage.app(flow) as app:
        handle = app.handle(handle.id, flow)
        await parked(handle, "unknown")
        unknown = [line.fields for line in await app.inspect.journal(handle.id) if line.name == "effect_unknown"]
        assert unknown[0]["why"] == "the worker died while it was in flight"
        await app.resolve(handle.id, "second/act#1", mp.happened("did slow x"), by="ann", why="looked")
        assert await handle.result(timeout="30s") == ["seen x", "did slow x", "did quick x"]
    assert [line.partition(" ")[2] for line in others.lines()] == ["look x", "act slow x", "act quick x"]


async def test_a_frozen_worker_loses_its_run_and_its_late_evidence_settles_the_effect(
    stage: Stage, others: Others
) -> None:
    """Requirement 33. Requirement 66. Requirement 69. It cannot append under its old epoch; what it saw is used."""
    others.timeout = "4s"  # the lease lasts as long as the call may take
    flow = others.flow()
    worker = others.start(lease="300ms")
    app = stage.app(flow)
    async with app.client():
        handle = await app.start(flow, "x")
        await acting(others, worker.pid)
        os.kill(worker.pid, signal.SIGSTOP)
    async with stage.app(flow) as app:
        handle = app.handle(handle.id, flow)
        await parked(handle, "unknown")
        epochs = [line.fields["epoch"] for line in await app.inspect.journal(handle.id) if line.name == "claimed"]
        assert epochs == sorted(set(epochs))
        assert len(epochs) == 2
        assert others.lines().count(f"{worker.pid} act slow x") == 1
        os.kill(worker.pid, signal.SIGCONT)
        others.go_on.touch()
        assert await handle.result(timeout="30s") == ["seen x", "did slow x", "did quick x"]
        confirmed = [line.fields for line in await app.inspect.journal(handle.id) if line.name == "effect_confirmed"]
        assert confirmed[0]["by"] == "evidence"
        assert (await app.inspect.verify(handle.id)).damage is None
    assert sorted(line.partition(" ")[2] for line in others.lines()) == ["act quick x", "act slow x", "look x"]


async def test_kill_from_another_process_returns_while_the_tool_hangs(stage: Stage, others: Others) -> None:
    """Requirement 66. Neither the worker's loop nor its tool has to cooperate."""
    flow = others.flow()
    worker = others.start()
    app = stage.app(flow)
    async with app.client():
        handle = await app.start(flow, "x")
        await acting(others, worker.pid)
        os.kill(worker.pid, signal.SIGSTOP)  # it could not cooperate if it wanted to
        assert list(await app.kill(handle.id, why="runaway")) == ["second/act#1"]
        os.kill(worker.pid, signal.SIGCONT)
        others.go_on.touch()
        await has_outcome(app, handle.id, "second/act#1", "confirmed")
        assert (await handle.status()).status == "killed"
    assert [line.partition(" ")[2] for line in others.lines()] == ["look x", "act slow x"]


async def test_a_run_that_another_process_holds_cannot_be_attached(stage: Stage, others: Others) -> None:
    holder = others.start(what="thread-7")
    app = mp.App(stage.url)
    with pytest.raises(mp.RunHeld):
        async with app.attach(key="thread-7"):
            raise AssertionError("never entered")
    holder.kill()
    holder.wait(timeout=10)
    async with app.attach(key="thread-7") as run:
        await run.finish("taken over")


async def test_two_workers_on_one_file_do_every_run_once(stage: Stage, others: Others) -> None:
    """Requirement 33. Requirement 51."""
    others.go_on.touch()
    flow = others.flow()
    others.start()
    others.start()
    app = stage.app(flow)
    async with app.client():
        handles = [await app.start(flow, f"r{n}") for n in range(12)]
        for n, handle in enumerate(handles):
            assert await handle.result(timeout="30s") == [f"seen r{n}", f"did slow r{n}", f"did quick r{n}"]
            assert (await app.inspect.verify(handle.id)).damage is None
    done = sorted(line.partition(" ")[2] for line in others.lines())
    assert done == sorted(f"{what} r{n}" for n in range(12) for what in ("look", "act slow", "act quick"))


async def test_leaving_lets_what_is_in_flight_finish_and_gives_the_run_back(stage: Stage) -> None:
    """Requirement 18. A graceful drain: recorded, released, and ready for whoever is next."""
    sent = []
    answers = asyncio.Event()

    @mp.tool
    async def mail(to: str) -> str:
        sent.append(to)
        await answers.wait()
        return f"sent {to}"

    @mp.workflow(version="1", tools=[mail])
    async def flow(run: mp.Run) -> list[str]:
        return [await mail("ann"), await mail("bob")]

    async def answer_when_it_leaves(app: mp.App) -> None:
        async def leaves() -> bool:
            return app._need_engine().draining

        await until(leaves, "it leaves")
        answers.set()

    async with stage.app(flow) as app:
        handle = await app.start(flow)
        await has_entry(app, handle.id, "effect_started")
        answering = asyncio.create_task(answer_when_it_leaves(app))
    await answering
    assert sent == ["ann"]
    assert stage.rows("SELECT status, owner FROM mp_runs WHERE id = ?", handle.id) == [("ready", None)]
    assert stage.rows("SELECT ended_at IS NOT NULL FROM mp_workers") == [(1,)]
    assert list(locks.folder_of(stage.local).glob("*.lock")) == []
    async with stage.app(flow) as app:
        assert await app.handle(handle.id, flow).result(timeout="30s") == ["sent ann", "sent bob"]
        assert sent == ["ann", "bob"]


async def test_a_drain_past_its_grace_leaves_the_effect_unknown_never_failed(stage: Stage) -> None:
    """Requirement 31."""
    sent = []

    @mp.tool
    async def mail(to: str) -> str:
        sent.append(to)
        await asyncio.sleep(60)
        return "never"

    @mp.workflow(version="1", tools=[mail])
    async def flow(run: mp.Run) -> str:
        return await mail("ann")

    app = stage.app(flow)
    stop = asyncio.Event()
    serving = asyncio.create_task(app.serve(stop, together=10, grace="100ms"))
    client = stage.app(flow)
    async with client.client():
        handle = await client.start(flow)
        await has_entry(client, handle.id, "effect_started")
        stop.set()
        await serving
        await has_outcome(client, handle.id, "flow/mail#1", "unknown")
    async with stage.app(flow) as again:
        await parked(again.handle(handle.id), "unknown")
        assert sent == ["ann"]


async def test_a_lease_is_made_to_outlast_the_attempt_that_starts_under_it(stage: Stage) -> None:
    seen: list[tuple[int]] = []

    @mp.tool(timeout="40s")
    async def mail(to: str) -> None:
        seen.extend(
            (int(until),) for (until,) in stage.rows("SELECT lease_until FROM mp_workers WHERE ended_at IS NULL")
        )

    @mp.workflow(version="1", tools=[mail])
    async def flow(run: mp.Run) -> None:
        await mail("ann")

    async with stage.app(flow, still=True, lease="5s") as app:
        await (await app.start(flow)).result(timeout="30s")
        assert len(seen) == 1
        assert seen[0][0] >= stage.clock.now() + 41_000  # its timeout and the margin


async def test_a_run_is_claimed_under_a_higher_epoch_each_time(stage: Stage) -> None:
    @mp.workflow(version="1")
    async def flow(run: mp.Run) -> int:
        return await run.receive("go", int)

    app = stage.app(flow)
    async with app.client():
        handle = await app.start(flow)
    for times in (1, 2, 3):
        async with stage.app(flow) as app:
            await app.send(handle.id, "other", 1)
            await has_entry(app, handle.id, "signal_sent", times)
            await parked(app.handle(handle.id), "signal")
    async with app.client():
        claimed = [line.fields["epoch"] for line in await app.inspect.journal(handle.id) if line.name == "claimed"]
        assert claimed == list(range(1, len(claimed) + 1))
        assert len(claimed) >= 3
        assert "run_stopped" not in await names(app, handle.id)
