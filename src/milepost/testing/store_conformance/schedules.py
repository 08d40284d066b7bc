"""Schedules: a tick starts its runs and moves on in one transaction, whoever else ticks."""

from __future__ import annotations

from typing import Any

from milepost.stores.api import NewRun
from milepost.stores.fleet import Declare, ScheduleRow, Tick
from milepost.testing.store_conformance.subject import Subject, proves

SPEC = '{"cron":"0 2 * * *"}'


def new(run_id: str, key: str) -> NewRun:
    """Return the run of a tick."""
    return NewRun(run_id, "report", "1", "d", b"created", "make", 100, 100, key=key)


def tick(*runs: NewRun, was: int = 500, next_at: int | None = 900, spec: str = SPEC) -> Tick:
    """Return a tick of the schedule `nightly`."""
    return Tick("nightly", spec, was, next_at, runs)


async def declare(subject: Subject, spec: str = SPEC, next_at: int | None = 500, **facts: Any) -> ScheduleRow:
    """Declare the schedule."""
    row: ScheduleRow = await subject.done(Declare("nightly", "report", spec, next_at, 10), **facts)
    return row


class Schedules:
    """What is started at set times."""

    @proves
    async def test_a_schedule_that_is_declared_waits_for_its_tick(self, subject: Subject) -> None:
        row = await declare(subject)

        assert row == ScheduleRow("nightly", "report", SPEC, 500)
        assert await subject.store.schedules() == [row]

    @proves
    async def test_declared_again_it_keeps_its_tick_and_declared_otherwise_it_waits_for_the_new_one(
        self, subject: Subject
    ) -> None:
        await declare(subject)

        assert (await declare(subject, next_at=800)).next_at == 500
        changed = await declare(subject, spec="{}", next_at=800)

        assert (changed.spec, changed.next_at) == ("{}", 800)

    @proves
    async def test_a_tick_starts_its_runs_and_waits_for_the_next(self, subject: Subject) -> None:
        await declare(subject)

        started = await subject.done(tick(new("r1", "nightly@500")))

        assert started == ["r1"]
        assert await subject.store.schedules() == [ScheduleRow("nightly", "report", SPEC, 900, 500, "r1")]
        assert (await subject.store.run("r1")).key == "nightly@500"

    @proves
    async def test_of_two_workers_that_tick_one_starts_the_run(self, subject: Subject) -> None:
        await declare(subject)
        other = await subject.other()

        await subject.done(tick(new("r1", "nightly@500")))
        late = await subject.done(tick(new("r2", "nightly@500")), store=other)

        assert late is None
        assert [run.id for run in await subject.store.due(100, ["report"], 9)] == ["r1"]

    @proves
    async def test_a_schedule_that_was_declared_otherwise_does_not_tick_as_it_was(self, subject: Subject) -> None:
        await declare(subject, spec="{}")

        assert await subject.done(tick(new("r1", "nightly@500"))) is None
        assert await subject.store.due(100, ["report"], 9) == []

    @proves
    async def test_a_tick_whose_key_was_used_finds_that_run(self, subject: Subject) -> None:
        await declare(subject)
        await subject.create("r0", workflow="report", key="nightly@500")

        assert await subject.done(tick(new("r1", "nightly@500"), next_at=None)) == ["r0"]
        assert (await subject.store.schedules())[0].next_at is None

    @proves
    async def test_a_tick_may_start_nothing(self, subject: Subject) -> None:
        await declare(subject)
        await subject.done(tick(new("r1", "nightly@500")))

        assert await subject.done(tick(was=900, next_at=1_300)) == []
        (row,) = await subject.store.schedules()

        assert (row.next_at, row.last_at, row.last_run) == (1_300, 900, "r1")
