"""What all runs of a process share: the store, the writer, the clock, the worker's identity and its lease.

The lease is renewed from a thread, so that a blocked event loop does not lose it. Runs are taken over from workers that
are proven dead by their lock file, at once, or whose lease lapsed. A store that failed stops everything here: no
session may go on, since nobody knows what was written.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from milepost.core import entries as e
from milepost.core.approval import TTL_MS
from milepost.core.breaker import Breaker
from milepost.core.chain import verify
from milepost.core.chunks import digest_of, references
from milepost.core.duration import from_ms
from milepost.core.lease import LEASE_MS, lapsed, needed_until, renew_every_ms
from milepost.core.queues import EVERYTHING
from milepost.core.steps import Effect
from milepost.definitions.call import Call
from milepost.definitions.redaction import Redactor
from milepost.definitions.rules import PolicyFile
from milepost.errors import Damaged, Diverged, InvalidDeclaration, MilepostError, StoreFailed
from milepost.runtime import effects, locks, reconcile, starting, waits
from milepost.runtime.clock import Clock, SystemClock
from milepost.runtime.lingering import Lingering
from milepost.runtime.threads import Deadlines, Threads, tamed
from milepost.runtime.writer import Writer
from milepost.stores import marks
from milepost.stores.api import Deliver, Post, Tail
from milepost.stores.fleet import Enlist, WorkerRow

if TYPE_CHECKING:
    from milepost.definitions.tools import Tool
    from milepost.definitions.workflows import Workflow
    from milepost.runtime.approvals import Operators
    from milepost.runtime.session import Session
    from milepost.stores.api import Store

T = TypeVar("T")
log = logging.getLogger("milepost")
EMIT_EVERY_S = 0.05
DEFAULT_TIMEOUT_MS = 60_000
LINGER_MS = 1_000
TEXT_CHARS = 64_000  # no more of a text is looked at: what is kept of it is far less


class Engine:
    """One process's share in driving runs."""

    def __init__(
        self,
        store: Store,
        *,
        workflows: Sequence[Workflow[Any, Any]] = (),
        tools: Sequence[Tool[..., Any]] = (),
        resources: Mapping[type[Any], Callable[[], AbstractAsyncContextManager[Any]]] | None = None,
        secrets: Callable[[str], str],
        clock: Clock | None = None,
        lease_ms: int = LEASE_MS,
        policy: PolicyFile | None = None,
        breaker: Breaker | None = None,
        operators: Operators | None = None,
        approval_ttl_ms: int = TTL_MS,
    ) -> None:
        self.store = store
        self.operators = operators
        self.approval_ttl_ms = approval_ttl_ms
        self.serving = EVERYTHING
        self.policy = policy
        self.policy_told = 0
        self.breaker = breaker
        self.stops = waits.Stops(store)
        self.clock: Clock = clock or SystemClock()
        self.writer = Writer(store)
        self.workflows = {workflow.name: workflow for workflow in workflows}
        self.tools = {tool.name: tool for tool in tools}
        self.redactor = Redactor()
        self._provider = secrets
        self.lease_ms = lease_ms
        self.lingering = Lingering()
        self.linger_ms = LINGER_MS  # what is due so soon is waited for in place
        self.lease_until = 0
        self.lapses = 0
        self.deadlines = Deadlines()
        self.threads = Threads()
        self.sessions: dict[str, Session] = {}
        self.machine = self.worker = ""  # of a client: no worker is near it, and it proves nobody dead
        self.draining = False
        self.family: set[str] | None = None
        self.references = references
        self.woken = asyncio.Event()
        self._resources: dict[type[Any], Any] = {}
        self._opened = AsyncExitStack()
        self._factories = dict(resources or {})
        self._manifests: dict[tuple[str, str], tuple[str, bytes]] = {}
        self._stop_renewing = threading.Event()
        self._renewing: threading.Thread | None = None
        self._watchers: dict[str, asyncio.Future[None]] = {}
        self._halted, self._look_at = False, 0.0
        self._lost: list[Session] = []
        self._given_up: dict[int, Session] = {}  # threads that run on although their call was given up
        self._events: list[tuple[str, int, bytes]] = []
        self._emitting: asyncio.TimerHandle | None = None
        self._posting: set[asyncio.Task[Any]] = set()
        self.loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0

    # ------------------------------------------------------------ opening and closing

    async def open(self, *, drives: bool) -> None:
        """Start writing; a process that drives also takes an identity, a lock and a lease, and opens its resources."""
        self.loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self.woken = asyncio.Event()
        self.writer.on_failed = self._store_failed
        self.writer.open()
        if not drives:
            return
        for kind, factory in self._factories.items():
            self._resources[kind] = await self._opened.enter_async_context(factory())
        now = self.clock.now()
        # Not the clock's: a clock that a test brings may give the same ids again, and two workers must never be one.
        self.machine = locks.machine(self.store)
        self.worker = f"{self.machine}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        locks.clear(self.store.local)
        locks.hold(self.store.local, self.worker)
        self.lease_until = now + self.lease_ms
        row = WorkerRow(self.worker, self.machine, os.getpid(), now, self.lease_until)
        await self.writer.durable(Enlist(row))
        self._renewing = threading.Thread(target=self._renew, name="milepost-lease", daemon=True)
        self._renewing.start()

    async def close(self) -> None:
        """Give back what lingers, write what is queued, give the lease and the lock back, close the resources."""
        await self.lingering.leave()
        for task in list(self._posting):
            await asyncio.wait([task])
        self.flush_events()
        await self.writer.close()
        if self.worker:
            self._stop_renewing.set()
            if self._renewing is not None:
                self._renewing.join(timeout=5)
            if self.writer.failed is None:
                self.store.end_worker(self.worker, self.clock.now())
            # Code that nobody could end may still act: as long as it does, nobody may take this worker for dead. Of a
            # thread we hear when it ends; what kept its cancellation to itself holds the lock until the process ends.
            if self.writer.tools_in_flight == 0:
                self.threads.when_quiet(partial(locks.release, self.store.local, self.worker))
        self.threads.close()
        await self._opened.aclose()

    def _renew(self) -> None:
        while not self._stop_renewing.wait(renew_every_ms(self.lease_ms) / 1000):
            now = self.clock.now()
            if lapsed(self.lease_until, now):
                self.lapses += 1  # what was held may be held elsewhere by now: renewing does not bring it back
            until = now + self.lease_ms
            try:
                self.store.renew(self.worker, until)
            except MilepostError as error:
                log.warning("lease of %s not renewed: %s", self.worker, error)
            else:
                self.lease_until = max(self.lease_until, until)

    @property
    def halted(self) -> bool:
        """Whether a stop file stands: nothing may start, and nothing may be sent."""
        now = time.monotonic()
        if now >= self._look_at:
            self._halted, self._look_at = marks.stopped(self.store.local), now + marks.SEEN_WITHIN_S
        return self._halted

    def lease_for(self, now: int, timeout_ms: int) -> tuple[str, int] | None:
        """Return the longer lease that an attempt needs which starts now, None when the present one is enough."""
        until = needed_until(now, timeout_ms)
        if until <= self.lease_until:
            return None
        if lapsed(self.lease_until, now):
            self.lapses += 1  # as in `_renew`: what was begun under the old lease is not sent under the longer one
        return (self.worker, until + self.lease_ms // 6)  # in strides: else every attempt would write a new lease

    def leased(self, lease: tuple[str, int] | None) -> None:
        """Take note of a longer lease, once it is durable: one whose append was refused is no lease."""
        if lease is not None:
            self.lease_until = max(self.lease_until, lease[1])

    def _store_failed(self, error: Exception) -> None:
        log.error("the store failed, this process stops: %s", error)
        for session in list(self.sessions.values()):
            session.drop(error)
        self.woken.set()

    # ------------------------------------------------------------ who is alive

    def is_dead(self, worker: str) -> bool:
        """Say whether a worker of this machine is proven dead; of another machine nothing is proven."""
        return worker != self.worker and self._is_near(worker) and locks.is_dead(self.store.local, worker)

    async def dead_owners(self, session: Session) -> frozenset[str]:
        """Return the owners of attempts that are in doubt whose code acts no more.

        On this machine that is proven. Of a worker of another machine (or of this one under an earlier name, as a
        container has it) it is taken for true when its lease and the time of its attempts have run out.
        """
        attempts = [
            (attempt, effect)
            for effect in session.state.unsettled()
            for attempt in effect.doubt.attempts
            if attempt.owner and attempt.quiet_at is None
        ]
        dead = {attempt.owner for attempt, _ in attempts if self.is_dead(attempt.owner)}
        far = [(attempt, effect) for attempt, effect in attempts if not self._is_near(attempt.owner)]
        if not far:
            return frozenset(dead)
        leases = {row.id: row.lease_until for row in await self.store.workers()}
        acting = set()
        for attempt, effect in far:
            timeout = session.facts[effect.tool].timeout_ms if effect.tool in session.facts else DEFAULT_TIMEOUT_MS
            last = max(leases.get(attempt.owner, 0), attempt.started_at)
            if self.clock.now() < needed_until(last, timeout):
                acting.add(attempt.owner)
        return frozenset((dead | {attempt.owner for attempt, _ in far}) - acting)

    def _is_near(self, worker: str) -> bool:
        return worker.rsplit("-", 2)[0] == self.machine

    @property
    def known(self) -> list[str]:
        """The workflows whose runs this process may drive; the empty name stands for attached runs."""
        return [*self.workflows, *([""] if self.tools else [])]

    def gone(self, row: WorkerRow) -> bool:
        """Say whether what a worker holds may be claimed: it left, it is dead, or its lease lapsed."""
        if row.id == self.worker:
            return False
        return row.ended_at is not None or self.is_dead(row.id) or lapsed(row.lease_until, self.clock.now())

    # ------------------------------------------------------------ small services for sessions

    def moment(self, at: int) -> datetime:
        """Return a moment as people and tools get it."""
        return from_ms(at)

    def resource(self, kind: type[T]) -> T:
        """Return what was opened for this type. Raises InvalidDeclaration where the app opens none."""
        found = self._resources.get(kind)
        if found is None:
            msg = f"no resource {kind.__qualname__} is open: add it to App(resources={{{kind.__qualname__}: …}})"
            raise InvalidDeclaration(msg)
        return found  # type: ignore[no-any-return]

    def manifest_bytes(self, workflow: Workflow[Any, Any] | None) -> bytes:
        """Return the bytes of today's manifest of a workflow, or of the app's own tools for attached runs."""
        return self.manifest_chunk(workflow)[1]

    def manifest_chunk(self, workflow: Workflow[Any, Any] | None) -> tuple[str, bytes]:
        """Return today's manifest as a chunk: its digest and its bytes."""
        name = workflow.name if workflow is not None else ""
        policy = "" if self.policy is None else self.policy.label
        if (name, policy) not in self._manifests:
            tools = workflow.tools if workflow is not None else self.tools
            data = msgspec.json.encode(starting.manifest_of(workflow, tools, policy), order="deterministic")
            self._manifests[name, policy] = (digest_of(data), data)
        return self._manifests[name, policy]

    async def verified_chunk(self, run_id: str, digest: str) -> bytes:
        """Return a chunk whose bytes match its name. Raises Damaged."""
        data = await self.store.chunk(run_id, digest)
        if digest_of(data) != digest:
            raise Damaged(run_id, f"chunk {digest[:12]} does not match its digest")
        return data

    def verify_tail(self, tail: Tail) -> None:
        """Check that a tail is a chain that ends at its head. Raises Damaged."""
        first = tail.entries[0].seq
        stored = ((entry.seq, entry.body, entry.hash) for entry in tail.entries)
        verify(tail.head.run_id, tail.before, first, stored, tail.head.hash)

    def why(self, error: BaseException) -> str:
        """Return what is recorded of an exception: its type and text, bounded, without a traceback."""
        try:
            text = str(error) if isinstance(error, MilepostError) else f"{type(error).__name__}: {error}"
        except Exception:  # noqa: BLE001  an exception that cannot say what it is has still been raised
            text = f"{type(error).__name__}, whose text cannot be made"
        return self.told(text)

    def told(self, text: str) -> str:
        """Return what is recorded of a text that user code, or a library, may have had a hand in."""
        return self.redactor.clean(text[:TEXT_CHARS]).encode("utf-8", "replace").decode()[:1_000]

    def secrets(self, name: str) -> str:
        """Return a secret from the app's provider; from here on it is taken out of every text of this process."""
        value = self._provider(name)
        self.redactor.learn(name, value)
        return value

    def settle_due(self, session: Session) -> None:
        """Start settling what may be settled now."""
        reconcile.settle_due(session)

    def contradicted(self, session: Session, effect: Effect, evidence: str) -> None:
        """Record evidence against a terminal outcome."""
        reconcile.contradicted(session, effect, evidence)

    def diverged_waiting(self, session: Session) -> None:
        """Stop a segment whose branches all wait for recorded effects that none of them asks for."""
        step = min(session.unclaimed)
        effect = session.state.steps[step]
        path = getattr(effect, "path", step)
        asked = "other calls, and waits for this one"
        session.stop(Diverged(path, f"a call of {getattr(effect, 'tool', '?')}", asked))

    def dropped(self, session: Session, error: Exception) -> None:
        """Say that a run was let go of."""
        if not isinstance(error, StoreFailed):
            log.warning("run %s dropped: %s", session.run_id, self.why(error))
        self.sessions.pop(session.run_id, None)
        if session.inflight or self._given_up:
            self._lost.append(session)

    @property
    def hanging(self) -> bool:
        """Whether a call of a run that this process lost is still running."""
        self._lost = [one for one in self._lost if one.inflight or one in self._given_up.values()]
        return bool(self._lost)

    def adopt(self, run_id: str) -> None:
        """Drive a new child here too, where only one family of runs is driven; and look for work at once."""
        if self.family is not None:
            self.family.add(run_id)
        self.woken.set()

    # ------------------------------------------------------------ threads, and bytes that wait for a record

    async def in_thread(self, session: Session, step: Any, call: Call | None, fn: Callable[[], Any]) -> Any:
        """Run a `def` tool in a thread. If it is given up, what it returns late is kept as evidence."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        late = partial(self._late, session, step, call, session.state.steps.get(step.id), session.state.visit)

        def finished(value: Any, error: BaseException | None) -> None:
            self._given_up.pop(id(future), None)
            if future.done():
                late(value, error)
            elif error is not None:
                future.set_exception(tamed(error))
            else:
                future.set_result(value)

        self.threads.start(loop, fn, finished)
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():  # it answered in the moment in which it was given up
                error = future.exception()
                answer = future.result() if error is None else None
                loop.call_soon(late, answer, error)
            else:
                self._given_up[id(future)] = session
                if session.dropped is not None and session not in self._lost:
                    self._lost.append(session)
            raise

    def _late(
        self,
        session: Session,
        step: Any,
        call: Call | None,
        effect: object,
        visit: int,
        value: Any,
        error: BaseException | None,
    ) -> None:
        """Use what a thread returned after it was given up. `effect` and `visit` are those that it began with."""
        if type(effect) is not Effect or call is None or isinstance(step.tool, reconcile.Question):
            return  # a free read, or a question, which says nothing about the attempt: nothing depends on it any more
        if session.state.steps.get(step.id) is not effect:  # its segment has ended since
            if error is None:
                session.evidence(effect, call.attempt, "returned", visit=visit)
            return
        if error is None:
            effects.returned(session, step.tool, effect, call.attempt, value, call)
        elif session.dropped is not None:
            effects.raised_late(session, effect, call.attempt, error)
        elif effect.outcome == "unknown":
            now = self.clock.now()
            session.put(e.AttemptQuieted(at=now, step=step.id, attempt=call.attempt, quiet_at=now))
        if session.dropped is None:
            session.changed()

    def before_bytes(self, session: Session, entry: e.Entry) -> None:
        """Record something that must be durable before a tool's bytes leave. Raises what dropped the run.

        From a thread this waits. On the loop it is written at once, unless a thread is committing: then it is next.
        """
        if threading.get_ident() == self._loop_thread:
            session.put(entry)
            self.writer.write_now()
            if session.dropped is not None:
                raise session.dropped
            return
        assert self.loop is not None
        asyncio.run_coroutine_threadsafe(session.durable(entry), self.loop).result(timeout=30)

    # ------------------------------------------------------------ messages, events, ends

    def post(self, post: Post) -> None:
        """Deliver a message without waiting for it."""

        async def deliver() -> None:
            try:
                await self.writer.durable(Deliver(post))
            except MilepostError as error:
                log.warning("message %s for run %s not delivered: %s", post.message_id, post.run_id, error)

        task = asyncio.get_running_loop().create_task(deliver())
        self._posting.add(task)
        task.add_done_callback(self._posting.discard)

    def emit(self, run_id: str, event: Mapping[str, Any]) -> None:
        """Keep a diagnostic event; what cannot be written is dropped, never raised into the run."""
        try:
            body = msgspec.json.encode(event)
        except (TypeError, ValueError, msgspec.MsgspecError):
            body = msgspec.json.encode({"kind": event.get("kind", "event"), "text": repr(event)[:1_000]})
        self._events.append((run_id, self.clock.now(), self.redactor.clean_json(body)))
        if self._emitting is None:
            self._emitting = asyncio.get_running_loop().call_later(EMIT_EVERY_S, self.flush_events)

    def flush_events(self) -> None:
        """Queue what was emitted, in front of what is written next: so that its events are seen before its end."""
        self._emitting = None
        events, self._events = self._events, []
        if events and self.writer.failed is None:
            self.writer.events(events)

    def watch(self, run_id: str) -> asyncio.Future[None]:
        """Return a future that is done when the run rests or ends in this process."""
        future = self._watchers.get(run_id)
        if future is None:  # one for all who watch a run: a run may rest for months
            future = self._watchers[run_id] = asyncio.get_running_loop().create_future()
        return future

    def rested(self, run_id: str) -> None:
        """Tell who watches a run that it rested or ended."""
        future = self._watchers.pop(run_id, None)
        if future is not None and not future.done():
            future.set_result(None)

    def trace(self, run_id: str, error: BaseException) -> None:
        """Keep a traceback as a diagnostic event."""
        self.emit(run_id, {"kind": "traceback", "text": self.traceback(error)})

    def traceback(self, error: BaseException) -> str:
        """Return the end of a traceback, without secrets."""
        try:
            text = "".join(traceback.format_exception(error))
        except Exception:  # noqa: BLE001  an exception that cannot be shown has still been raised
            text = self.why(error)
        return self.redactor.clean(text[-TEXT_CHARS:])[-8_000:]
