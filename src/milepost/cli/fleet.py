"""`milepost queues` and `milepost schedules`: what waits for its turn, and what is started at set times."""

from __future__ import annotations

import json
from typing import Any

import click

from milepost.cli.opening import now_ms, opened, wait_for
from milepost.cli.options import common
from milepost.cli.printing import iso, moment, plain, say, say_json, short, table
from milepost.cli.settings import Settings
from milepost.stores.fleet import QueueRow, ScheduleRow

LATE_MS = 60_000


@click.command()
@common
def queues(store: str | None, app: str | None, *, as_json: bool) -> None:
    """List the queues in which a run waits for its turn, or is driven."""
    now = now_ms()
    with opened(Settings(store, app).url) as store_:
        rows: list[QueueRow] = wait_for(store_.queues(now))
    if as_json:
        say_json([_queue_json(row) for row in rows])
    elif not rows:
        say("No run waits for its turn, and none is driven.")
    else:
        shown = [
            (row.queue, str(row.waiting), "-" if row.first_due is None else moment(row.first_due), str(row.held))
            for row in rows
        ]
        table(("queue", "waiting", "since (UTC)", "driven"), shown)


def _queue_json(row: QueueRow) -> dict[str, Any]:
    since = None if row.first_due is None else iso(row.first_due)
    return {"queue": row.queue, "waiting": row.waiting, "since": since, "driven": row.held}


@click.command()
@common
def schedules(store: str | None, app: str | None, *, as_json: bool) -> None:
    """List what is started at set times: how it was declared last, its next tick, and the run of the last one.

    A tick that is past means that no worker runs whose App declares the schedule.
    """
    now = now_ms()
    with opened(Settings(store, app).url) as store_:
        rows: list[ScheduleRow] = wait_for(store_.schedules())
    if as_json:
        say_json([_schedule_json(row, now) for row in rows])
    elif not rows:
        say("Nothing is scheduled. A worker writes what its App declares with app.schedule(…).")
    else:
        titles = ("schedule", "workflow", "cron", "zone", "next (UTC)", "last (UTC)", "run")
        table(titles, [_schedule_row(row) for row in rows])
        for row in rows:
            if _late(row, now):
                say(plain(f"{row.name}: its tick is past. Start a worker whose App declares it."))


def _late(row: ScheduleRow, now: int) -> bool:
    return row.next_at is not None and row.next_at < now - LATE_MS


def _schedule_row(row: ScheduleRow) -> tuple[str, ...]:
    spec = json.loads(row.spec)
    following = "-" if row.next_at is None else moment(row.next_at)
    last = "-" if row.last_at is None else moment(row.last_at)
    run = "-" if row.last_run is None else short(row.last_run)
    return (row.name, row.workflow, str(spec.get("cron", "")), str(spec.get("tz", "")), following, last, run)


def _schedule_json(row: ScheduleRow, now: int) -> dict[str, Any]:
    return {
        "schedule": row.name,
        "workflow": row.workflow,
        **json.loads(row.spec),
        "next_at": None if row.next_at is None else iso(row.next_at),
        "last_at": None if row.last_at is None else iso(row.last_at),
        "last_run": row.last_run,
        "late": _late(row, now),
    }
