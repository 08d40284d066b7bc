"""A run from outside: waiting for its end, and following it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from milepost.core import codec
from milepost.core.duration import Duration, from_ms, parse_ms
from milepost.core.state import fold
from milepost.definitions.run import Handle, RunView
from milepost.errors import RunBlocked, RunCancelled, RunFailed, RunKilled, TookTooLong, Waiting
from milepost.runtime import starting

if TYPE_CHECKING:
    from milepost.definitions.workflows import Workflow
    from milepost.runtime.engine import Engine
    from milepost.stores.api import RunRow

R = TypeVar("R")
ENDINGS = {"failed": RunFailed, "cancelled": RunCancelled, "killed": RunKilled}
POLL_S = 0.05
POLL_MOST_S = 0.5


class RunHandle(Handle[R]):
    """A started run."""

    def __init__(self, engine: Engine, run_id: str, workflow: Workflow[Any, R] | None) -> None:
        self.id = run_id
        self._engine = engine
        self._workflow = workflow

    async def result(self, *, timeout: Duration | None = None) -> R:
        """Wait for the run's end and return its result.

        Raises RunFailed, RunCancelled, RunKilled or RunBlocked where it has none, and TookTooLong after `timeout`.
        """
        seconds = None if timeout is None else parse_ms(timeout) / 1000
        try:
            async with asyncio.timeout(seconds):
                row = await self._end()
        except TimeoutError:
            row = await self._engine.store.run(self.id)
            raise TookTooLong(self.id, row.status) from None
        return await self._value(row)

    async def _end(self) -> RunRow:
        pause, looked = POLL_S, False
        while True:
            watching = self._engine.watch(self.id)
            held = self.id in self._engine.sessions  # here, where resting is told at once
            if not held or looked:
                row = await self._engine.store.run(self.id)
                if row.status in {"done", "blocked", *ENDINGS}:
                    return row
            looked = held
            if self._engine.writer.failed is not None:
                raise self._engine.writer.failed
            await asyncio.wait([watching], timeout=POLL_MOST_S if held else pause)
            pause = min(POLL_MOST_S, pause * 1.5)

    async def _value(self, row: RunRow) -> R:
        if row.status == "done":
            data = await starting.result_bytes(self._engine, self.id)
            if self._workflow is None:
                return cast("R", msgspec.json.decode(data))
            return self._workflow.result.read(data)
        code, _, why = (row.why or "").partition(": ")
        if row.status == "blocked":
            raise RunBlocked(self.id, code, why)
        raise ENDINGS[row.status](self.id, row.status, why or code)

    async def status(self) -> RunView:
        """Return where the run stands."""
        return await view(self._engine, self.id)

    async def events(self) -> AsyncIterator[Mapping[str, Any]]:
        """Follow the run: its journal entries, progress and emitted events, until it ends."""
        seq, event = 0, 0
        while True:
            watching = self._engine.watch(self.id)
            row = await self._engine.store.run(self.id)
            if row.seq > seq:
                for entry in await self._engine.store.after(self.id, seq):
                    yield {"kind": "entry", "seq": entry.seq, **msgspec.json.decode(entry.plain)}
                    seq = entry.seq
            for number, at, body in await self._engine.store.events(self.id, event):
                event = number
                yield {"at": at, **msgspec.json.decode(body)}
            if row.status in {"done", *ENDINGS}:
                return
            await asyncio.wait([watching], timeout=POLL_S)


async def view(engine: Engine, run_id: str) -> RunView:
    """Return a run as the store has it now."""
    row = await engine.store.run(run_id)
    tail = await engine.store.tail(run_id)
    engine.verify_tail(tail)
    state = fold(run_id, (codec.decode(stored.plain) for stored in tail.entries))
    data, _ = await starting.state_bytes(engine, run_id, state.state, state.state_root)
    waiting = waiting_of(row)
    return RunView(run_id, msgspec.json.decode(data), cast("Any", row.status), waiting)


def waiting_of(row: RunRow) -> Waiting | None:
    """Return what a run waits for, None where it does not."""
    if row.reason is None:
        return None
    until = None if row.until is None else from_ms(row.until)
    return Waiting(cast("Any", row.reason), until, row.ask or "")
