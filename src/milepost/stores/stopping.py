"""What is stopped, and who waits for it: switches, breakers and waits, as one transaction sees and changes them.

Everything here happens inside the transaction that it governs: a `started` and the look at the switches, an outcome and
the count of its breaker, a run that parks and the note of what it waits for, a switch that is lifted and the runs that
it makes due. So a run can rest on a switch without looking again and again: either the switch still stands when the run
is noted, or the run is due at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from milepost.core import append as rules
from milepost.core import breaker
from milepost.core.codec import encode
from milepost.core.store_entries import SwitchLifted, SwitchSet
from milepost.stores.api import Switch, SwitchedOff, Throw, Thrown
from milepost.stores.encryption import shown
from milepost.stores.facts import Facts
from milepost.stores.waits import once_of_scope, once_scope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from milepost.stores.api import Append, Lift, OnceSettled
    from milepost.stores.encryption import Cipher
    from milepost.stores.statements import Statements
    from milepost.stores.waits import Awaited

TOOL = "tool:"
SYSTEM = "system"
STAGGER_MS = 5_000  # who waits behind the next probe looks this much later: usually that has told by then
SPREAD_MS = 50  # between two runs that go on when a provider answers again
SPREAD_MOST_MS = 60_000
PERSONS_FIRST = ("stop", "freeze", "hold", "breaker")


def switch_of(row: breaker.Row) -> Switch:
    """Return an open breaker as the switch that it is."""
    why = f"{row.failures} failures in a row, the last: {row.why}"
    return Switch(f"{TOOL}{row.tool}", "breaker", why, row.probe, row.at, "", row.until)


def read(rows: Sequence[Any], cipher: Cipher | None) -> tuple[list[Switch], dict[str, breaker.Row]]:
    """Return the switches, and the breakers by tool, from the rows of `stops`: each in the order of its table."""
    switches, breakers = [], {}
    for is_switch, name, kind, about, told, by, at, failures, trips, until, wait in rows:
        why = shown(cipher, SYSTEM, f"switch {name if is_switch else TOOL + name}", told) or ""
        if is_switch:
            switches.append(Switch(name, kind, why, by, at, about))
        else:
            breakers[name] = breaker.Row(name, kind, failures, trips, until, wait, about, why, at)
    return switches, breakers


def standing(rows: Sequence[Any], cipher: Cipher | None) -> list[Switch]:
    """Return what is stopped, from the rows of `stops`: switches by scope, then the breakers that hold calls."""
    found, breakers = read(rows, cipher)
    return [*found, *(switch_of(row) for row in breakers.values() if row.state != "closed")]


class Stops:
    """Looks at and changes what is stopped. `enter` writes an entry of the store's own journal: its bytes, and when."""

    def __init__(
        self, sql: Statements, enter: Callable[[bytes, int], None], cipher: Cipher | None, facts: Facts
    ) -> None:
        self._sql = sql
        self._enter = enter
        self._cipher = cipher
        self._facts = facts

    def forget(self) -> None:
        """Read again what stands: a savepoint was taken back."""
        self._facts.forget_stops()

    @property
    def _breakers(self) -> dict[str, breaker.Row]:
        return self._facts.breakers

    @property
    def by_scope(self) -> dict[str, list[Switch]]:
        """What is stopped, as this transaction sees it."""
        found = self._facts.by_scope
        if found is None:
            switches, breakers = read(self._sql.run("stops"), self._cipher)
            found = {}
            for switch in switches:
                found.setdefault(switch.scope, []).append(switch)
            for row in breakers.values():
                if row.state != "closed":
                    found.setdefault(f"{TOOL}{row.tool}", []).append(switch_of(row))
            self._facts.by_scope, self._facts.breakers = found, breakers
        return found

    # ------------------------------------------------------------ an append

    def concern(self, append: Append) -> bool:
        """Say whether an append may be refused, or change what is stopped: then it is performed by itself."""
        if append.holds or append.lifts:
            return True
        if append.scopes and not self.by_scope.keys().isdisjoint(append.scopes):
            return True
        if not append.tried:
            return False
        _ = self.by_scope
        if breaker.Failed in map(type, append.tried):
            return True
        known = self._breakers
        return bool(known) and any(event.tool in known for event in append.tried)

    def check(self, append: Append) -> None:
        """Raise SwitchedOff where something stands against an append, unless it is the probe of an open breaker."""
        scope = rules.switched_off(append.scopes, self.by_scope)
        if scope is None:
            return
        probing = None
        for name in append.scopes:
            for switch in sorted(self.by_scope.get(name, ()), key=lambda one: PERSONS_FIRST.index(one.kind)):
                probe = append.probe
                if switch.kind != "breaker" or probe is None:
                    raise SwitchedOff(switch)
                if breaker.admits(self._breakers[probe.tool], append.at) != "probe":
                    raise SwitchedOff(switch)
                probing = probe
        if probing is not None:
            self._change(probing, append.at)

    def apply(self, append: Append) -> None:
        """Throw the switches that an append throws, and count what its attempts say."""
        self._throw(append.holds, append.lifts, append.at)
        for event in append.tried:
            _ = self.by_scope
            self._change(event, append.at)

    def _change(self, event: breaker.Event, now: int) -> None:
        before = self._breakers.get(event.tool) or breaker.Row(event.tool)
        row = breaker.after(before, event, now)
        if row == before:
            return
        if row == breaker.Row(event.tool):
            self._sql.do("drop_breaker", event.tool)
        else:
            why = self._hidden(f"{TOOL}{row.tool}", row.why)
            columns = (row.tool, row.state, row.failures, row.trips, row.until, row.wait, row.probe, why, row.at)
            self._sql.do("put_breaker", *columns)
        entry = breaker.said(before, row, event, now)
        self.forget()
        if entry is None:
            return
        self._enter(encode(entry), now)
        scope = f"{TOOL}{event.tool}"
        if row.state == "closed":
            self._wake(scope, now, SPREAD_MS)
        elif row.state == "open":
            self._line_up(scope, row.until, now)

    def _hidden(self, scope: str, why: str) -> str:
        return why if self._cipher is None else self._cipher.seal_text(SYSTEM, f"switch {scope}", why)

    # ------------------------------------------------------------ switches

    def throw(self, throw: Throw) -> Thrown:
        """Throw switches; say what changed."""
        return self._throw(throw.holds, throw.lifts, throw.at)

    def _throw(self, holds: Sequence[Switch], lifts: Sequence[Lift], at: int) -> Thrown:
        for hold in holds:
            columns = (hold.scope, hold.kind, hold.about, self._hidden(hold.scope, hold.why), hold.by, hold.at)
            self._sql.do("set_switch", *columns)
            entry = SwitchSet(at=hold.at, scope=hold.scope, kind=hold.kind, why=hold.why, by=hold.by, about=hold.about)
            self._enter(encode(entry), hold.at)
        if holds:
            self.forget()
        lifted = woken = 0
        for lift in lifts:
            found = self._lift(lift, at)
            if found:
                self.forget()
                lifted += found
                woken += self._wake(lift.scope, at, 0)
        return Thrown(len(holds), lifted, woken)

    def _lift(self, lift: Lift, at: int) -> int:
        if lift.kind == "breaker":
            tool = lift.scope.removeprefix(TOOL)
            _ = self.by_scope
            stood = tool in self._breakers
            self._change(breaker.Reset(tool, lift.by, lift.why), at)
            return int(stood)
        gone = self._sql.run("lift_switch", lift.scope, lift.kind, lift.about)
        for (about,) in gone:
            entry = SwitchLifted(
                at=at, scope=lift.scope, why=lift.why, by=lift.by, kind=lift.kind, about=cast("str", about)
            )
            self._enter(encode(entry), at)
        return len(gone)

    # ------------------------------------------------------------ who waits

    def wait(self, run: int, waits: Sequence[Awaited], now: int, otherwise: int | None) -> None:
        """Note what a run that is released rests on; it is due at once where that does not stand any more.

        `otherwise` is when it is due for other reasons (milliseconds since 1970).
        """
        for awaited in waits:
            row = (awaited.scope, run, now, awaited.spent, int(awaited.probes), otherwise)
            self._sql.do("wait_for", *row)
            until = self._stands_until(awaited)
            if until is not None:
                behind = self._waiting(awaited.scope, probes=True).index(run) if until > now else 0
                self._sql.many("due_by_then", [(max(now, until) + behind * STAGGER_MS, run)])

    def _stands_until(self, awaited: Awaited) -> int | None:
        """Return when a run that waits may look: None where only an event helps, 0 where nothing stands any more."""
        identity = once_of_scope(awaited.scope)
        if identity is not None:
            found = self._sql.run("once_of", *identity)
            return None if found and found[0][3] != "confirmed" else 0
        standing = self.by_scope.get(awaited.scope, [])
        if not standing:
            return 0
        breakers_only = all(switch.kind == "breaker" for switch in standing)
        return standing[0].until if breakers_only and awaited.probes else None

    def settled(self, identities: Sequence[tuple[int, OnceSettled]]) -> None:
        """Make those due who wait for business identities, each with the moment in which it was settled or given up."""
        if identities and self._sql.run("anybody_waits"):
            for at, one in identities:
                self._wake(once_scope(one.tenant, one.tool, one.value), at, 0)

    def _waiting(self, scope: str, *, probes: bool) -> list[int]:
        return [cast("int", run) for (run,) in self._sql.run("who_waits", scope, int(probes))]

    def _wake(self, scope: str, now: int, apart_ms: int) -> int:
        """Make those due who wait for a scope, unless something else stops it; a little apart from each other."""
        if scope in self.by_scope:
            return 0
        runs = self._waiting(scope, probes=False)
        apart = min(apart_ms, SPREAD_MOST_MS // max(1, len(runs)))
        moments = [(now + place * apart, run) for place, run in enumerate(runs)]
        if moments:
            self._sql.many("due_by_then", moments)
        return len(runs)

    def _line_up(self, scope: str, until: int, now: int) -> None:
        """Let one of those who wait make the next probe, and the others look later."""
        runs = self._waiting(scope, probes=True)
        moments = [(until + place * STAGGER_MS, run, scope, now) for place, run in enumerate(runs)]
        if moments:
            self._sql.many("due_only_then", moments)
