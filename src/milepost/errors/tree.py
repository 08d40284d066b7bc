"""The root of the tree, and what waiting means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from datetime import datetime

Reason = Literal["time", "signal", "child", "approval", "authority", "budget", "breaker", "switch", "unknown", "person"]


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a run, or one call of it, waits for.

    `until` is when it looks again by itself (None: only an event helps); `ask` says what a person may type.
    """

    reason: Reason
    until: datetime | None = None
    ask: str = ""


class MilepostError(Exception):
    """The root of the tree. `code` is a stable slug."""

    code = "error"
