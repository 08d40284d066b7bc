"""Rows of workers: removed when they say nothing any more, and written again by a worker that goes on after that."""

import os
import signal
from collections.abc import Iterator

import pytest

import milepost as mp
from milepost.core.lease import KEPT_MS
from milepost.runtime import enlisting
from tests.runtime.stage import Stage, parked, status_of, until
from tests.runtime.test_workers import Others

LEASE_MS = 30_000


@pytest.fixture
def others(stage: Stage) -> Iterator[Others]:
    """Other processes; whatever is left of them is ended after the test."""
    started = Others(stage)
    yield started
    started.close()


@mp.workflow(version="1")
async def flow(run: mp.Run, number: int) -> int:
    return number


def row(stage: Stage, worker: str, lease_until: int, *, started_at: int = 0, ended_at: int | None = None) -> None:
    stage.write(
        "INSERT INTO mp_workers (id, host, pid, started_at, lease_until, ended_at) VALUES (?, 'far', 1, ?, ?, ?)",
        worker, started_at, lease_until, ended_at,
    )  # fmt: skip


def rows(stage: Stage) -> set[str]:
    return {str(worker) for (worker,) in stage.rows("SELECT id FROM mp_workers WHERE host = 'far'")}


async def test_a_worker_that_opens_removes_the_rows_of_those_that_are_long_gone(stage: Stage) -> None:
    app = stage.app(flow, still=True)
    async with app.client():
        pass
    now = stage.clock.now()
    row(stage, "left", 0, ended_at=now - KEPT_MS)
    row(stage, "left-lately", 0, ended_at=now - KEPT_MS + 1)
    row(stage, "lapsed", now - KEPT_MS, started_at=now - KEPT_MS - LEASE_MS)
    row(stage, "lapsed-lately", now - KEPT_MS + 1, started_at=now - KEPT_MS - LEASE_MS)
    row(stage, "took-days", now - 2 * KEPT_MS, started_at=now - 5 * KEPT_MS)  # so may have what it began
    row(stage, "at-work", now + 1, started_at=now - 9 * KEPT_MS)

    async with stage.app(flow, still=True):
        assert rows(stage) == {"left-lately", "lapsed-lately", "took-days", "at-work"}


async def test_a_client_removes_no_rows(stage: Stage) -> None:
    app = stage.app(flow, still=True)
    async with app.client():
        pass
    row(stage, "left", 0, ended_at=1)

    async with stage.app(flow, still=True).client():
        assert rows(stage) == {"left"}


async def test_an_opening_removes_a_bounded_number_of_rows_the_oldest_first(stage: Stage) -> None:
    app = stage.app(flow, still=True)
    async with app.client():
        pass
    for number in range(enlisting.AT_ONCE + 5):
        row(stage, f"w{number}", 0, started_at=number, ended_at=1)

    async with stage.app(flow, still=True):
        assert rows(stage) == {f"w{number}" for number in range(enlisting.AT_ONCE, enlisting.AT_ONCE + 5)}
    async with stage.app(flow, still=True):
        assert rows(stage) == set()


async def test_the_row_of_a_worker_that_is_gone_stays_while_it_holds_a_run(stage: Stage) -> None:
    app = stage.app(flow, still=True)
    async with app.client():
        handle = await app.start(flow, 1)
    row(stage, "gone", 1)
    stage.write("UPDATE mp_runs SET owner = 'gone', due = NULL, status = 'running' WHERE id = ?", handle.id)

    async with stage.app(still=True):  # it does not know the workflow, and takes nothing over
        assert rows(stage) == {"gone"}
    async with stage.app(flow, still=True) as app:
        assert await app.handle(handle.id, flow).result(timeout="30s") == 1
    async with stage.app(flow, still=True):
        assert rows(stage) == set()


async def test_a_run_whose_owner_has_no_row_is_taken_over(stage: Stage) -> None:
    app = stage.app(flow, still=True)
    async with app.client():
        handle = await app.start(flow, 1)
    stage.write("UPDATE mp_runs SET owner = 'nobody', due = NULL, status = 'running' WHERE id = ?", handle.id)

    async with stage.app(flow, still=True) as app:
        assert await app.handle(handle.id, flow).result(timeout="30s") == 1


async def test_a_worker_whose_row_is_gone_enlists_again_before_it_claims(stage: Stage) -> None:
    seen: list[tuple[object, ...]] = []

    @mp.tool(timeout="10m")
    async def look() -> None:
        seen.extend(stage.rows("SELECT id, lease_until, ended_at FROM mp_workers"))

    @mp.workflow(version="1", tools=[look])
    async def looking(run: mp.Run) -> None:
        await look()

    async with stage.app(looking, still=True, lease="1h") as app:  # renewed every twenty minutes: not in this test
        worker = app._need_engine().worker
        stage.clock.advance("3d")
        stage.write("DELETE FROM mp_workers")

        await (await app.start(looking)).result(timeout="30s")

        assert [(who, ended) for who, _, ended in seen] == [(worker, None)]
        assert seen[0][1] == app._need_engine().lease_until
        assert app._need_engine().lease_until >= stage.clock.now() + 600_000
        assert app._need_engine().lapses == 1


async def test_a_longer_lease_for_one_attempt_lets_nothing_be_sent_that_began_under_one_that_lapsed(
    stage: Stage,
) -> None:
    async with stage.app(flow, still=True, lease="1h") as app:
        engine = app._need_engine()
        before = engine.lapses  # as an attempt notes it whose `started` is queued now

        running = engine.lease_for(stage.clock.now(), 2 * 3_600_000)
        unchanged = engine.lapses
        stage.clock.advance("3h")
        engine.leased(engine.lease_for(stage.clock.now(), 60_000))

        assert running is not None
        assert unchanged == before
        assert engine.lease_until > stage.clock.now()
        assert engine.lapses > before


async def test_a_renewal_that_finds_no_row_writes_it_again(stage: Stage) -> None:
    async with stage.app(flow, lease="300ms"):
        before = stage.rows("SELECT id, host, pid, started_at FROM mp_workers")
        stage.write("DELETE FROM mp_workers")

        async def written() -> bool:
            return stage.rows("SELECT id, host, pid, started_at FROM mp_workers") == before

        await until(written, "its row is there again")
        assert stage.rows("SELECT lease_until > started_at FROM mp_workers") == [(1,)]


async def test_a_worker_that_thaws_after_its_row_was_removed_is_at_work_again(stage: Stage, others: Others) -> None:
    """What it held is another's by then; what it saw of its call is used, and what comes next it drives by itself."""
    others.timeout = "4s"
    process = others.start(lease="300ms")
    slow = others.flow()
    client = stage.app(slow)
    async with client.client():
        handle = await client.start(slow, "x")

        async def acting() -> bool:
            return f"{process.pid} act slow x" in others.lines()

        await until(acting, "the tool is in flight")
        os.kill(process.pid, signal.SIGSTOP)
    async with stage.app(slow) as app:
        await parked(app.handle(handle.id, slow), "unknown")
    stage.write("UPDATE mp_workers SET started_at = 0, lease_until = 1 WHERE pid = ?", process.pid)
    async with stage.app():
        assert stage.rows("SELECT 1 FROM mp_workers WHERE pid = ?", process.pid) == []

    others.go_on.touch()
    os.kill(process.pid, signal.SIGCONT)

    async with client.client():
        await status_of(client.handle(handle.id, slow), "done")
        assert await client.handle(handle.id, slow).result() == ["seen x", "did slow x", "did quick x"]
        assert stage.rows("SELECT ended_at FROM mp_workers WHERE pid = ?", process.pid) == [(None,)]
    assert sorted(line.partition(" ")[2] for line in others.lines()) == ["act quick x", "act slow x", "look x"]
