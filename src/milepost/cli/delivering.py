"""What a person is told after a verb: who will act on it, and what to do where nobody would."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from milepost.cli.describing import waits_for
from milepost.cli.opening import now_ms
from milepost.cli.printing import note, plain, say, say_json, short
from milepost.core.duration import parse_ms
from milepost.core.lease import lapsed
from milepost.errors import NeedsPerson, TookTooLong, Waiting
from milepost.runtime import locks
from milepost.stores.api import Query

if TYPE_CHECKING:
    from milepost.errors import Reason
    from milepost.stores.api import RunRow, Store
    from milepost.stores.fleet import WorkerRow

POLL_S = 0.05
ENDED = {"done", "failed", "cancelled", "killed"}
PERSON = {"approval", "authority", "budget", "person"}
NO_WORKER = "No worker is running. Start one: milepost worker --app module:app"


def is_alive(store: Store, worker: WorkerRow) -> bool:
    """Say whether a worker can still act: it has not left, is not proven dead, and its lease runs."""
    return not is_dead(store, worker) and not lapsed(worker.lease_until, store.wall())


def is_dead(store: Store, worker: WorkerRow) -> bool:
    """Say whether it is certain that a worker acts no more: it has left, or its process is proven dead."""
    if worker.ended_at is not None:
        return True
    return worker.host == locks.machine(store) and locks.is_dead(store.local, worker.id)


@dataclass(frozen=True, slots=True)
class Next:
    """Who acts next on a run: the worker that holds it, else any of the living ones, else nobody."""

    row: RunRow
    holder: WorkerRow | None
    living: tuple[WorkerRow, ...]
    mail: int

    def said(self) -> str:
        """Return it in a sentence."""
        row = self.row
        if not self.mail:
            because = waits_for(row)
            return f"Run {short(row.id)} is {row.status}{': ' if because else ''}{because}."
        if self.holder is not None:
            return f"Worker {self.holder.id} holds run {short(row.id)} and acts on it at once."
        if row.attached:
            return f"Run {short(row.id)} acts on it when its host attaches again, or a worker looks at it."
        if self.living:
            worker = self.living[0].id
            return f"A worker is running ({worker}) and acts on it if its App has the workflow {row.workflow!r}."
        return f"Run {short(row.id)} acts on it once a worker runs. {NO_WORKER}"

    def json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "status": self.row.status,
            "waits_for": self.row.reason,
            "held_by": None if self.holder is None else self.holder.id,
            "workers_alive": len(self.living),
            "undelivered": self.mail,
            "next": self.said(),
        }


async def look(store: Store, run_id: str) -> Next:
    """Return who acts next on a run."""
    row = await store.run(run_id)
    living = tuple(worker for worker in await store.workers() if is_alive(store, worker))
    holder = next((worker for worker in living if worker.id == row.owner), None)
    return Next(row, holder, living, len(await store.inbox(run_id)))


async def until_rested(store: Store, run_id: str, timeout: str | None) -> Next:
    """Wait until a run has taken its messages and rests or ends. Raises TookTooLong after `timeout`."""
    deadline = None if timeout is None else time.monotonic() + parse_ms(timeout) / 1000
    told = False
    while True:
        next_ = await look(store, run_id)
        row = next_.row
        rests = row.owner is None and (row.due is None or row.due > now_ms())
        if not next_.mail and (row.status in ENDED or rests):
            return next_
        if deadline is not None and time.monotonic() >= deadline:
            raise TookTooLong(run_id, row.status)
        if not next_.living and not told:
            note(next_.said() if next_.mail else NO_WORKER)
            told = True
        await asyncio.sleep(POLL_S)


async def until_ended(store: Store, run_id: str, timeout: str | None) -> RunRow:
    """Wait until a run ends or is blocked.

    Raises NeedsPerson where only a person can move it, TookTooLong after `timeout`.
    """
    deadline = None if timeout is None else time.monotonic() + parse_ms(timeout) / 1000
    told = False
    while True:
        row = await store.run(run_id)
        if row.status in ENDED or row.status == "blocked":
            return row
        waiting = await _person(store, row)
        if waiting is not None:
            raise NeedsPerson(run_id, waiting)
        if deadline is not None and time.monotonic() >= deadline:
            raise TookTooLong(run_id, row.status)
        if not told and not any(is_alive(store, worker) for worker in await store.workers()):
            note(NO_WORKER)
            told = True
        await asyncio.sleep(POLL_S)


async def _person(store: Store, row: RunRow) -> Waiting | None:
    """Return what needs a person, where nothing of a run or its children can move without one."""
    if row.status == "blocked":
        return Waiting("person", None, f"milepost show {row.id}")
    moves = row.owner is not None or (row.due is not None and row.due <= now_ms())
    if row.status != "parked" or moves or await store.inbox(row.id):
        return None
    if row.reason in PERSON or (row.reason == "unknown" and row.ask and row.until is None):
        return Waiting(cast("Reason", row.reason), None, row.ask or "")
    if row.reason == "child":
        for child in await store.runs(Query(parent=row.id)):
            waiting = await _person(store, child)
            if waiting is not None:
                return waiting
    return None


def tell(done: str, next_: Next, facts: dict[str, Any], *, as_json: bool) -> None:
    """Say what a verb did and who acts next."""
    if as_json:
        say_json({**facts, "run": next_.row.id, **next_.json()})
        return
    say(plain(done))
    say(plain(next_.said()))
