"""A run that this process holds: its state, its place in the chain, and what is going on with it right now.

State changes at the moment an entry is queued, not when it is durable: whoever must not act before it is durable awaits
`durable`. If an append is refused by epoch, or the store fails, the session is *dropped*: nothing more is started, and
what its attempts still see goes to the inbox as evidence.

A segment *unloads* when nothing of it can move: every branch is parked (or joins branches that are), nothing is in
flight, and nothing will be due within a moment. Its task is cancelled; once that begins no step starts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

import msgspec

from milepost.core import codec, messages
from milepost.core import entries as e
from milepost.core.chunks import digest_of
from milepost.core.decide import World, may_act, move_for, rest_on
from milepost.core.history import UNDOING, undoing
from milepost.core.limit_entries import Overspent
from milepost.core.manifest import EQUAL
from milepost.core.outcome import Resend
from milepost.core.pools import pools_of
from milepost.core.steps import Effect, Read, Receive, Sleep
from milepost.definitions.tools import with_compensations
from milepost.errors import Damaged, EpochLost, Waiting
from milepost.runtime import approvals, pools, ruling
from milepost.runtime.alarm import Alarm
from milepost.runtime.projections import LEAVING, ROWS, left, merge, seeing
from milepost.stores.api import Append, EffectRow, Once, OnceSettled, Post
from milepost.stores.waits import Awaited

if TYPE_CHECKING:
    from milepost.core.messages import Sight
    from milepost.core.state import RunState
    from milepost.definitions.tools import Tool
    from milepost.definitions.workflows import Workflow
    from milepost.runtime.engine import Engine
    from milepost.stores.api import Head

TURNS = 8
MERGEABLE = frozenset({"boundary", "chunks", "tried"})
BY_REFERENCE_BYTES = 256 * 1024
_REFERENCE = b'{"$ref":"'
# Of an attempt: its effect, its number, and the arguments of `evidence`.
Saw = tuple[Effect, int, messages.Sight, bytes, str]


class Unloading(BaseException):
    """A call was made while the segment was being unloaded."""


class Session:
    """One held run."""

    def __init__(
        self,
        engine: Engine,
        head: Head,
        state: RunState,
        about: e.About,
        workflow: Workflow[Any, Any] | None,
        tools: dict[str, Tool[..., Any]],
    ) -> None:
        self.engine = engine
        self.head = head
        self.state = state
        self.about = about
        self.workflow = workflow
        self.listed = tools
        self.tools = with_compensations(tools)
        self.facts = {name: tool.facts for name, tool in self.tools.items()}
        self.run_id = head.run_id
        self.attached = about.attached
        self.tenant = about.authority.tenant or ""
        self.pools = pools_of(about.authority.tenant, about.authority.principal)
        self.scopes: dict[str, tuple[str, ...]] = {}
        self.dropped: Exception | None = None
        self.fatal: Exception | None = None
        self.draining = False
        self.returning = False  # a rewind waits for it: nothing new may start until it was looked at
        self.late = False  # the driver has seen that the deadline passed: nothing happens at it any more
        self.unloading = False
        self.inflight = self.busy = 0
        self.segment_task: asyncio.Task[Any] | None = None
        self.settlers: dict[str, asyncio.Task[None]] = {}
        self.unclaimed: set[str] = set()
        self.known_chunks: set[str] = set()
        self.placed: tuple[str, bytes] | None = None
        self.dead: frozenset[str] = frozenset()
        self.compatibility = EQUAL
        self.blocks: tuple[str, ...] = ()
        self.migrates: tuple[str, ...] = ()
        self.once_of: dict[str, Once] = {}
        self.waits: dict[str, Waiting] = {}
        self.polls: dict[str, int] = {}
        self.held: dict[str, tuple[int, Waiting]] = {}  # see runtime/ruling.py
        self.stopped: dict[str, Awaited] = {}  # by step, what it rests on
        self.rests_on: tuple[Awaited, ...] = ()  # what all of it rested on when it began to unload
        self._parked: set[asyncio.Future[None]] = set()
        self._waking: set[asyncio.Future[None]] = set()
        self._open: Append | None = None
        self._turn = 0
        self._stowed: dict[str, bytes] = {}
        self._fresh = self.released = False
        self._saw: list[tuple[int, int, Saw]] = []
        self._checking = self._changes = self._rested_at = self.barriered = 0
        self._timer: asyncio.TimerHandle | None = None
        self._alarm = Alarm(self)
        self.mail = asyncio.Lock()
        self.taken: set[int] = set()
        self.starting: dict[str, asyncio.Future[Any]] = {}
        self.resting = Waiting("time")
        self._refused = self.drop  # once: to bind it for each append costs more than to call it

    # ------------------------------------------------------------ writing

    def world(self) -> World:
        """Return what a decision may look at now."""
        engine = self.engine
        return World(
            engine.clock.now(), self.facts, self.dead, self.blocks, self.about.deadline, self.attached,
            self.state.ended, self.migrates, engine.manifest_chunk(self.workflow)[0] if self.blocks else "",
            self.about.place.begins_at,
        )  # fmt: skip

    def put(self, *entries: e.Entry, saw: Saw | None = None, **beside: Any) -> None:
        """Apply entries and queue them; they are durable before anything that is awaited later.

        What is put in a row becomes one append, as long as the writer has not taken it. `saw` is what an attempt saw:
        if the append is refused because the run was lost meanwhile, it goes to the inbox.
        """
        writer = self.engine.writer
        joins = self._open if self._turn == writer.turn and beside.keys() <= MERGEABLE else None
        append = self._append(entries, beside)
        if saw is not None:
            self._saw = [*self._unsure(), (writer.turn, self.state.visit, saw)]
        if joins is not None:
            merge(joins, append)
            writer.more(len(append.entries))
            return
        writer.put(append, self._refused)
        self._open, self._turn = append, writer.turn

    def queue(self, *entries: e.Entry, **beside: Any) -> asyncio.Future[Any]:
        """Apply entries and return the future of their being durable.

        Raises at once what dropped the session; the future raises EpochLost, SwitchedOff, OnceTaken or StoreFailed.
        Cancelling who awaits it waits for the commit first, so that its answer is always known.
        """
        append = self._append(entries, beside)
        self._open = None  # what is put later must stand behind this
        alone = self.busy <= 1 and len(self.engine.sessions) == 1
        return self.engine.writer.durable(append, alone=alone)

    async def durable(self, *entries: e.Entry, **beside: Any) -> Any:
        """Apply entries and wait until they are durable. Raises as `queue` does, and lets go of a lost run."""
        try:
            return await self.queue(*entries, **beside)
        except EpochLost as error:
            self.drop(error)
            raise

    def applied(self, entry: e.Entry) -> None:
        """Apply an entry that a transaction has written already."""
        self.state.apply(entry)

    @property
    def closing(self) -> bool:
        """Whether nothing new may start: the run was cancelled, is out of time, or its worker is leaving."""
        deadline = self.about.deadline
        late = deadline is not None and self.engine.clock.now() >= deadline
        return self.draining or self.returning or self.state.cancel is not None or late

    def _append(self, entries: tuple[e.Entry, ...], beside: dict[str, Any]) -> Append:
        if self.dropped is not None:
            raise self.dropped
        bodies = [codec.encode(entry) for entry in entries]  # first: what cannot be stored must not be taken for true
        state, rows, settled, seen = self.state, [], [], seeing(self.state, entries, beside)
        self._fresh = True
        spent, reserve = beside.pop("spent", []), None
        for entry in entries:
            reserve = pools.charge(self, entry, spent) or reserve
            if type(entry) in LEAVING:
                settled.extend(self._let_go(entry))
                rows.extend(left(state, entry))
            state.apply(entry)
            seen.after(entry)
            row = ROWS.get(type(entry))
            if row is not None:
                effect = state.steps.get(entry.step)  # type: ignore[attr-defined]
                if type(effect) is Effect:
                    rows.append(row(effect))
                    if effect.final and effect.once is not None:
                        settled.extend(self._settle_once(effect))
                    if effect.outcome == "confirmed" and state.rewind is not None:
                        settled.extend(self.undone(effect.step))
        at = entries[0].at if entries else self.engine.clock.now()
        if beside.get("work") is not None:
            rows = [EffectRow(row.step, None) for row in rows]  # it is settled in the same transaction
        else:
            spent = spent or ()
            if settled:
                beside.setdefault("once_settled", settled)
        if Overspent in map(type, entries):
            beside["overspent"] = dict(state.overspent)
        beside |= {"reserve": reserve, "spent": spent, "approvals": seen.rows, "answers": seen.answers}
        return Append(self.head, bodies, at, effects=rows or (), **beside)

    def _settle_once(self, effect: Effect) -> list[OnceSettled]:
        if effect.once is None:
            return []
        if effect.outcome == "confirmed":
            result = None if effect.result is None else bytes(effect.result)
            return [OnceSettled(self.tenant, effect.tool, effect.once, "confirmed", result, effect.step)]
        return [OnceSettled(self.tenant, effect.tool, effect.once, None, None, effect.step)]

    def undone(self, step: str) -> list[OnceSettled]:
        """Return the identity that a confirmed compensation sets free: that of what it undoes."""
        asked = self.state.rewind
        if asked is None or not step.startswith(UNDOING):
            return []
        return [
            OnceSettled(self.tenant, undo.tool, undo.once, None, None, undo.step)
            for undo in asked.undo
            if undo.once is not None and undoing(undo.visit, undo.step) == step
        ]

    def _let_go(self, entry: e.Entry) -> list[OnceSettled]:
        """Return the identities that an entry sets free: of effects that failed, and that it leaves behind for good."""
        if type(entry) is e.RunStopped and entry.status == "blocked":
            return []
        effects = self.state.effects()
        failed = [one for one in effects if one.outcome == "failed" and not one.final and one.attempt]
        return [released for effect in failed if not effect.contradicted for released in self._settle_once(effect)]

    def drop(self, error: Exception) -> None:
        """Let go of the run at once, loudly: it is held elsewhere, or the store failed."""
        if self.dropped is None:
            self.dropped = error
            if isinstance(error, EpochLost):
                for _, visit, saw in self._unsure():
                    self.evidence(*saw, visit=visit)
            self.engine.dropped(self, error)
            self.unload()

    def _unsure(self) -> list[tuple[int, int, Saw]]:
        """Return what was seen and may still be refused: what was taken before the last batch is durable."""
        return [one for one in self._saw if one[0] >= self.engine.writer.turn - 1]

    def stop(self, error: Exception) -> None:
        """Remember what stops the whole segment, whatever its branches do with exceptions, and unload it."""
        if self.fatal is None:
            self.fatal = error
        self.unload()

    def evidence(
        self, effect: Effect, attempt: int, saw: Sight, value: bytes = b"null", why: str = "", visit: int | None = None
    ) -> None:
        """Put into the inbox what an attempt of ours saw after we lost the run; `visit` is the present one by default.

        What was refused together with it (a boundary, say) may have moved the state on: the attempt's own visit counts.
        """
        if effect.effect == "read":
            return  # it changes nothing, so nobody needs to know what came of it
        now = self.engine.clock.now()
        visit = self.state.visit if visit is None else visit
        message = messages.Evidence(
            at=now,
            by=self.engine.worker,
            visit=visit,
            step=effect.step,
            path=effect.path,
            attempt=attempt,
            saw=saw,
            value=msgspec.Raw(value),
            why=why,
            key=effect.key,
        )
        name = f"evidence:{visit}:{effect.step}:{effect.key}:{attempt}:{saw}"
        self.engine.post(Post(self.run_id, name, messages.encode(message), now))

    # ------------------------------------------------------------ values

    def stow(self, data: bytes) -> tuple[msgspec.Raw, dict[str, bytes] | None]:
        """Return how a value stands in an entry: in place, or by reference with its chunk when it is large."""
        if len(data) <= BY_REFERENCE_BYTES and not data.startswith(_REFERENCE):
            return msgspec.Raw(data), None
        digest = digest_of(data)
        self._stowed[digest] = data  # readable here before it is readable in the store
        return msgspec.Raw(_REFERENCE + digest.encode() + b'"}'), {digest: data}

    async def fetch(self, raw: msgspec.Raw | None) -> bytes:
        """Return the bytes of a value that `stow` made, verified. Damage stops the segment; it never means "again"."""
        data = b"null" if raw is None else bytes(raw)
        if not data.startswith(_REFERENCE):
            return data
        digest = data[len(_REFERENCE) : -2].decode()
        try:
            return self._stowed.get(digest) or await self.engine.verified_chunk(self.run_id, digest)
        except Damaged as error:
            self.stop(error)
            raise

    # ------------------------------------------------------------ moving and resting

    def enter_idle(self) -> None:
        """Count one branch as unable to move."""
        self.busy -= 1
        if self.busy <= 0:
            self.check_soon()
        else:
            self._alarm.look_soon()

    def leave_idle(self) -> None:
        """Count one branch as moving again."""
        self.busy += 1

    def flying(self, change: int) -> None:
        """Count calls that are in flight."""
        self.inflight += change
        self.engine.writer.tools_in_flight += change
        if self.inflight == 0 and self.busy <= 0:
            self.check_soon()

    def check_soon(self) -> None:
        """Look whether the segment can still move, once all that was woken has had its turns."""
        if self._checking == 0:
            self._checking = TURNS
            asyncio.get_running_loop().call_soon(self._check)

    def _check(self) -> None:
        """Unload the segment when nothing of it can move.

        A branch that joins arms looks as if it rested until the end of the last arm has reached it, which takes some
        turns of the loop; so the answer must be the same for a few turns, and there must be something that is waited
        for.
        """
        self._checking -= 1
        if self.busy > 0 or self.inflight > 0 or self.settlers or self._waking or self.unloading:
            self._checking = 0
            return
        if self.segment_task is None:
            self._checking = 0
            return
        if self._checking > 0:
            asyncio.get_running_loop().call_soon(self._check)
            return
        if self.barriered and self.unclaimed:
            self.engine.diverged_waiting(self)
        elif self.waits:
            self._unload_or_linger()

    def _unload_or_linger(self) -> None:
        if self._fresh:
            self.changed()  # what was recorded since they last looked (money set free, say) may be what they wait for
            return
        due = self.due()
        now = self.engine.clock.now()
        if due is not None and due - now <= self.engine.linger_ms and not self.closing:
            if self._timer is not None:
                self._timer.cancel()  # it may stand for something later than what is due first now
            self._timer = asyncio.get_running_loop().call_later(max(0, due - now) / 1000 + 0.001, self._ring)
            return
        self.unload()

    def _ring(self) -> None:
        self._timer = None
        self.changed()

    def unload(self) -> None:
        """Cancel the segment's task. What is recorded stays; the segment is entered again when something moves."""
        if not self.unloading:
            self.resting = self.rest()  # now, while every waiting call is still there to say what for
            self._rested_at = self._changes
        self.unloading = True
        self._alarm.stop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.segment_task is not None:
            self.segment_task.cancel()
        elif self.attached:
            self.changed()  # its host is no task of ours: it is told why when it wakes

    @property
    def overtaken(self) -> bool:
        """Whether something changed since the segment began to unload: what it rested on may have come meanwhile."""
        return self._changes != self._rested_at

    def changed(self) -> None:
        """Let every parked call look again at what it waits for."""
        self._fresh = False
        self._changes += 1
        for future in self._parked:
            if not future.done():
                future.set_result(None)
                self._waking.add(future)  # until it has run, its branch only looks as if it rested
        self._parked.clear()
        self.engine.settle_due(self)

    async def nap(self) -> None:
        """Wait until something changed."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._parked.add(future)
        try:
            if not self.unloading:
                await future
        finally:
            self._parked.discard(future)
            self._waking.discard(future)
        if self.unloading:  # nothing would wake it any more
            raise self.dropped or self.fatal or Unloading if self.attached else Unloading

    def due(self) -> int | None:
        """Return when something of this run can move by itself, in milliseconds since 1970."""
        deadline, moves = self.about.deadline, self.moves()
        if deadline is None or self.late or self.state.ended or self.attached:
            return moves
        return deadline if moves is None else min(deadline, moves)

    def moves(self) -> int | None:
        """Return when a call or an effect can move by itself.

        A moment that has passed counts only where a call waits for it now. What nobody waits for any more (a sleep that
        was given up, the wait of a run that stops) moves nothing: it would be looked at again and again, and no more.
        """
        world = self.world()
        moments: list[int] = []
        timed = [*self.polls.items(), *approvals.lapses(self.waits)]
        for id_, step in self.state.steps.items():
            if type(step) is Effect:
                moments.extend(self.effect_due(step, world))
            elif type(step) is Read and step.status == "retrying" and step.retry_at is not None:
                timed.append((id_, step.retry_at))
            elif (type(step) is Sleep and not step.ended) or (
                type(step) is Receive and not step.taken and step.until is not None
            ):
                timed.append((id_, cast("int", step.until)))
        moments.extend(at for id_, at in timed if at > world.now or id_ in self.waits)
        return min(moments, default=None)

    def effect_due(self, effect: Effect, world: World) -> list[int]:
        """Return the moments, one or none, at which an effect can move by itself."""
        if effect.outcome == "failed" and not effect.final and effect.retry_at is not None:
            # Once its time has come it may wait for something else (a switch, a person); then time does not move it:
            # it would be looked at again and again without a pause.
            waiting = self.waits.get(effect.step)
            for_time = waiting is not None and waiting.reason == "time"
            return [effect.retry_at] if for_time or effect.retry_at > world.now else []
        if effect.outcome != "unknown" and effect.verify_from is None:
            return []
        move = move_for(effect, world)
        held = ruling.held_until(self, effect, world.now) if isinstance(move, Resend) else None
        if held is not None:
            return held
        if not may_act(effect, move):
            until = getattr(move, "until", None)
            return [] if until is None else [until]
        # What may be done now is due now, unless a switch refused it. It may have become so a moment after the last
        # look: a run that came to rest without it would never move again.
        return [] if self.polls.get(effect.step, world.now) > world.now else [world.now]

    def rest(self) -> Waiting:
        """Return what the whole run waits for: what needs a person first, then what comes soonest."""
        self.rests_on = tuple(self.stopped.values())
        world = self.world()
        unknown = [(effect, move_for(effect, world)) for effect in self.state.unsettled()]
        waits = list(self.waits.values())
        due = self.due()
        until = None if due is None else self.engine.moment(due)
        if unknown:
            resting = rest_on(self.run_id, unknown)
            if resting.ask:  # a person helps before the deadline does
                moves = self.moves()
                return Waiting("unknown", None if moves is None else self.engine.moment(moves), resting.ask)
            held = ruling.resting(self)
            if held is not None:
                return Waiting(held.reason, until, held.ask)
            if not waits:
                return Waiting("unknown", until)
        asking = [waiting for waiting in waits if waiting.ask]
        if asking:
            return Waiting(asking[0].reason, until, "; ".join(dict.fromkeys(waiting.ask for waiting in asking)))
        if waits:
            return Waiting(waits[0].reason, until)
        return Waiting("time", until)

    async def parked(self, step: str, waiting: Waiting, idle: Callable[[], Awaitable[None]]) -> None:
        """Wait on behalf of a step, and let `rest` know what for."""
        self.waits[step] = waiting
        try:
            await idle()
        finally:
            self.waits.pop(step, None)
