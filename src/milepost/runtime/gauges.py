"""What a worker says of itself and of its store, as plain numbers, for whoever measures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from milepost.runtime.worker import Worker
    from milepost.stores.fleet import QueueRow


@dataclass(frozen=True, slots=True)
class Gauges:
    """One look. Spans are in seconds; `advanced`, `commits` and `lapses` only rise while the process lives."""

    driven: int
    room: int
    advanced: int
    commits: int
    lapses: int
    lease_left_s: float
    still: int
    by_status: dict[str, int]
    queues: list[QueueRow]
    oldest_wait_s: dict[str, float]


def unwell(worker: Worker) -> str:
    """Return why a worker cannot go on by itself; empty where it can."""
    if worker.failed is not None or worker.engine.writer.failed is not None:
        return "the store failed"
    return "a commit hangs" if worker.engine.writer.stuck else ""


def unready(worker: Worker) -> str:
    """Return why a worker takes no runs now; empty where it does."""
    if worker.engine.draining:
        return "draining"
    return "stopped by the stop file" if worker.engine.halted else unwell(worker)


async def read(worker: Worker) -> Gauges:
    """Look at a worker and its store."""
    engine = worker.engine
    now = engine.clock.now()
    queues = await engine.store.queues(now)
    return Gauges(
        driven=len(worker.tasks),
        room=max(0, worker.together - len(worker.tasks)),
        advanced=worker.advanced,
        commits=engine.writer.commits,
        lapses=engine.lapses,
        lease_left_s=(engine.lease_until - now) / 1000,
        still=len(worker.watchdog.still),
        by_status=await engine.store.counts(),
        queues=queues,
        oldest_wait_s={one.queue: (now - one.first_due) / 1000 for one in queues if one.first_due is not None},
    )
