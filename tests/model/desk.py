"""What a worker does next with its run, computed by the code that does it: a real Session, driven one step at a time.

Only what would do something stands still here: the writer queues and never commits, a tool's code stops where its
bytes would leave, a branch that would wait says what for. What is decided, recorded, settled or refused is decided by
`core/` and by the runtime's own functions. A step depends on nothing but its arguments, so each is computed once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from types import SimpleNamespace
from typing import Any, NamedTuple

import milepost as mp
from milepost.core import decide as deciding
from milepost.core import entries as e
from milepost.core import inbox, messages
from milepost.core.approval import TTL_MS
from milepost.core.authority import Granted
from milepost.core.lease import needed_until
from milepost.core.outcome import Ask
from milepost.definitions.redaction import Redactor
from milepost.definitions.tools import Tool
from milepost.errors import Denied, EpochLost, IllegalOutcome, MilepostError, StepFailed
from milepost.runtime import boundaries, driver, effects, reconcile
from milepost.runtime.branch import ToolStep
from milepost.runtime.engine import Engine
from milepost.runtime.session import Session
from milepost.stores.api import Append, Head, OnceRow, OnceTaken, Post, Switch, SwitchedOff
from tests.model.explorer import Violation
from tests.model.records import Record, Records, copied

STEP, PATH, TOOL = ":0", "s/pay#1", "pay"
MANIFEST = "manifest"


class Left(BaseException):
    """The tool's bytes leave now."""


class Queued(BaseException):
    """What was queued must be durable before anything else happens."""


class Parked(BaseException):
    """A call waits; `waiting` says what for."""

    def __init__(self, waiting: mp.Waiting) -> None:
        super().__init__()
        self.waiting = waiting


class Seat(NamedTuple):
    """Who looks, at which run, when."""

    worker: str
    run: str
    epoch: int
    now: int
    lease: int
    dead: frozenset[str]
    dropped: bool


class Put(NamedTuple):
    """An append as it waits to be committed. `lost` is the evidence that it becomes where the run is lost."""

    entries: tuple[bytes, ...]
    scopes: tuple[str, ...] = ()
    once: tuple[str, ...] | None = None
    settles: tuple[tuple[str, str, str | None, bytes | None], ...] = ()
    taken: tuple[int, ...] = ()
    lease: int | None = None
    release: tuple[int | None, int | None] | None = None
    holds: tuple[str, ...] = ()
    lifts: tuple[str, ...] = ()
    lost: tuple[tuple[str, bytes], ...] = ()
    waits: tuple[str, ...] = ()
    at: int = 0


class Thought(NamedTuple):
    """What a step came to."""

    view: Record
    puts: tuple[Put, ...]
    posts: tuple[tuple[str, bytes], ...]
    tag: str


class Answer:
    """The future of a commit: it raises what it was refused with, or stops here."""

    def __init__(self, refusal: MilepostError | None) -> None:
        self._refusal = refusal

    def __await__(self) -> Generator[Any, None, None]:
        if self._refusal is not None:
            raise self._refusal
        raise Queued
        yield  # what makes this a generator


async def _childless(*_: object, **__: object) -> list[Any]:
    """Return the children of the run: it has none."""
    return []


class Desk:
    """The engine and the writer of one step."""

    def __init__(self, seat: Seat, lease_ms: int, refusal: MilepostError | None) -> None:
        self.clock = _standing(seat.now)
        self.store: Any = SimpleNamespace(id="store", children=_childless)
        self.worker, self.lease_until, self.lease_ms = seat.worker, seat.lease, lease_ms
        self.sessions: dict[str, Session] = {}
        self.writer: Any = self
        self.turn = self.tools_in_flight = self.lapses = 0
        self.policy, self.operators, self.approval_ttl_ms = None, None, TTL_MS
        self.crowded, self.failed, self.draining = False, None, False
        self.policy_told = 0
        self.halted, self.breaker = False, None
        self.stops = SimpleNamespace(now=list, again=list)
        self.appends: list[Append] = []
        self.posts: list[Post] = []
        self.deadlines: Any = SimpleNamespace(set=self._timed_out, drop=lambda _: None)
        self._refusal = refusal

    redactor = Redactor()
    told = Engine.told
    approval_ttl_ms = TTL_MS
    lease_for = Engine.lease_for
    leased = Engine.leased
    moment = Engine.moment
    why = Engine.why
    contradicted = Engine.contradicted

    @staticmethod
    def _timed_out(_: float) -> Any:
        return SimpleNamespace(passed=True, task=SimpleNamespace(uncancel=lambda: 0, cancelling=lambda: 0))

    def put(self, append: Append, _: Callable[[Exception], None]) -> None:
        self.appends.append(append)

    def more(self, _: int) -> None: ...

    def durable(self, append: Append, **_: bool) -> Answer:
        if self._refusal is None:
            self.appends.append(append)
        refusal, self._refusal = self._refusal, None
        return Answer(refusal)

    def settle_due(self, _: Session) -> None: ...

    def dropped(self, _: Session, __: Exception) -> None: ...

    def flush_events(self) -> None: ...

    def manifest_chunk(self, _: Any) -> tuple[str, bytes]:
        return MANIFEST, b"{}"

    def post(self, post: Post) -> None:
        self.posts.append(post)


class Branch:
    """The one branch of the segment."""

    closed_by = None

    def __init__(self, session: Session) -> None:
        self.session = session

    def begin(self) -> None: ...

    async def idle(self) -> None:
        raise Parked(self.session.rest())


def leave() -> str:
    """Be the code of a tool whose bytes leave now."""
    raise Left


class Provider:
    """What the tool's code and its reconciler do in the step at hand."""

    def __init__(self) -> None:
        self.answer: Callable[[], str] = leave
        self.finding: mp.Finding[str] = mp.still_unknown()


def declared(provider: Provider, *, reconciles: bool, **options: Any) -> Tool[[str], str]:
    """Return a real tool with these promises."""

    @mp.tool(name=TOOL, **options)
    async def pay(order: str) -> str:
        return provider.answer()

    if reconciles:

        @pay.reconcile
        async def found(order: str) -> mp.Finding[str]:
            return provider.finding

    return pay


FINDINGS: dict[str, Callable[[], mp.Finding[str]]] = {
    "happened": lambda: mp.happened("receipt"),
    "did not happen": mp.did_not_happen,
    "did not happen, from a stale copy": mp.did_not_happen,
    "conflict": lambda: mp.conflict("found twice"),
    "still unknown": mp.still_unknown,
}


class Steps:
    """All steps of workers that were ever asked for, each computed once."""

    def __init__(self, records: Records, lease_ms: int, *, reconciles: bool, **options: Any) -> None:
        self.provider = Provider()
        self.tool = declared(self.provider, reconciles=reconciles, **options)
        self._records = records
        self._lease_ms = lease_ms
        no_branch: Any = None
        self._asked = ToolStep(no_branch, self.tool, self.tool.arguments.bind(("o-1",), {}), STEP, PATH)
        self._known: dict[tuple[Any, ...], Thought] = {}
        self.appends: dict[Put, Append] = {}  # as the session made them, with all that the model leaves out

    def take(self, name: str, seat: Seat, view: Record, *args: Any) -> Thought:
        """Return what this step comes to: `load`, `mail`, `think`, `answer`, `send` or `end`."""
        key = (name, seat, view, args)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._computed(getattr(self, f"_{name}"), seat, view, args)
        return found

    def _computed(
        self, step: Callable[..., Coroutine[Any, Any, str]], seat: Seat, view: Record, args: tuple[Any, ...]
    ) -> Thought:
        refusal: MilepostError | None = None
        if args and isinstance(args[-1], tuple):
            refusal, args = _refusal(args[-1]), args[:-1]
        desk = Desk(seat, self._lease_ms, refusal)
        head = Head(1, seat.run, seat.epoch, 0, 0, b"")
        about = e.About("pay", "1", authority=Granted("bot"), created_at=0)
        session = Session(desk, head, copied(view.state), about, None, {TOOL: self.tool})  # type: ignore[arg-type]
        session.busy, session.dead = 1, seat.dead
        if seat.dropped:
            session.dropped = EpochLost(seat.run, seat.epoch)
        try:
            tag = self._driven(step(session, *args))
        except IllegalOutcome as illegal:
            raise Violation("a transition that is not in the table") from illegal
        lost = _evidence_if_lost(session, desk)
        puts = [_put(append) for append in desk.appends]
        if lost and puts:
            puts[-1] = puts[-1]._replace(lost=lost)
        self.appends.update(zip(puts, desk.appends, strict=True))
        after = view if not desk.appends else self._records.of(session.state)
        posts = tuple((post.message_id, post.body) for post in desk.posts)
        return Thought(after, tuple(puts), posts, tag)

    @staticmethod
    def _driven(coroutine: Coroutine[Any, Any, str]) -> str:
        try:
            coroutine.send(None)
        except StopIteration as done:
            return str(done.value)
        except Queued:
            return "queued"
        except Left:
            return "left"
        except EpochLost:
            return "dropped"
        coroutine.close()
        raise AssertionError("a step waited for something that does not exist here")

    # ------------------------------------------------------------ the steps

    async def _load(self, session: Session) -> str:
        entries = deciding.recover(session.state, session.world())
        if entries:
            session.put(*entries)
        return ""

    async def _mail(self, session: Session, id_: int, body: bytes) -> str:
        message, chunks = boundaries.stowed(session, messages.decode(body))
        entries = inbox.journal(session.state, message, session.engine.clock.now())
        boundaries.take(session, id_, message, entries, chunks)
        return ""

    async def _think(self, session: Session) -> str:
        world = session.world()
        decision = deciding.decide(session.state, world)
        stops = [entry for entry in decision.append if isinstance(entry, e.RunStopped)]
        if stops:
            await boundaries.stop(session, stops[0])
        match decision.perform:
            case deciding.Enter() | deciding.Settle() as perform:
                acted = await self._settle(session, world)
                if acted:
                    return acted
                if isinstance(perform, deciding.Enter):
                    await self._enter(session)
                await driver.rest(session, deciding.Rest("switch", session.due()))
            case deciding.Rest() | deciding.Release() as resting:
                await driver.rest(session, resting)
            case deciding.Migrate():
                raise AssertionError("one version of the code is modelled")
            case deciding.GoBack():
                raise AssertionError("nobody asks for it here")
        return ""

    async def _settle(self, session: Session, world: deciding.World) -> str:
        for effect in session.state.effects():
            if not reconcile._open(effect):
                continue
            move = deciding.move_for(effect, world)
            if isinstance(move, Ask):
                return "ask"
            if deciding.may_act(effect, move):
                desk: Any = session.engine
                await reconcile._act(session, effect, move)
                if desk.appends:
                    return "acted"
                await driver.rest(session, deciding.Rest("switch", session.due()))
        return ""

    async def _enter(self, session: Session) -> None:
        branch: Any = Branch(session)
        asked: Any = self._asked
        failed = ""
        try:
            await effects.act(branch, asked)
        except (StepFailed, Denied) as error:
            failed = str(error)
        except Parked as parked:
            await boundaries.park(session, parked.waiting)
        if any(effect.open or effect.verify_from is not None for effect in session.state.effects()):
            await boundaries.park(session, session.rest())
        if failed:
            now = session.engine.clock.now()
            await boundaries.stop(session, e.RunStopped(at=now, status="failed", code="failed", why=failed))
        await boundaries.finish(session, b'"receipt"', "s")

    async def _answer(self, session: Session, finding: str) -> str:
        self.provider.finding = FINDINGS[finding]()
        effect = next(effect for effect in session.state.effects() if reconcile._open(effect))
        await reconcile._act(session, effect, Ask())
        return ""

    async def _send(self, session: Session, number: int, how: str, lapsed: bool) -> str:  # noqa: FBT001
        def refused() -> str:
            raise mp.NotSent("refused by the host")

        answer = leave if how == "leave" else refused
        return await self._sent(session, number, answer, lapses=-1 if lapsed else 0)

    async def _end(self, session: Session, number: int, sent: int, how: str) -> str:
        # Up to the bytes all is as it was when they left; then it is now.
        engine: Any = session.engine
        clock, lost = engine.clock, session.dropped
        engine.clock, engine.lease_until, session.dropped = (
            _standing(sent),
            needed_until(sent, self.tool.timeout_ms),
            None,
        )

        def arrive() -> str:
            engine.clock, session.dropped = clock, lost
            if how == "rejected":
                raise mp.Rejected("no")
            if how == "lost":
                raise asyncio.CancelledError
            return "receipt"

        return await self._sent(session, number, arrive)

    async def _sent(self, session: Session, number: int, answer: Callable[[], str], lapses: int = 0) -> str:
        self.provider.answer = answer
        effect: Any = session.state.steps.get(STEP)
        try:
            await effects.send(session, self._asked, effect, number, lapses=lapses)
        finally:
            self.provider.answer = leave
        return ""


def _standing(now: int) -> Any:
    """Return a clock that stands."""
    return SimpleNamespace(now=lambda: now, chance=lambda: 0.5)


def _refusal(given: tuple[Any, ...]) -> MilepostError:
    if given[0] == "switch":
        return SwitchedOff(Switch(given[1], "hold", "held", "someone", 0))
    return OnceTaken(OnceRow(*given[1:]))


def _evidence_if_lost(session: Session, desk: Desk) -> tuple[tuple[str, bytes], ...]:
    """Return what the session would tell the inbox if what it just queued were refused by epoch."""
    if session.dropped is not None:
        return ()
    before, desk.posts = desk.posts, []
    session.drop(EpochLost(session.run_id, session.head.epoch))
    told, desk.posts = desk.posts, before
    return tuple((post.message_id, post.body) for post in told)


def _put(append: Append) -> Put:
    once = append.once
    return Put(
        tuple(append.entries),
        append.scopes,
        None if once is None else (once.value, once.step, once.digest),
        tuple((settled.value, settled.step, settled.outcome, settled.result) for settled in append.once_settled),
        tuple(append.taken),
        None if append.lease is None else append.lease[1],
        append.release,
        tuple(hold.scope for hold in append.holds),
        tuple(lift.scope for lift in append.lifts),
        waits=tuple(awaited.scope for awaited in append.waits),
        at=append.at,
    )
