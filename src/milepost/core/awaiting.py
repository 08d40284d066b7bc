"""What a segment asks of time, chance, signals and children, and how a run rests: rules of `state.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milepost.core.steps import ChildStart, ChildWait, Receive, Sleep, Value
from milepost.errors import Damaged

if TYPE_CHECKING:
    from milepost.core import entries as e
    from milepost.core.state import RunState


def value(s: RunState, entry: e.ValueRecorded) -> None:
    """A recorded time, number or id."""
    s.steps[entry.step] = Value(entry.kind, entry.value)


def sleep(s: RunState, entry: e.SleepStarted) -> None:
    """A sleep began."""
    s.steps[entry.step] = Sleep(entry.until)


def slept(s: RunState, entry: e.SleepEnded) -> None:
    """A sleep ended."""
    sleep = s.steps.get(entry.step)
    if type(sleep) is not Sleep:
        raise Damaged(s.run, f"an entry ends sleep {entry.step}, which is not recorded")
    sleep.ended = True


def awaited(s: RunState, entry: e.SignalAwaited) -> None:
    """A signal is waited for."""
    s.steps[entry.step] = Receive(entry.name, entry.until)


def sent(s: RunState, entry: e.SignalSent) -> None:
    """A signal arrived."""
    s.signals.append(entry.signal)


def received(s: RunState, entry: e.SignalReceived) -> None:
    """A signal was taken, or its time ran out."""
    receive = s.steps.get(entry.step)
    if type(receive) is not Receive:
        raise Damaged(s.run, f"an entry ends wait {entry.step}, which is not recorded")
    receive.taken, receive.id, receive.value = True, entry.id, entry.value
    if entry.id is not None:
        taken = [i for i, signal in enumerate(s.signals) if (signal.name, signal.id) == (entry.name, entry.id)]
        if not taken:
            raise Damaged(s.run, f"an entry takes signal {entry.name} {entry.id}, which was never sent or is taken")
        del s.signals[taken[0]]


def child_started(s: RunState, entry: e.ChildStarted) -> None:
    """A child began."""
    s.steps[entry.step] = ChildStart(entry.child, entry.workflow, entry.digest)
    s.children[entry.child] = "running"


def child_ended(s: RunState, entry: e.ChildEnded) -> None:
    """A child ended."""
    s.children[entry.child] = entry.status
    s.child_results[entry.child] = entry


def child_awaited(s: RunState, entry: e.ChildAwaited) -> None:
    """A child's result is waited for."""
    s.steps[entry.step] = ChildWait(entry.child)


def parked(s: RunState, entry: e.RunParked) -> None:
    """A run rests, and nobody holds it."""
    if not s.ended and s.status != "blocked":
        s.status = "parked"
    s.waits_for, s.until, s.ask = entry.reason, entry.until, entry.ask
    s.short = s.short + 1 if entry.reason == "budget" else 0
