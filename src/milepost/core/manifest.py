"""Versions and fingerprints of what a run was made with, and whether today's code may go on with it.

The declared version decides; the fingerprint only warns. There is no silent rule on source text.
"""

from __future__ import annotations

import msgspec


class Manifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """Workflow, segments, tools and prompts by name, each as `version` or `version+fingerprint`."""

    workflow: str = ""
    version: str = ""
    fingerprint: str = ""
    tools: dict[str, tuple[str, str]] = {}
    prompts: dict[str, str] = {}
    segments: dict[str, str] = {}


class Compatibility(msgspec.Struct, frozen=True):
    """The verdict: `blocks` names what forbids going on, `warns` what merely differs."""

    blocks: tuple[str, ...] = ()
    warns: tuple[str, ...] = ()


def compare(recorded: Manifest, today: Manifest, compatible_with: frozenset[str]) -> Compatibility:
    """Say whether code with manifest `today` may go on with a run that was recorded under `recorded`."""
    blocks: list[str] = []
    warns: list[str] = []
    if recorded.workflow != today.workflow:
        blocks.append(f"the run belongs to workflow {recorded.workflow!r}, the code is {today.workflow!r}")
    elif recorded.version != today.version and recorded.version not in compatible_with:
        blocks.append(
            f"the run was made with version {recorded.version!r} of {recorded.workflow!r}, the code has "
            f"{today.version!r}: declare compatible_with=[{recorded.version!r}] or deploy the old version"
        )
    elif recorded.version == today.version and recorded.fingerprint != today.fingerprint:
        warns.append(f"the code of {recorded.workflow!r} changed under version {recorded.version!r}")
    for name, (version, _) in recorded.tools.items():
        found = today.tools.get(name)
        if found is None:
            warns.append(f"tool {name!r} is no longer listed")
        elif found[0] != version:
            warns.append(f"tool {name!r} was version {version!r}, is now {found[0]!r}")
    return Compatibility(tuple(blocks), tuple(warns))
