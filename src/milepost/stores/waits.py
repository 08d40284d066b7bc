"""What a run that parks tells its store of what it waits for, so that whoever ends the wait makes it due."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Awaited:
    """What a run that parks waits for: a scope that is stopped, or an identity (`once_scope`) that is not settled.

    `probes` says that it may pass an open breaker as its probe, and is to look when that is due: the first among those
    who have made the fewest attempts, since a probe that fails `spent` one.
    """

    scope: str
    probes: bool = False
    spent: int = 0


def once_scope(tenant: str, tool: str, value: str) -> str:
    """Return the name under which runs wait for a business identity."""
    return f"once\x1f{tenant}\x1f{tool}\x1f{value}"


def once_of_scope(scope: str) -> tuple[str, str, str] | None:
    """Return tenant, tool and value of a scope that `once_scope` named, None for any other."""
    kind, *identity = scope.split("\x1f", 3)
    return (identity[0], identity[1], identity[2]) if kind == "once" and identity else None
