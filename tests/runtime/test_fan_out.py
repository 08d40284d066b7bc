"""Very many children of one parent: what is kept of them, what waking for them costs, and cancelling all of them.

By default there are a few hundred; with MILEPOST_SWEEP=all ten thousand, by the same code.
"""

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apsw
import msgspec
import pytest

import milepost as mp
from milepost.core import codec
from milepost.core import entries as e
from milepost.core.steps import ChildWait
from milepost.runtime import children
from milepost.runtime.checkpoints import CHILDREN_IN_PLACE
from milepost.stores.api import Query
from tests.runtime.stage import Stage, names, parked, status_of, until

MANY = 10_000 if os.environ.get("MILEPOST_SWEEP") == "all" else 300
WITHIN = "20m" if MANY > 1_000 else "50s"
BOUNDARY_BYTES = 2_000
FEW, SOME = 50, 200
HOW_MANY = "SELECT count(*) FROM mp_runs WHERE run > 0 AND status = ?"
VM_STEPS = "SQLITE_STMTSTATUS_VM_STEP"


@mp.workflow(version="1")
async def double(run: mp.Run, n: int) -> int:
    return 2 * n


@mp.workflow(version="1")
async def listen(run: mp.Run, n: int) -> int:
    return n + await run.receive("go", int)


fan = mp.Workflow("fan", version="1", input=int, result=int)


@fan.segment
async def spread(run: mp.Run, count: int) -> mp.Next[int]:
    async def one(n: int) -> int:
        return await (await run.start(double, n)).result()

    return mp.go(gather_up, sum(await run.map(one, range(count), limit=count)))


@fan.segment
async def gather_up(run: mp.Run, total: int) -> mp.Next[int]:
    return mp.done(total)


leaving = mp.Workflow("leaving", version="1", input=int, result=int)


@leaving.segment
async def start_all(run: mp.Run, count: int) -> mp.Next[int]:
    for n in range(count):
        await run.start(listen, n, key=f"child-{n}")
    return mp.go(wait_for_all, count)


@leaving.segment
async def wait_for_all(run: mp.Run, count: int) -> mp.Next[int]:
    handles = [await run.start(listen, n, key=f"child-{n}") for n in range(count)]
    return mp.done(sum(await run.gather(*[handle.result() for handle in handles])))


@mp.workflow(version="1")
async def hold_all(run: mp.Run, count: int) -> int:
    handles = [await run.start(listen, n) for n in range(count)]
    return sum(await run.gather(*[handle.result() for handle in handles]))


async def are(stage: Stage, status: str, count: int) -> None:
    """Wait until so many runs are in a status: ten thousand take longer than `until` waits."""
    while stage.rows(HOW_MANY, status) != [(count,)]:  # noqa: ASYNC110  the file has no event
        await asyncio.sleep(0.05)


def boundaries(stage: Stage, run_id: str) -> list[int]:
    """Return how many bytes each boundary of a run has."""
    rows = stage.rows("SELECT body FROM mp_journal j JOIN mp_runs r USING (run) WHERE r.id = ? ORDER BY seq", run_id)
    return [len(body) for (body,) in rows if isinstance(codec.decode(body), e.BOUNDARIES)]


@pytest.mark.timeout(1_800)
async def test_a_parent_of_very_many_has_small_boundaries_and_the_sum_of_their_results(stage: Stage) -> None:
    """Requirement 33."""
    async with stage.app(fan, double) as app:
        handle = await app.start(fan, MANY)
        assert await handle.result(timeout=WITHIN) == MANY * (MANY - 1)
    sizes = boundaries(stage, handle.id)
    assert len(sizes) == 3
    assert max(sizes) < BOUNDARY_BYTES
    assert stage.rows("SELECT count(*) FROM mp_runs WHERE parent IS NOT NULL AND status = 'done'") == [(MANY,)]


async def test_children_that_run_on_over_a_boundary_are_awaited_behind_it(stage: Stage) -> None:
    count = CHILDREN_IN_PLACE + 50
    async with stage.app(leaving, listen) as app:
        handle = await app.start(leaving, count)
        await parked(handle, "child")
        assert max(boundaries(stage, handle.id)) < BOUNDARY_BYTES
        for row in await app.inspect.runs(Query(workflow="listen", limit=10_000)):
            await app.send(row.id, "go", 1)
        assert await handle.result(timeout="40s") == count * (count - 1) // 2 + count


async def test_ends_of_children_gather_before_they_wake_a_parent_that_waits_for_many(stage: Stage) -> None:
    count = 3 * children.PATIENT_FROM
    app = stage.app(hold_all, listen, still=True)
    async with app:
        handle = await app.start(hold_all, count)
        await parked(handle, "child")
        rows = await app.inspect.runs(Query(workflow="listen", limit=1_000))
        entered = (await names(app, handle.id)).count("claimed")

        async def ended(number: int) -> None:
            async def ask() -> bool:
                return stage.rows("SELECT count(*) FROM mp_runs WHERE status = 'done'") == [(number,)]

            await until(ask)

        for number, row in enumerate(rows[:10], start=1):
            await app.send(row.id, "go", 1)
            await ended(number)
        assert (await names(app, handle.id)).count("claimed") == entered

        stage.clock.advance("1s")

        async def heard() -> bool:
            return (await names(app, handle.id)).count("child_ended") == 10

        await until(heard)
        assert (await names(app, handle.id)).count("claimed") == entered + 1
        for row in rows[10:]:
            await app.send(row.id, "go", 1)
        assert await handle.result(timeout="40s") == count * (count - 1) // 2 + count


@pytest.mark.timeout(1_800)
async def test_cancelling_a_parent_cancels_all_of_its_children(stage: Stage) -> None:
    async with stage.app(hold_all, listen) as app:
        handle = await app.start(hold_all, MANY)
        other = await app.start(listen, 1)
        await are(stage, "parked", MANY + 2)

        await app.cancel(handle.id, why="not needed")

        await are(stage, "cancelled", MANY + 1)
        (why,) = stage.rows("SELECT DISTINCT why FROM mp_runs WHERE parent IS NOT NULL")
        assert (await other.status()).status in {"running", "parked"}
        assert stage.rows("SELECT count(*) FROM mp_inbox WHERE taken = 0") == [(0,)]
    assert why == ("cancelled: its parent was cancelled: not needed",)


async def test_what_the_database_does_for_a_child_does_not_grow_with_the_number_of_its_siblings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps of the database's own machine; `tests/runtime_on_postgres` counts what that store reads."""
    steps: list[int] = []

    def count_in(of: dict[str, Any]) -> None:
        if of["sql"] != HOW_MANY:  # which the test asks, as often as it has to wait
            steps.append(of["stmt_status"][VM_STEPS])

    def counted(connection: apsw.Connection) -> None:
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, count_in)

    async def for_each(count: int) -> float:
        stage = Stage(tmp_path / str(count))
        stage.folder.mkdir()
        steps.clear()
        async with stage.app(hold_all, listen) as app:
            handle = await app.start(hold_all, count)
            await are(stage, "parked", count + 1)
            await app.cancel(handle.id, why="not needed")
            await are(stage, "cancelled", count + 1)
        return sum(steps) / count

    monkeypatch.setattr(apsw, "connection_hooks", [*apsw.connection_hooks, counted])

    few, many = await for_each(FEW), await for_each(SOME)

    assert few > 100
    assert many < 1.5 * few, (few, many)


async def test_cancelling_reaches_the_children_of_children(stage: Stage) -> None:
    @mp.workflow(version="1")
    async def upper(run: mp.Run) -> int:
        return await (await run.start(hold_all, 2)).result()

    async with stage.app(upper, hold_all, listen) as app:
        handle = await app.start(upper)

        async def deep() -> bool:
            return stage.rows("SELECT count(*) FROM mp_runs WHERE workflow = 'listen' AND status = 'parked'") == [(2,)]

        await until(deep)
        await app.cancel(handle.id, why="enough")
        await status_of(handle, "cancelled")

        async def cancelled() -> bool:
            return stage.rows("SELECT count(*) FROM mp_runs WHERE status = 'cancelled'") == [(4,)]

        await until(cancelled)
        with pytest.raises(mp.RunCancelled):
            await handle.result(timeout="30s")


async def test_a_parent_that_fails_leaves_its_children_to_end_by_themselves(stage: Stage) -> None:
    @mp.workflow(version="1")
    async def fails(run: mp.Run) -> int:
        await run.start(listen, 1)
        raise ValueError("no")

    async with stage.app(fails, listen) as app:
        handle = await app.start(fails)
        await status_of(handle, "failed")
        ((child,),) = stage.rows("SELECT id FROM mp_runs WHERE parent IS NOT NULL")
        await app.send(str(child), "go", 5)
        assert await app.handle(str(child), listen).result(timeout="30s") == 6


def test_patience_grows_with_what_is_awaited_and_is_bounded() -> None:
    def of(awaited: int, ended: int = 0) -> int:
        steps = {str(n): ChildWait(str(n)) for n in range(awaited)}
        state = SimpleNamespace(steps=steps, child_results={str(n): msgspec.Raw() for n in range(ended)})
        return children.patience(SimpleNamespace(state=state))  # type: ignore[arg-type]

    assert of(children.PATIENT_FROM - 1) == 0
    assert of(100, ended=90) == 0
    assert of(1_000) == 1_000
    assert of(50_000) == children.PATIENCE_MOST_MS
