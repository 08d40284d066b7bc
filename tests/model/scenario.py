"""What is explored: one tool, what may go wrong, and for how long."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.model.places import TICK


@dataclass(frozen=True)
class Scenario:
    """One effect class in one small world. `faults` says how often each thing may go wrong, or a person may act."""

    name: str
    tool: dict[str, Any]
    faults: dict[str, int]
    ticks: int
    reconciles: bool = False
    runs: int = 1
    lease_ms: int = 2 * TICK
    most: int = 400_000
    tags: frozenset[str] = field(default_factory=frozenset)
