"""Which call of which run a request is, and the one attempt that several requests may wait for.

A host may die, reconnect under a new session, and ask again with a new number for the request. None of that names a
call. What does is what it asks for: the tool and its arguments, within the runs of one caller. So

* an effect that was asked for before, by this caller and with equal arguments, is that effect: it is answered with what
  is recorded, and while nobody knows what came of it, with just that;
* one that certainly failed did not happen, and may be asked for again;
* a tool that is declared `repeatable` may be repeated once the last call of it is confirmed;
* reads are made anew each time; one that waits, for an approval say, is looked at again.

A caller's run lasts for `remember` (a day, if the file says nothing), and the next one still answers for what the last
one did, and for all that is open in older ones. A host that knows better says so in the `_meta` of its request:
`milepost/run` names a run, which is remembered for ever, and `milepost/call` the call in it.

A host that goes away does not take its call with it: an attempt is a task of the gateway, and whoever asks again waits
for the same one.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from milepost.adapters.mcp.sending import fitting
from milepost.adapters.threads import LINGER, Threads
from milepost.core.authority import Authority
from milepost.core.entries import Widened
from milepost.errors import InvalidArguments, Parked, RunHeld, Waiting
from milepost.stores.api import Query

if TYPE_CHECKING:
    from milepost.adapters.mcp.gateway.config import CallerEntry, Config
    from milepost.app import App
    from milepost.core.entries import Entry
    from milepost.definitions.arguments import Bound
    from milepost.definitions.call import Outcome
    from milepost.definitions.run import AttachedRun, Recorded
    from milepost.definitions.tools import Tool

RUN = "milepost/run"
CALL = "milepost/call"
NAME_MAX = 128
ENDED = frozenset({"done", "failed", "cancelled", "killed"})
PERIODS_BACK = 32  # how many periods of a caller are looked at for what is still open
HELD_S = 30.0
LOOK_S = 0.05
READS_A_RUN = 500
NARROWED_MOST = 10_000
EARLY_MS = 2 * 60_000


class Unnameable(InvalidArguments):
    """The `_meta` of a request names a run or a call by something that is no name."""

    code = "unnameable"


@dataclass(frozen=True)
class Attempted:
    """What came of a call: where it stands, its outcome, and whether it was recorded before it was asked for."""

    key: str
    run_id: str
    id: str
    outcome: Outcome[Any]
    recorded: bool


class Calls:
    """The calls of one caller."""

    def __init__(self, app: App, caller: CallerEntry, config: Config) -> None:
        self._app = app
        self._prefix = f"mcp:{caller.name}"
        self._remember_ms = config.remember_ms
        authority = Authority(f"mcp:{caller.name}", scopes=caller.scopes, tenant=caller.tenant)
        self._threads = Threads(app, authority=authority, budget=dict(caller.budget), linger=LINGER)
        self._flying: dict[tuple[str, ...], asyncio.Task[Attempted]] = {}
        self._period = -1
        self._older: list[str] = []
        self._turning = asyncio.Lock()
        self._scopes = frozenset(caller.scopes)
        self._narrowed: set[str] = set()
        self._narrowing = asyncio.Lock()
        self._reads = 0
        self._reading = uuid.uuid4().hex[:12]
        self._reading_in: Counter[str] = Counter()
        self._waiting_reads: dict[tuple[str, str], tuple[str, str]] = {}  # where a read waits that was asked for

    async def attempt(self, tool: Tool[..., Any], arguments: Mapping[str, Any], meta: Mapping[str, Any]) -> Attempted:
        """Make a call, or return what is recorded of it.

        Raises InvalidArguments before anything is recorded, RunHeld where another process of this caller works, and
        what an attached run raises.
        """
        fitting(tool, arguments)
        bound = tool.arguments.from_json(arguments)
        run, call = _named(meta, RUN, tool), _named(meta, CALL, tool)
        free = tool.effect == "read" and not tool.costed and not tool.approval
        place = call if call and (tool.repeatable or tool.effect == "read") else ""
        if tool.effect == "read" and not call:
            place = uuid.uuid4().hex
        key = (run or "", tool.name, place, bound.digest)
        task = self._flying.get(key)
        if task is None:
            made = (
                self._read(tool, bound) if free and run is None and call is None else self._call(tool, bound, run, call)
            )
            task = asyncio.create_task(made, name=f"{self._prefix} {tool.name}")
            self._fly(key, task)
        return await asyncio.shield(task)

    async def again(self, attempted: Attempted, tool: Tool[..., Any], arguments: Mapping[str, Any]) -> Attempted:
        """Look at a call again that waited, under the id that it has. Raises what `attempt` raises."""
        task = asyncio.create_task(self._again(attempted, tool, tool.arguments.from_json(arguments)))
        self._fly((attempted.run_id, attempted.id), task)
        return await asyncio.shield(task)

    def _fly(self, key: tuple[str, ...], task: asyncio.Task[Attempted]) -> None:
        def landed(task: asyncio.Task[Attempted]) -> None:
            if self._flying.get(key) is task:
                del self._flying[key]
            if not task.cancelled():
                task.exception()  # whoever asked may be gone, and what came of it is recorded

        self._flying[key] = task
        task.add_done_callback(landed)

    async def drain(self, grace_s: float) -> None:
        """Wait for what is under way; what takes longer is left unknown."""
        flying = list(self._flying.values())
        if flying:
            _, pending = await asyncio.wait(flying, timeout=grace_s)
            for task in pending:
                task.cancel()

    async def _again(self, attempted: Attempted, tool: Tool[..., Any], bound: Bound) -> Attempted:
        async with self._attached(attempted.key):
            outcome = await self._threads.attempt(attempted.key, attempted.id, tool, bound.named())
        return replace(attempted, outcome=outcome)

    # ------------------------------------------------------------ runs

    async def _call(self, tool: Tool[..., Any], bound: Bound, run: str | None, call: str | None) -> Attempted:
        key = f"{self._prefix}:{run}"
        if run is None:
            key, older = await self._turn()
            for one in older:
                found = await self._held(one, tool, bound, call, only_earlier=True)
                if found is not None:
                    return found
        made = await self._held(key, tool, bound, call)
        assert made is not None
        return made

    async def _read(self, tool: Tool[..., Any], bound: Bound) -> Attempted:
        """Make a free read in a run of this process's own, ended once it is long enough and nobody reads in it.

        One for which the policy wants an approval waits where it was asked for, and is looked at again there.
        """
        asked = (tool.name, bound.digest)
        waits_in = self._waiting_reads.get(asked)
        if waits_in is None:
            key, id_ = f"{self._prefix}#{self._reading}.{self._reads // READS_A_RUN}", uuid.uuid4().hex[:12]
            self._reads += 1
        else:
            key, id_ = waits_in
        self._reading_in[key] += 1
        try:
            async with self._attached(key) as run:
                outcome = await self._threads.attempt(key, id_, tool, bound.named())
                waits = isinstance(outcome, Waiting) and outcome.reason == "approval"
                if waits:
                    self._waiting_reads[asked] = (key, id_)
                else:
                    self._waiting_reads.pop(asked, None)
                if self._is_over(key):
                    with suppress(Parked):  # what nobody knows keeps it
                        await run.finish()
        finally:
            self._reading_in[key] -= 1
            self._reading_in += Counter()  # forgets those that nobody reads in
        return Attempted(key, run.id, id_ if waits else "", outcome, recorded=False)

    def _is_over(self, key: str) -> bool:
        """Say whether the last read of a run is being made, and none of its reads waits."""
        now = f"{self._prefix}#{self._reading}.{self._reads // READS_A_RUN}"
        return key != now and self._reading_in[key] == 1 and all(at != key for at, _ in self._waiting_reads.values())

    def _key(self, period: int) -> str:
        return f"{self._prefix}@{period}"

    async def _turn(self) -> tuple[str, list[str]]:
        """Return the key of the run of this period, and those of older runs that still answer.

        Early in a period another gateway may be about to begin a run of the last one, so they are looked for again.
        """
        async with self._turning:
            now = self._app.clock.now()
            period = now // self._remember_ms
            if period != self._period:
                self._older = await self._standing(period)
                self._period = period if now - period * self._remember_ms > EARLY_MS else -1
            return self._key(period), self._older

    async def _standing(self, period: int) -> list[str]:
        """Find the older runs that still answer, and end those that need not."""
        older = [self._key(one) for one in range(period - 1, max(period - PERIODS_BACK, -1), -1)]
        standing: list[str] = []
        for age, key in enumerate(older):
            rows = await self._app.inspect.runs(Query(key=key))
            if not rows or (rows[0].status in ENDED and age):
                continue
            if age and not await self._app.inspect.open_effects(rows[0].id):
                async with self._attached(key) as run:
                    await run.finish()
                continue
            standing.append(key)
        return standing

    # ------------------------------------------------------------ calls

    async def _held(
        self, key: str, tool: Tool[..., Any], bound: Bound, call: str | None, *, only_earlier: bool = False
    ) -> Attempted | None:
        await self._narrow(key)
        async with self._attached(key) as run:
            id_, far = _place(run, tool, bound, call)
            if only_earlier and far is None:
                return None
            outcome = await self._threads.attempt(key, id_, tool, bound.named())
            return Attempted(key, run.id, id_, outcome, recorded=far in {"confirmed", "failed"})

    async def _narrow(self, key: str) -> None:
        """Take from a run the scopes that the file no longer gives its caller; a person's grants stay.

        A run keeps what it began with, and the file may have been another one then. Once for each run.
        """
        async with self._narrowing:
            if key in self._narrowed:
                return
            for row in await self._app.inspect.runs(Query(key=key)):
                gone = set((await self._app.inspect.detail(row.id)).scopes) - self._scopes
                if gone and row.status not in ENDED:
                    gone -= {scope for _, one in await self._app.inspect.entries(row.id) for scope in _granted(one)}
                if gone and row.status not in ENDED:
                    why = "the gateway's file no longer gives them to this caller"
                    await self._app.revoke(row.id, by="gateway", why=why, scopes=gone)
            if len(self._narrowed) >= NARROWED_MOST:
                self._narrowed.clear()
            self._narrowed.add(key)

    @asynccontextmanager
    async def _attached(self, key: str) -> AsyncIterator[AttachedRun]:
        """Hold a run, and wait for it while another process of the caller does."""
        until = asyncio.get_running_loop().time() + HELD_S
        async with AsyncExitStack() as stack:
            while True:
                try:
                    run = await stack.enter_async_context(self._threads.attached(key))
                    break
                except RunHeld:
                    if asyncio.get_running_loop().time() > until:
                        raise
                    await asyncio.sleep(LOOK_S)
            yield run


def _place(run: AttachedRun, tool: Tool[..., Any], bound: Bound, call: str | None) -> tuple[str, Recorded | None]:
    """Return the id under which a call stands in a run, and how far it came there; None where it was not made."""
    if call is not None and (far := run.recorded(call)) is not None:
        return call, far
    earlier, anew = run.earlier(tool, **bound.named()), tool.repeatable or tool.effect == "read"
    if earlier is not None and (earlier[1] == "open" or not anew):
        return earlier[0], earlier[1]
    if call is not None:
        return call, None
    number = 1
    stem = f"{tool.name}-{bound.digest[:12]}"
    while run.recorded(id_ := f"{stem}.{number}") is not None:
        number += 1
    return id_, None


def _named(meta: Mapping[str, Any], key: str, tool: Tool[..., Any]) -> str | None:
    said = meta.get(key)
    if said is None:
        return None
    if not isinstance(said, str) or not said or len(said) > NAME_MAX or not said.isprintable() or " " in said:
        raise Unnameable(tool.name, f"{key} in _meta is a text of up to {NAME_MAX} characters without spaces")
    return said


def _granted(entry: Entry) -> tuple[str, ...]:
    return entry.scopes if isinstance(entry, Widened) else ()
