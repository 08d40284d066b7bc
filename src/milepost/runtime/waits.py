"""What a call does while something stands against it: a switch, a hold, an open breaker, another run's identity.

It rests. The step is on record as not started, nothing of its budget is touched, and the run that rests is unloaded:
what it waits for is noted in the transaction that parks it, so that whoever changes that makes it due in theirs. A run
that is still in memory, because something else of it goes on, is told by its worker's look at the store. Only in case
all of that fails a run also looks again by itself, much later.

Free reads have no transaction to be refused in. They look at what was last read from the store, half a second ago at
most; the probe of an open breaker is leased in the store for them too.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from milepost.core.breaker import Answered, Failed, Probing, Vacated, may_probe
from milepost.core.lease import MARGIN_MS
from milepost.definitions.http import provider_failed
from milepost.errors import NotSent, Waiting
from milepost.runtime import gates
from milepost.stores.api import Switch, SwitchedOff
from milepost.stores.waits import Awaited

if TYPE_CHECKING:
    from milepost.core.breaker import Event
    from milepost.definitions.tools import Tool
    from milepost.runtime.branch import Branch, ToolStep
    from milepost.runtime.session import Session
    from milepost.stores.api import Store

LATER_MS = 600_000  # when a run looks again by itself, should nobody have told it
HALT_POLL_MS = 2_000  # beyond what a segment lingers for, so that a run which polls is unloaded
FRESH_S = 0.5
HALT = "halt"


class Stops:
    """What is stopped, as it was last read: for free reads, and for telling runs in memory."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._found: list[Switch] = []
        self._read_at = float("-inf")

    def now(self) -> list[Switch]:
        """Return the switches that stand, read half a second ago at most."""
        if time.monotonic() - self._read_at > FRESH_S:
            self.again()
        return self._found

    def again(self) -> list[Switch]:
        """Read them now."""
        self._found = self._store.switches_now()
        self._read_at = time.monotonic()
        return self._found


# ------------------------------------------------------------ holds of our own


def hold_about(run_id: str, path: str) -> str:
    """Return what tells the hold of one contradiction from that of another."""
    return f"{run_id} {path}"


def hold(run_id: str, path: str, tool: str, why: str, now: int) -> Switch:
    """Return the hold that a contradiction puts on its tool: resolving just this one lifts it."""
    return Switch(f"tool:{tool}", "hold", why, run_id, now, hold_about(run_id, path))


# ------------------------------------------------------------ what an attempt says of its provider


def attempt_name(session: Session, step: str, number: int) -> str:
    """Return how an attempt is named where it may be a probe."""
    return f"{session.run_id} {step} {number}"


def probe(session: Session, tool: Tool[..., Any], step: str, number: int) -> Probing | None:
    """Return the leave to pass an open breaker as its one probe; None for a class that must not be made on trial.

    None as well where none was open at the last look: what has opened since then is not due for a probe yet.
    """
    stopped = session.engine.stops.now()
    if not stopped or not may_probe(tool.effect):
        return None
    scope = f"tool:{tool.name}"
    for switch in stopped:
        if switch.scope == scope and switch.kind == "breaker":
            until = session.engine.clock.now() + tool.timeout_ms + MARGIN_MS
            return Probing(tool.name, attempt_name(session, step, number), until)
    return None


def opened_since(session: Session, tool: Tool[..., Any], switch: Switch) -> bool:
    """Say whether a breaker refused a call only because it was not known, and lets a probe pass: now it is known."""
    due = switch.kind == "breaker" and switch.until is not None and switch.until <= session.engine.clock.now()
    if due and may_probe(tool.effect):
        session.engine.stops.again()
        return True
    return False


def answered(session: Session, tool: Tool[..., Any], step: str, number: int) -> tuple[Event, ...]:
    """Return that the provider answered."""
    if tool.effect == "transactional":
        return ()
    return (Answered(tool.name, attempt_name(session, step, number)),)


def says_nothing(session: Session, tool: Tool[..., Any], step: str, number: int) -> tuple[Event, ...]:
    """Return that an attempt ended without saying anything about the provider: cancelled, refused, or never sent."""
    return (Vacated(tool.name, attempt_name(session, step, number)),)


def raised(session: Session, tool: Tool[..., Any], step: str, number: int, error: Exception) -> tuple[Event, ...]:
    """Return what an exception says: that the provider failed, or nothing of it."""
    settings = session.engine.breaker
    if settings is None or isinstance(error, gates.CredentialChanged) or not provider_failed(error):
        return says_nothing(session, tool, step, number)
    floor = gates.asked_delay(error) if isinstance(error, NotSent) else 0
    why = session.engine.why(error)
    chance = session.engine.clock.chance()
    return (Failed(tool.name, attempt_name(session, step, number), why, settings, floor, chance),)


# ------------------------------------------------------------ resting


def waiting_for(session: Session, tool: Tool[..., Any], switch: Switch) -> Waiting:
    """Return what a call waits for where a switch stands, and what a person may type."""
    thaw = f"milepost thaw {switch.scope} --why …"
    match switch.kind:
        case "hold":
            return Waiting("person", None, f"{switch.scope}: {switch.why}")
        case "breaker" if may_probe(tool.effect):
            until = None if switch.until is None else session.engine.moment(switch.until)
            return Waiting("breaker", until)
        case "breaker":
            return Waiting("breaker", None, f"{thaw} ({switch.why})")
        case _:
            return Waiting("switch", None, f"{thaw} ({switch.why})")


def later(session: Session, tool: Tool[..., Any], step: str, switch: Switch) -> int:
    """Note what a step rests on; return when it looks by itself at the latest."""
    probes = switch.kind == "breaker" and may_probe(tool.effect)
    due = session.engine.clock.now() + LATER_MS
    session.polls[step] = due
    session.stopped[step] = Awaited(switch.scope, probes, getattr(session.state.steps.get(step), "attempt", 0))
    return due


def no_more(session: Session, step: str) -> None:
    """Forget what a step rested on."""
    session.polls.pop(step, None)
    session.stopped.pop(step, None)


def resting_on(session: Session) -> tuple[Awaited, ...]:
    """Return what a run that parks now waits for."""
    return session.rests_on or tuple(session.stopped.values())


async def wait_switch(branch: Branch, step: ToolStep, switch: Switch) -> None:
    """Rest while a switch stands."""
    session = branch.session
    due = later(session, step.tool, step.id, switch)
    await _rest(branch, step, waiting_for(session, step.tool, switch), due)


async def wait_once(branch: Branch, step: ToolStep, scope: str) -> None:
    """Rest until whoever claimed an identity first has an outcome, or gives it up."""
    session = branch.session
    due = session.polls[step.id] = session.engine.clock.now() + LATER_MS
    session.stopped[step.id] = Awaited(scope)
    await _rest(branch, step, Waiting("unknown"), due)


async def wait_halt(branch: Branch, step: ToolStep) -> None:
    """Rest while the stop file stands."""
    session = branch.session
    due = session.polls[step.id] = session.engine.clock.now() + HALT_POLL_MS
    session.stopped[step.id] = Awaited(HALT)
    await _rest(branch, step, Waiting("switch", None, "milepost stop --lift --why …"), due)


def halted(session: Session, step: str) -> bool:
    """Say whether the stop file stands against settling an effect, which would send something; then note that."""
    if session.engine.halted:
        session.polls[step] = session.engine.clock.now() + HALT_POLL_MS
        session.stopped[step] = Awaited(HALT)
        return True
    if step in session.stopped and session.stopped[step].scope == HALT:
        no_more(session, step)
    return False


async def _rest(branch: Branch, step: ToolStep, waiting: Waiting, due: int) -> None:
    session = branch.session
    awaited = session.stopped[step.id]
    try:
        while session.engine.clock.now() < due:
            # Noted anew each time: `look` forgot it where nothing stood, and something may stand again by now.
            session.polls[step.id], session.stopped[step.id] = due, awaited
            await session.parked(step.id, waiting, branch.idle)
            if not await _stands(session, awaited):
                return
    finally:
        no_more(session, step.id)


async def _stands(session: Session, awaited: Awaited) -> bool:
    """Say whether what a step rests on still stands, as far as can be seen from outside a transaction."""
    engine = session.engine
    if awaited.scope == HALT:
        return engine.halted
    if awaited.scope.startswith("once\x1f"):
        _, tenant, tool, value = awaited.scope.split("\x1f", 3)
        row = await engine.store.once(tenant, tool, value)
        return row is not None and row.outcome != "confirmed"
    now = engine.clock.now()
    for switch in engine.stops.now():
        open_ = switch.kind == "breaker" and awaited.probes and switch.until is not None and now >= switch.until
        if switch.scope == awaited.scope and not open_:
            return True
    return False


async def look(session: Session) -> None:
    """Let the calls of a run in memory go on that rested on what does not stand any more."""
    free = [step for step, awaited in list(session.stopped.items()) if not await _stands(session, awaited)]
    for step in free:
        no_more(session, step)
    if free:
        session.changed()


# ------------------------------------------------------------ free reads


async def before_read(branch: Branch, step: ToolStep, number: int) -> None:
    """Wait until a free read may be called: nothing stands against it, or it is the probe of its breaker."""
    session, engine = branch.session, branch.session.engine
    while True:
        if engine.halted:
            await wait_halt(branch, step)
            continue
        found = engine.stops.now()
        if not found:
            return
        scopes = gates.scopes(session, step.tool)
        against = [switch for switch in found if switch.scope in scopes]
        if not against:
            return
        switch = against[0]
        if all(one.kind == "breaker" for one in against):
            try:
                await session.durable(scopes=scopes, probe=probe(session, step.tool, step.id, number))
            except SwitchedOff as refusal:
                switch = refusal.switch
                engine.stops.again()
            else:
                return
        await wait_switch(branch, step, switch)
