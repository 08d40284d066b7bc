"""What a server says of its own tools may only tighten what was declared of them.

Hints come from whoever wrote the server, and nobody checks them. So a hint never makes a class looser: a tool for which
nothing is declared is irreversible, however harmless it calls itself, and a hint that is missing adds nothing to that.
Where a hint contradicts a declaration, the server knows of a danger that the declaration does not, and it is believed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcp_types import ToolAnnotations

    from milepost.definitions.tools import Effect


def tightened(declared: Effect | None, hints: ToolAnnotations | None) -> tuple[Effect, str]:
    """Return the class that holds, and why it is another than the declared one (empty where it is not)."""
    if declared is None:
        return "irreversible", ""
    if hints is not None:
        if declared == "read" and hints.read_only_hint is False:
            return "irreversible", "it is declared a read, and its server says that it is not read-only"
        if declared == "absolute" and hints.idempotent_hint is False:
            return "irreversible", "it is declared absolute, and its server says that it is not idempotent"
    return declared, ""
