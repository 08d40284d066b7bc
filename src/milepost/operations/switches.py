"""Freeze, thaw and reset: what a person stops, for a tool, a workflow, a tenant or everything, and how it goes on.

Each is one transaction, with its entry in the store's own journal: who, when, why. What is frozen is looked at in the
transaction that writes `started`, so once `freeze` has returned, nothing under it starts. Whoever waits is made due in
the transaction of the thaw.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from milepost.core.chain import verify
from milepost.core.codec import decode
from milepost.core.store_entries import BreakerClosed, BreakerOpened, BreakerProbed, SwitchLifted, SwitchSet
from milepost.errors import NothingStopped, UnknownRun, UnknownScope
from milepost.stores.api import Lift, Switch, Throw, Thrown

if TYPE_CHECKING:
    from milepost.core.entries import Entry
    from milepost.stores.api import Store
    from milepost.stores.marks import Stop

EVERYTHING = "all"
SYSTEM = "system"
OF_SWITCHES = (SwitchSet, SwitchLifted, BreakerOpened, BreakerProbed, BreakerClosed)
KINDS = ("tool", "workflow", "tenant")
Write = Callable[[Any], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Standing:
    """A switch that stands, and how many runs that nobody holds wait for its scope."""

    switch: Switch
    waiting: int


def checked_scope(scope: str) -> str:
    """Return the scope. Raises UnknownScope for anything but `all`, `tool:NAME`, `workflow:NAME`, `tenant:NAME`."""
    kind, colon, name = scope.partition(":")
    if scope != EVERYTHING and not (colon and name and kind in KINDS):
        raise UnknownScope(scope)
    return scope


async def freeze(write: Write, scope: str, *, by: str, why: str, now: int) -> None:
    """Let nothing start under a scope. Freezing what is frozen keeps one switch, with the latest reason."""
    await write(Throw(now, holds=[Switch(checked_scope(scope), "freeze", why, by, now)]))


async def thaw(write: Write, scope: str, *, by: str, why: str, now: int, held: bool = False) -> Thrown:
    """Set a scope free: what a person froze, and a tool's breaker, which is reset.

    `held` also lifts what contradictions hold, on the word that somebody looked into them; without it they stand until
    each is resolved. Raises NothingStopped where nothing of that kind stands.
    """
    checked_scope(scope)
    kinds = ["freeze", *(["hold"] if held else []), *(["breaker"] if scope.startswith("tool:") else [])]
    thrown: Thrown = await write(Throw(now, lifts=[Lift(scope, why, by, kind) for kind in kinds]))
    if not thrown.lifted:
        raise NothingStopped(scope)
    return thrown


async def lift_stop(write: Write, stood: Stop | None, *, by: str, why: str, now: int) -> int:
    """Write down that a stop file stood and is lifted, and thaw everything; return how many freezes were lifted.

    The file itself is the caller's to remove, afterwards. Raises NothingStopped where neither stands.
    """
    stop = [] if stood is None else [Switch(EVERYTHING, "stop", stood.why, stood.by, stood.at)]
    lifts = [Lift(EVERYTHING, why, by, kind) for kind in ("stop", "freeze")]
    thrown: Thrown = await write(Throw(now, stop, lifts))
    if not thrown.lifted:
        raise NothingStopped(EVERYTHING)
    return thrown.lifted - len(stop)


async def standing(store: Store) -> list[Standing]:
    """Return all that is stopped now, the widest scope first."""
    waiting = await store.waiting()
    found = [Standing(switch, waiting.get(switch.scope, 0)) for switch in await store.switches()]
    return sorted(found, key=lambda one: (one.switch.scope != EVERYTHING, one.switch.scope, one.switch.kind))


async def history_of(store: Store) -> list[Entry]:
    """Return the entries of the store's own journal, verified, oldest first. Raises Damaged."""
    try:
        genesis, stored, head = await store.chain(SYSTEM)
    except UnknownRun:
        return []  # nothing was ever written there
    verify(SYSTEM, genesis, 1, ((one.seq, one.body, one.hash) for one in stored), head.hash)
    return [decode(one.plain) for one in stored]
