"""The composition root: it alone puts concrete classes together; `opening` names those of stores."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from milepost.attaching import Attaching
from milepost.core.approval import TTL_MS
from milepost.core.authority import Authority
from milepost.core.breaker import Breaker
from milepost.core.decide import Decision, decide, recover
from milepost.core.duration import Duration, parse_ms
from milepost.core.lease import LEASE_MS
from milepost.deciding import Deciding, amounts_of, moment_of
from milepost.definitions.queues import place
from milepost.definitions.rules import PolicyFile
from milepost.definitions.run import Handle
from milepost.definitions.secrets import from_environment
from milepost.definitions.tools import Cost, Tool, checked_reconciler
from milepost.definitions.workflows import Workflow
from milepost.errors import InvalidDeclaration, StartConflict, TookTooLong, UnknownWorkflow
from milepost.fleet import Fleet
from milepost.observing import Observing
from milepost.opening import open_store as open_store  # noqa: PLC0414  where it is looked for
from milepost.operations import keys, sealing
from milepost.operations.inspection import Inspector
from milepost.operations.signatures import TrustedOperators
from milepost.runtime import driver, ruling, starting
from milepost.runtime.bridge import LOOK_S, until_settled
from milepost.runtime.clock import Clock, SystemClock
from milepost.runtime.driving import Driving, Resting
from milepost.runtime.engine import Engine
from milepost.runtime.handles import RunHandle
from milepost.runtime.watchdog import STILL_MS
from milepost.runtime.worker import Worker
from milepost.stores.api import Create, Store

DEFAULT_BREAKER = Breaker()
R = TypeVar("R")
I = TypeVar("I")  # noqa: E741 - "input", as in the documentation


class App(Deciding, Fleet, Attaching, Observing):
    """A store, and the workflows and tools that this program knows. Opens nothing until it is entered.

    `async with app` drives runs and serves; `async with app.client()` starts and looks, and never drives; `app.run` is
    the one bridge for scripts. Raises InvalidDeclaration for workflows and tools that contradict each other.

    `policy` is a file of rules, read again whenever it changes; without one, scopes, `approval=` and budgets decide.
    With `seal`, the file that `milepost seal` wrote, nothing is driven before the store was compared with it: entering
    raises RolledBack or SealBroken where the store is an older copy or was changed. `trust` names the operators whose
    signatures count: an approval then counts only with one. `approval_ttl` is how long a request for one holds where no
    rule says it. With `encryption`, a key file, every value is encrypted from the first write on (extra `crypto`).
    """

    def __init__(
        self,
        store: str,
        *,
        workflows: Sequence[Workflow[Any, Any]] = (),
        tools: Sequence[Tool[..., Any]] = (),
        resources: Mapping[type[Any], Callable[[], AbstractAsyncContextManager[Any]]] | None = None,
        secrets: Callable[[str], str] | None = None,
        policy: str | None = None,
        seal: str | Path | None = None,
        trust: str | Path | None = None,
        approval_ttl: Duration = f"{TTL_MS}ms",
        encryption: str | Path | None = None,
        clock: Clock | None = None,
        lease: Duration = f"{LEASE_MS}ms",
        breaker: Breaker | None = DEFAULT_BREAKER,
    ) -> None:
        Fleet.__init__(self)
        Attaching.__init__(self)
        self.store = store
        self.seal = None if seal is None else Path(seal)
        self.trust = None if trust is None else Path(trust)
        self._approval_ttl_ms = parse_ms(approval_ttl)
        self.encryption = None if encryption is None else Path(encryption)
        self._workflows = tuple(workflows)
        self._tools = tuple(tools)
        self._resources = dict(resources or {})
        self.own_secrets = secrets is not None
        self._secrets = secrets or from_environment
        self._clock = clock
        self._lease_ms = parse_ms(lease)
        self._breaker = breaker
        self._engine: Engine | None = None
        self._worker: Worker | None = None
        self._working: asyncio.Task[None] | None = None
        self._driving: Driving | None = None
        self.policy = policy
        self._check()

    def _check(self) -> None:
        names: set[str] = set()
        for workflow in self._workflows:
            if workflow.name in names:
                why = f"two workflows are named {workflow.name!r}. Rename one, or list it once."
                raise InvalidDeclaration(why)
            names.add(workflow.name)
            _ = workflow.first, workflow.migration_paths()
            for tool in workflow.tools.values():
                checked_reconciler(tool)
        for tool in self._tools:
            checked_reconciler(tool)

    @property
    def workflows(self) -> Mapping[str, Workflow[Any, Any]]:
        """The registered workflows by name."""
        return {workflow.name: workflow for workflow in self._workflows}

    @property
    def tools(self) -> Mapping[str, Tool[..., Any]]:
        """The tools of attached runs by name."""
        return {tool.name: tool for tool in self._tools}

    # ------------------------------------------------------------ opening

    async def __aenter__(self) -> Self:
        await self._open(drives=True)
        self._worker = Worker(self._need_engine(), schedules=tuple(self._schedules.values()))
        await self._worker.open()
        self._working = asyncio.get_running_loop().create_task(self._worker.run(), name="milepost-worker")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        try:
            if self._worker is not None and self._working is not None:
                await self._worker.drain()
                await self._working
        finally:
            await self._close()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[App]:
        """Open the app to start, look and send, without driving anything."""
        await self._open(drives=False)
        try:
            yield self
        finally:
            await self._close()

    async def serve(
        self,
        stop: asyncio.Event,
        *,
        together: int,
        grace: Duration,
        queues: Sequence[str] | None = None,
        supervised: Callable[[str], Callable[[], None]] | None = None,
        observed: Callable[[Worker], AbstractAsyncContextManager[None]] | None = None,
        still: Duration = f"{STILL_MS}ms",
    ) -> None:
        """Drive runs until `stop` is set, then drain: what `milepost worker` does. Raises StoreFailed.

        `queues` are those that it takes runs from; else it serves all of them.
        `supervised` is told the worker's name; what it returns is called again and again while this process goes on.
        `observed` is entered for as long as the worker runs and drains. A run that is not written to for as long as
        `still` is said to sit still.
        """
        await self._open(drives=True, queues=None if queues is None else tuple(queues))
        try:
            engine = self._need_engine()
            worker = Worker(
                engine, together=together, beat=supervised and supervised(engine.worker),
                schedules=tuple(self._schedules.values()), still_ms=parse_ms(still),
            )  # fmt: skip
            await worker.open()
            async with nullcontext() if observed is None else observed(worker):
                working = asyncio.get_running_loop().create_task(worker.run())
                stopping = asyncio.get_running_loop().create_task(stop.wait())
                await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
                stopping.cancel()
                await worker.drain(parse_ms(grace) / 1000)
                await working
        finally:
            await self._close()

    @asynccontextmanager
    async def driven(
        self,
        found: Callable[[str, str | None], None] | None = None,
        *,
        looked: Callable[[], None] | None = None,
        beat: Callable[[], None] | None = None,
        grace: Duration = "10s",
    ) -> AsyncIterator[Driving]:
        """Open the app to drive a run when `advance` is called for it: for an engine that schedules.

        `found` is told of each run that can move, and who held it where that worker is gone; `looked` is called after
        each look at the store, `beat` again and again while the loop turns. Schedules are kept as by any worker: the
        run of a tick is found like others. On leaving, every run is given back, after `grace` at most.
        """
        await self._open(drives=True)
        try:
            scheduled = tuple(self._schedules.values())
            driving = Driving(self._need_engine(), found, looked, beat=beat, schedules=scheduled)
            await driving.open()
            self._driving = driving
            driving.working = asyncio.get_running_loop().create_task(driving.run(), name="milepost-driving")
            try:
                yield driving
            finally:
                await driving.drain(parse_ms(grace) / 1000)
                await driving.working
        finally:
            self._driving = None
            await self._close()

    async def advance(self, run_id: str, /, *, segments: int | None = None) -> Resting:
        """Drive a run, if it can move, until it rests or `segments` boundaries were written; return where it is.

        Idempotent: call it again after a crash, or twice at once. The app has to be open by `driven`. Raises
        UnknownRun, UnknownWorkflow, StoreError; see `Driving.advance`.
        """
        if self._driving is None:
            raise InvalidDeclaration("advance() is for an engine that schedules: open the app with app.driven()")
        return await self._driving.advance(run_id, segments=segments)

    async def _open(self, *, drives: bool, queues: tuple[str, ...] | None = None) -> None:
        await self._alone()
        if self._engine is not None:
            why = "this app is open already: enter it once, or make a second App"
            raise InvalidDeclaration(why)
        store = open_store(self.store, create=self.seal is None, encryption=self.encryption)
        try:
            engine = self._engine_over(store, drives=drives)
            engine.serving = self._serving(queues)
            if drives:
                await self._compare_with_seal(engine.store)
            await engine.open(drives=drives)
        except BaseException:
            store.close()
            raise
        self._engine = engine
        self._observed(engine)

    def _engine_over(self, store: Store, *, drives: bool) -> Engine:
        """Return the engine of this app. Whoever watches one from within (`milepost.testing`) overrides this."""
        return Engine(
            store,
            workflows=self._workflows,
            tools=self._tools,
            resources=self._resources,
            secrets=self._secrets,
            clock=self._clock or SystemClock(store.wall),
            lease_ms=self._lease_ms,
            policy=None if self.policy is None else PolicyFile(self.policy),
            breaker=self._breaker,
            operators=None if self.trust is None or not drives else TrustedOperators(self.trust),
            approval_ttl_ms=self._approval_ttl_ms,
        )

    async def _compare_with_seal(self, store: Store) -> None:
        if self.seal is not None:
            await sealing.require(store, self.seal, None if self.trust is None else keys.load(self.trust))

    async def _close(self) -> None:
        engine, self._engine = self._engine, None
        self._worker = self._working = None
        if engine is not None:
            try:
                await engine.close()
                await self._unobserved()
            finally:
                engine.store.close()

    def _need_engine(self) -> Engine:
        if self._engine is None:
            why = "the app is not open: use it inside 'async with app' or 'async with app.client()'"
            raise InvalidDeclaration(why)
        return self._engine

    # ------------------------------------------------------------ the bridge for scripts

    @overload
    def run(
        self,
        workflow: Workflow[None, R],
        /,
        *,
        key: str | None = None,
        authority: Authority | None = None,
        budget: Cost | None = None,
        tags: Mapping[str, str] | None = None,
        deadline: Duration | datetime | None = None,
        timeout: Duration | None = None,
    ) -> R: ...
    @overload
    def run(
        self,
        workflow: Workflow[I, R],
        input: I,
        /,
        *,
        key: str | None = None,
        authority: Authority | None = None,
        budget: Cost | None = None,
        tags: Mapping[str, str] | None = None,
        deadline: Duration | datetime | None = None,
        timeout: Duration | None = None,
    ) -> R: ...
    def run(
        self, workflow: Workflow[Any, R], input: Any = None, /, *, timeout: Duration | None = None, **options: Any
    ) -> R:
        """Start a run, or find the one that `key` names, drive it and its children here, and return its result.

        Waits for time, signals, breakers and reconciliation. Raises NeedsPerson, with the commands to type, where only
        a person helps; RunFailed, RunCancelled, RunKilled or RunBlocked where it ended otherwise; TookTooLong after
        `timeout`; StartConflict for a key with other input. Call it from plain code, not inside an event loop.
        """
        return asyncio.run(self._run(workflow, input, timeout, options))

    async def _run(
        self, workflow: Workflow[Any, R], given: Any, timeout: Duration | None, options: Mapping[str, Any]
    ) -> R:
        await self._open(drives=True)
        engine = self._need_engine()
        engine.family = set()
        worker = Worker(engine, poll_s=LOOK_S)
        working = None
        try:
            handle = await self.start(workflow, given, **options)
            engine.family.add(handle.id)
            working = asyncio.get_running_loop().create_task(worker.run())
            seconds = None if timeout is None else parse_ms(timeout) / 1000
            await ruling.wake(engine)  # before it is asked whether only a person helps
            try:
                async with asyncio.timeout(seconds):
                    await until_settled(engine, handle.id, working)
            except TimeoutError:
                row = await engine.store.run(handle.id)
                raise TookTooLong(handle.id, row.status) from None
            return await handle.result()
        finally:
            await worker.drain()
            if working is not None:
                await asyncio.wait([working])
                if not working.cancelled():
                    working.exception()
            await self._close()

    # ------------------------------------------------------------ starting and looking

    @overload
    async def start(
        self,
        workflow: Workflow[None, R],
        /,
        *,
        key: str | None = None,
        authority: Authority | None = None,
        budget: Cost | None = None,
        tags: Mapping[str, str] | None = None,
        deadline: Duration | datetime | None = None,
        queue: str | None = None,
        priority: int = 0,
        group: str | None = None,
        begins: Duration | datetime | None = None,
    ) -> Handle[R]: ...
    @overload
    async def start(
        self,
        workflow: Workflow[I, R],
        input: I,
        /,
        *,
        key: str | None = None,
        authority: Authority | None = None,
        budget: Cost | None = None,
        tags: Mapping[str, str] | None = None,
        deadline: Duration | datetime | None = None,
        queue: str | None = None,
        priority: int = 0,
        group: str | None = None,
        begins: Duration | datetime | None = None,
    ) -> Handle[R]: ...
    async def start(
        self,
        workflow: Workflow[Any, R],
        input: Any = None,
        /,
        *,
        key: str | None = None,
        authority: Authority | None = None,
        budget: Cost | None = None,
        tags: Mapping[str, str] | None = None,
        deadline: Duration | datetime | None = None,
        queue: str | None = None,
        priority: int = 0,
        group: str | None = None,
        begins: Duration | datetime | None = None,
    ) -> Handle[R]:
        """Start a run durably and return its handle. With a `key`, the same key and input give the same run.

        It stands in `queue` (else in the workflow's), where a higher `priority` goes first; `group` is whose it is
        there, such as a customer, for limits by group. It begins after a span, or at a moment, that `begins` says.
        Raises StartConflict for a key that was used with other input or another workflow, InvalidValue for an input
        that cannot be stored or a budget that is no amount, UnknownWorkflow for one that this app does not register.
        """
        engine = self._need_engine()
        if engine.workflows.get(workflow.name) is not workflow:
            raise UnknownWorkflow(workflow.name)
        now = engine.clock.now()
        new = starting.new_run(
            engine,
            workflow,
            workflow.input.write(input),
            run_id=uuid.uuid4().hex[:20],
            key=key,
            authority=(authority or Authority("")).granted(now),
            budget=amounts_of(budget),
            tags=tags,
            deadline=moment_of(deadline, now),
            place=place(queue or workflow.queue, priority, group, moment_of(begins, now)),
        )
        created = await engine.writer.durable(Create(new))
        if (created.workflow, created.digest) != (new.workflow, new.digest):
            how = "with other input" if created.workflow == new.workflow else f"of workflow {created.workflow!r}"
            raise StartConflict(key or "", created.id, f"started {how}")
        engine.woken.set()
        return RunHandle(engine, created.id, workflow)

    @overload
    def handle(self, run_id: str, /) -> Handle[Any]: ...
    @overload
    def handle(self, run_id: str, workflow: Workflow[Any, R], /) -> Handle[R]: ...
    def handle(self, run_id: str, workflow: Workflow[Any, Any] | None = None, /) -> Handle[Any]:
        """Return the handle of a run by its id."""
        return RunHandle(self._need_engine(), run_id, workflow)

    @property
    def inspect(self) -> Inspector:
        """The read API over this app's store."""
        return Inspector(self._need_engine().store)

    async def plan(self, run_id: str) -> Decision:
        """Return what recovery would do next with a run, without doing it. Raises UnknownRun, Damaged."""
        engine = self._need_engine()
        full = await engine.store.resolve_id(run_id)
        session = await driver.read(engine, await engine.store.tail(full))
        session.dead = await engine.dead_owners(session)
        row = await engine.store.run(full)
        recovered = recover(session.state, session.world()) if row.owner is None or engine.is_dead(row.owner) else []
        for entry in recovered:
            session.state.apply(entry)
        decision = decide(session.state, session.world())
        return Decision((*recovered, *decision.append), decision.perform)
