"""Hands the spans of runs to OpenTelemetry, beside the runs and never in their way.

The app says which records grew; a moment later what is new in them is read, folded into spans, and those that have
ended go to the span processor, in a thread. Each process tells what happened while it held the run. What an earlier one
left open, because it died, ends at the claim, and whoever claims tells it. A kill is nobody's: a run that waits is
held by no process, and who kills one may watch nothing. So each process that watches looks for runs that were killed,
and the first one to say so, in an event beside the run, tells the end.

What may go wrong. A processor that blocks holds that one thread: what waits behind it is dropped beyond a bound, and
counted. What it raises is logged. What has not been handed over when the process dies is lost: traces are diagnostic.
The record has all of it.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode

from milepost import __version__
from milepost.adapters.opentelemetry.spans import CONVENTIONS, Span, Spans
from milepost.core import entries as e
from milepost.core.duration import Duration, parse_ms
from milepost.core.tracing import trace_of

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor

    from milepost.observing import Sight

log = logging.getLogger("milepost")
NS_IN_A_MS = 1_000_000
SAMPLED = TraceFlags(TraceFlags.SAMPLED)
CLOSING_S = 5.0
WAITING_MOST = 10_000
FOLLOWED_MOST = 5_000
TOLD_MOST = 50_000
KILLED_EVERY_S = 5.0
KILLED_WITHIN_MS = 3_600_000  # a run that was killed earlier, while nobody watched, is told no more
END = "the end of its trace"


@dataclass(slots=True)
class _Followed:
    """One run: its spans so far, the number of the last entry that was read, and of the last that was told of."""

    spans: Spans
    told: int
    seq: int = 0


class Tracing:
    """Watches an app and gives each run's spans to `processor`, such as OpenTelemetry's BatchSpanProcessor.

    `resource` says whose they are (`service.name`); `every` is how long spans may wait to be read. A run's trace id is
    that of `milepost.core.tracing`: the same for every process, and for what tools send as `call.traceparent`.
    `dropped` counts the spans that the processor was too slow to take.
    """

    def __init__(
        self, processor: SpanProcessor, *, resource: Resource | None = None, every: Duration = "500ms"
    ) -> None:
        self.dropped = 0
        self._processor = processor
        self._resource = resource or Resource.create({"service.name": "milepost"})
        self._every_s = parse_ms(every) / 1000
        self._scope = InstrumentationScope("milepost", __version__, attributes={"gen_ai.conventions": CONVENTIONS})
        self._read: Sight | None = None
        self._worker = ""
        self._grew: set[str] = set()
        self._runs: OrderedDict[str, _Followed] = OrderedDict()
        self._told: OrderedDict[str, int] = OrderedDict()  # of runs that are followed no more: up to which entry
        self._killed: OrderedDict[str, None] = OrderedDict()  # those that need no look any more
        self._ends: dict[str, list[Span]] = {}  # what ended with a kill, until it is known who tells it
        self._task: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._ended: queue.Queue[tuple[str, Span] | asyncio.Future[None]] = queue.Queue(WAITING_MOST)
        self._thread: threading.Thread | None = None

    # ---------------------------------------------------------------- as an observer

    def opened(self, read: Sight, worker: str) -> None:
        """Begin to watch."""
        self._read, self._worker = read, worker
        self._grew.clear()
        self._runs.clear()
        self._told.clear()
        self._killed.clear()
        self._ends.clear()
        if worker:
            self._watching = asyncio.get_running_loop().create_task(self._watch(read), name="milepost-killed-runs")

    def appended(self, run_ids: set[str]) -> None:
        """Note which runs to look at."""
        self._grew |= run_ids
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._soon(), name="milepost-tracing")

    async def closing(self) -> None:
        """Hand over what is left, for no longer than a moment."""
        for task in (self._watching, self._task):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        self._watching = None
        self._grew |= self._ends.keys()
        await self._look()
        if self._thread is not None and not await self._handed_over():
            log.warning("some spans were not taken within %g s and are lost; runs are not concerned", CLOSING_S)

    @property
    def followed(self) -> int:
        """How many runs are followed now."""
        return len(self._runs)

    def knows(self, run_id: str) -> bool:
        """Say whether a run is known to have been killed, and looked at for that."""
        return run_id in self._killed and run_id not in self._ends

    # ---------------------------------------------------------------- reading

    async def _soon(self) -> None:
        while self._grew:
            await asyncio.sleep(self._every_s)
            await self._look()

    async def _look(self) -> None:
        """Read what is new of the runs that grew, and queue the spans that ended."""
        for run_id in list(self._grew):
            self._grew.discard(run_id)
            try:
                await self._new(run_id)
                await self._tell_end(run_id)
            except asyncio.CancelledError:
                self._grew.add(run_id)  # the app is being closed, which looks for the last time
                raise
            except Exception:
                self._leave(run_id)
                log.exception("run %s cannot be traced; it goes on", run_id)

    async def _new(self, run_id: str) -> None:
        assert self._read is not None
        followed = self._runs.get(run_id)
        found = await self._read.entries(run_id, followed.seq if followed is not None else 0)
        if followed is None:
            followed = await self._begin(run_id, found[0][1])
        for seq, entry in found:
            ended = followed.spans.take(entry)
            followed.seq = seq
            if seq <= followed.told:
                continue
            if isinstance(entry, e.RunStopped) and entry.status == "killed":
                self._ends[run_id] = ended
            elif followed.spans.owner == self._worker:
                self._queue(run_id, ended)
        self._runs.move_to_end(run_id)
        if followed.spans.run.ended or (found and isinstance(found[-1][1], e.RunStopped)):
            self._leave(run_id)

    async def _tell_end(self, run_id: str) -> None:
        """Tell what ended with a kill, unless another process does."""
        assert self._read is not None
        if run_id not in self._ends:
            return
        self._killed[run_id] = None
        if len(self._killed) > TOLD_MOST:
            self._killed.popitem(last=False)
        first = await self._read.first_to_tell(run_id, END)
        ended = self._ends.pop(run_id)
        if first:
            self._queue(run_id, ended)

    async def _watch(self, read: Sight) -> None:
        """Look for runs that were killed while nobody held them."""
        while True:
            await asyncio.sleep(KILLED_EVERY_S)
            try:
                found = [one for one in await read.killed_within(KILLED_WITHIN_MS) if one not in self._killed]
                new = {run_id for run_id in found if await read.teller(run_id, END) is None}
            except Exception:
                log.exception("runs that were killed cannot be looked for; runs go on")
                continue
            self._killed.update(dict.fromkeys(found))
            while len(self._killed) > TOLD_MOST:
                self._killed.popitem(last=False)
            if new:
                self.appended(new)

    async def _begin(self, run_id: str, created: e.Entry) -> _Followed:
        assert self._read is not None
        assert isinstance(created, e.RunCreated)
        about, manifest = await self._read.begun_with(run_id, created.boundary)
        followed = self._runs[run_id] = _Followed(Spans(run_id, about, manifest.models), self._told.pop(run_id, 0))
        if len(self._runs) > FOLLOWED_MOST:
            self._leave(next(iter(self._runs)))
        return followed

    def _leave(self, run_id: str) -> None:
        """Follow a run no more. Should it grow here again, it is read from its beginning, and what is new is told."""
        followed = self._runs.pop(run_id, None)
        if followed is not None:
            self._told[run_id] = max(followed.seq, followed.told)
            if len(self._told) > TOLD_MOST:
                self._told.popitem(last=False)

    # ---------------------------------------------------------------- handing over

    def _queue(self, run_id: str, ended: list[Span]) -> None:
        if ended and self._thread is None:
            self._thread = threading.Thread(target=self._hand_over, name="milepost-tracing", daemon=True)
            self._thread.start()
        for span in ended:
            try:
                self._ended.put_nowait((run_id, span))
            except queue.Full:
                self.dropped += 1

    async def _handed_over(self) -> bool:
        """Wait until the processor has taken what is queued, and sent it. False where it did not in time."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            self._ended.put_nowait(done)
        except queue.Full:
            return False
        await asyncio.wait([done], timeout=CLOSING_S)
        return done.done()

    def _hand_over(self) -> None:
        while True:
            ended = self._ended.get()
            try:
                if isinstance(ended, asyncio.Future):
                    self._processor.force_flush(int(CLOSING_S * 1000))
                    ended.get_loop().call_soon_threadsafe(ended.set_result, None)
                else:
                    self._processor.on_end(self._readable(*ended))
            except Exception:
                log.exception("a span was not taken; runs go on")

    def _readable(self, run_id: str, span: Span) -> ReadableSpan:
        trace = int(trace_of(run_id), 16)

        def context(id_: str) -> SpanContext:
            return SpanContext(trace, int(id_, 16), is_remote=False, trace_flags=SAMPLED)

        return ReadableSpan(
            name=span.name,
            context=context(span.id),
            parent=context(span.parent) if span.parent else None,
            resource=self._resource,
            attributes=span.attributes,
            events=[Event(name, said, at * NS_IN_A_MS) for at, name, said in span.events],
            links=[Link(context(earlier)) for earlier in span.links],
            kind=SpanKind.CLIENT if span.client else SpanKind.INTERNAL,
            status=Status(StatusCode.ERROR, span.problem) if span.problem else Status(),
            start_time=span.began * NS_IN_A_MS,
            end_time=span.ended * NS_IN_A_MS,
            instrumentation_scope=self._scope,
        )
