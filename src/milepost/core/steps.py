"""The recorded calls of a segment, as the state holds them: one record a step.

Effects are kept by the thousand and never in a cycle, so the collector of cycles need not follow them (`gc=False`).
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from milepost.core.outcome import Doubt, Outcome


class Effect(msgspec.Struct, gc=False):
    """A step that acts on the outside world, or a read that costs money."""

    step: str
    path: str
    tool: str
    version: str
    effect: str
    digest: str
    args: msgspec.Raw
    key: str
    once: str | None = None
    outcome: Outcome = "not_started"
    doubt: Doubt = msgspec.field(default_factory=Doubt)
    result: msgspec.Raw | None = None
    why: str = ""
    reason: str = ""
    final: bool = False
    retry_at: int | None = None
    by: str = ""
    external: str | None = None
    approval: str | None = None
    credentials: dict[str, str] = {}
    contradicted: bool = False
    verify_from: int | None = None

    @property
    def attempt(self) -> int:
        """The number of the latest attempt, 0 before the first."""
        return len(self.doubt.attempts)

    @property
    def open(self) -> bool:
        """Whether an attempt of it may still be changing the world."""
        return self.outcome in {"started", "unknown"}


class Read(msgspec.Struct, gc=False):
    """A free read: returned, failed, retrying or cancelled."""

    path: str
    tool: str
    digest: str
    status: str
    result: msgspec.Raw | None = None
    why: str = ""
    attempt: int = 0
    retry_at: int | None = None
    by: str = ""


@dataclass(slots=True)
class Value:
    """A recorded time, random number or id."""

    kind: str
    value: msgspec.Raw


@dataclass(slots=True)
class Sleep:
    """A sleep of a branch."""

    until: int
    ended: bool = False


@dataclass(slots=True)
class Receive:
    """A branch's wait for a signal; `taken` once it has one, or its time ran out."""

    name: str
    until: int | None
    taken: bool = False
    id: str | None = None
    value: msgspec.Raw | None = None


@dataclass(slots=True)
class ChildStart:
    """A child run that a branch started."""

    child: str
    workflow: str
    digest: str


@dataclass(slots=True)
class ChildWait:
    """A branch's wait for a child run."""

    child: str


Step = Effect | Read | Value | Sleep | Receive | ChildStart | ChildWait
