"""Hands the spans of runs to OpenTelemetry, beside the runs and never in their way.

The app says which records grew; a moment later what is new in them is read, folded into spans, and those that have
ended go to the span processor, in a thread. Each process tells what happened while it held the run. What an earlier one
left open, because it died, ends at the claim, and whoever claims tells it.

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

    from milepost.operations.inspection import Inspector

log = logging.getLogger("milepost")
NS_IN_A_MS = 1_000_000
SAMPLED = TraceFlags(TraceFlags.SAMPLED)
CLOSING_S = 5.0
WAITING_MOST = 10_000
FOLLOWED_MOST = 5_000
TOLD_MOST = 50_000


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
        self._read: Inspector | None = None
        self._worker = ""
        self._grew: set[str] = set()
        self._runs: OrderedDict[str, _Followed] = OrderedDict()
        self._told: OrderedDict[str, int] = OrderedDict()  # of runs that are followed no more: up to which entry
        self._task: asyncio.Task[None] | None = None
        self._ended: queue.Queue[tuple[str, Span] | asyncio.Future[None]] = queue.Queue(WAITING_MOST)
        self._thread: threading.Thread | None = None

    # ---------------------------------------------------------------- as an observer

    def opened(self, read: Inspector, worker: str) -> None:
        """Begin to watch."""
        self._read, self._worker = read, worker
        self._grew.clear()
        self._runs.clear()
        self._told.clear()

    def appended(self, run_ids: set[str]) -> None:
        """Note which runs to look at."""
        self._grew |= run_ids
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._soon(), name="milepost-tracing")

    async def closing(self) -> None:
        """Hand over what is left, for no longer than a moment."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._look()
        if self._thread is not None and not await self._handed_over():
            log.warning("some spans were not taken within %g s and are lost; runs are not concerned", CLOSING_S)

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
            if seq > followed.told and (followed.spans.owner == self._worker or isinstance(entry, e.RunStopped)):
                self._queue(run_id, ended)
        self._runs.move_to_end(run_id)
        if found and isinstance(found[-1][1], e.RunDone | e.RunStopped):
            self._leave(run_id)

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
