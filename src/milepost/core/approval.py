"""A person's verdict on one exact effect, used once.

An approval is bound to the run, the step, the tool's version and the digest of its arguments: its id is made from them,
so an approval for other bytes is another approval. Absence is denial.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Literal


@dataclass(slots=True)
class Approval:
    """One question to a person, and the answer."""

    id: str
    step: str
    tool_version: str
    digest: str
    asked_at: int
    verdict: Literal["asked", "approved", "denied", "used"] = "asked"
    by: str = ""
    why: str = ""

    def permits(self, tool_version: str, digest: str) -> bool:
        """Say whether this approval lets exactly this effect start now."""
        return self.verdict == "approved" and (self.tool_version, self.digest) == (tool_version, digest)


def approval_id(run_id: str, visit: int, step: str, tool: str, version: str, digest: str) -> str:
    """Return the id of the approval for exactly these bytes at exactly this place."""
    bound = "\0".join((run_id, str(visit), step, tool, version, digest))
    return "ap-" + sha256(bound.encode()).hexdigest()[:16]
