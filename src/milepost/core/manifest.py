"""Versions and fingerprints of what a run was made with, and whether today's code may go on with it.

A manifest names the parts of a control contract: the workflow, its segments and the schemas of their states, its tools,
prompts, models and policy. Each has a version, a fingerprint, or both. Two rules, and no silent rule on source text:

  a changed *version* decides    the run goes on only where that is declared: by the workflow (`compatible_with=`, or a
                                 migration), or by the tool (`compatible_with=`)
  a changed *fingerprint* warns  with one exception: inside a half-done segment, the changed segment blocks. Its
                                 recorded steps answer by place, and nobody has said that the places are the same

`compare` is pure and total: any two manifests have exactly one verdict. Where several things differ, the gravest wins;
what a workflow declares about an older version of itself covers the parts that changed with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from milepost.core.steps import Receive

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from milepost.core.state import RunState

Verdict = Literal["equal", "warns", "declared", "migrates", "changed", "blocks"]
Part = tuple[str, str]


class Manifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a checkpoint was made with. Tools and prompts are `(version, fingerprint)` by name.

    `segments` are fingerprints of code, `states` of the schemas that segments read; `models` name what answers in which
    role; `policy` is the version of the policy that was in force.
    """

    workflow: str = ""
    version: str = ""
    fingerprint: str = ""
    tools: dict[str, Part] = {}
    prompts: dict[str, Part | str] = {}  # a bare fingerprint is how they stood before they had versions
    segments: dict[str, str] = {}
    states: dict[str, str] = {}
    models: dict[str, str] = {}
    policy: str = ""


class Promises(msgspec.Struct, frozen=True):
    """What today's code says about older versions of itself.

    `migrations` are the versions through which each older one is led, beginning with itself, ending with today's;
    `tools` the older versions that each tool may stand in for.
    """

    compatible_with: frozenset[str] = frozenset()
    migrations: dict[str, tuple[str, ...]] = {}
    tools: dict[str, frozenset[str]] = {}


class Compatibility(msgspec.Struct, frozen=True):
    """The verdict on one run. `blocks` forbids going on; `changed` forbids it until a person resumes explicitly.

    `migrates` are the versions that a migration leads through, `warns` what merely differs.
    """

    blocks: tuple[str, ...] = ()
    warns: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    migrates: tuple[str, ...] = ()
    declared: bool = False

    @property
    def verdict(self) -> Verdict:
        """The one word: the gravest of what was found."""
        if self.blocks:
            return "blocks"
        if self.changed:
            return "changed"
        if self.migrates:
            return "migrates"
        if self.declared:
            return "declared"
        return "warns" if self.warns else "equal"


NO_PROMISES = Promises()
EQUAL = Compatibility()


def half_done(state: RunState) -> bool:
    """Say whether the segment at hand has begun: a step of it is recorded.

    A wait for a signal that has not come, and has no time limit, is no step done: nothing depends on it yet.
    """
    return any(type(step) is not Receive or step.taken or step.until is not None for step in state.steps.values())


def compare(
    recorded: Manifest,
    today: Manifest,
    promises: Promises = NO_PROMISES,
    *,
    segment: str | None = None,
    inside: bool = False,
) -> Compatibility:
    """Say whether code with manifest `today` may go on with a run that was recorded under `recorded`.

    `segment` is the one that the run is in, or enters next; `inside` says that steps of it are recorded.
    """
    if recorded.workflow != today.workflow:
        other = f"the run belongs to workflow {recorded.workflow!r}, the code is {today.workflow!r}"
        return Compatibility(blocks=(other,))
    blocks: list[str] = []
    migrates: tuple[str, ...] = ()
    declared = recorded.version != today.version and recorded.version in promises.compatible_with
    if recorded.version != today.version and not declared:
        migrates = promises.migrations.get(recorded.version, ())
        if not migrates:
            blocks.append(_other_version(recorded, today))
        elif inside:
            blocks.append(_not_at_a_boundary(recorded, today, segment))
            migrates = ()
    covered = declared or bool(migrates)
    decided, warns = _parts(recorded, today, promises)
    if declared:  # that it crossed is told: whoever goes back to the older code must see that the newer one was there
        warns.insert(0, f"version {today.version!r} is declared compatible with {recorded.version!r}")
    (warns if covered else blocks).extend(decided)
    if segment is not None and segment not in today.segments and today.segments and not migrates:
        blocks.append(f"segment {segment!r}, which the run enters next, is no longer declared")
    held: tuple[str, ...] = ()
    if inside and not covered and segment is not None and _differ(recorded.segments, today.segments, segment):
        held = (f"the code of segment {segment!r} changed while the run is inside it",)
    warns.extend(_changed_code(recorded, today, but=segment if held else None))
    return Compatibility(tuple(blocks), tuple(warns), held, migrates, declared)


def differences(recorded: Manifest, today: Manifest) -> list[tuple[str, str, str]]:
    """Return every part that differs, as (what, how it was recorded, how it is today); '' where it is not there."""
    rows = [
        (name, was, now)
        for name, was, now in (
            ("workflow", recorded.workflow, today.workflow),
            ("version", recorded.version, today.version),
            ("code", recorded.fingerprint, today.fingerprint),
            ("policy", recorded.policy, today.policy),
        )
        if was != now
    ]
    for what, was_parts, now_parts in (
        ("tool", recorded.tools, today.tools),
        ("prompt", recorded.prompts, today.prompts),
        ("segment", recorded.segments, today.segments),
        ("state of", recorded.states, today.states),
        ("model", recorded.models, today.models),
    ):
        for name in sorted(was_parts.keys() | now_parts.keys()):
            was, now = _said(was_parts.get(name)), _said(now_parts.get(name))
            if was != now:
                rows.append((f"{what} {name}", was, now))
    return rows


def _other_version(recorded: Manifest, today: Manifest) -> str:
    return (
        f"the run was made with version {recorded.version!r} of {recorded.workflow!r}, the code has {today.version!r}: "
        f"declare compatible_with=[{recorded.version!r}], or a migration from it, or deploy the old version"
    )


def _not_at_a_boundary(recorded: Manifest, today: Manifest, segment: str | None) -> str:
    return (
        f"a migration from version {recorded.version!r} to {today.version!r} runs at a boundary only, and the run is "
        f"inside segment {segment!r}: deploy version {recorded.version!r} until it has left it, or declare "
        f"compatible_with=[{recorded.version!r}]"
    )


def _parts(recorded: Manifest, today: Manifest, promises: Promises) -> tuple[list[str], list[str]]:
    """Return what decides, unless something covers it, and what warns: of tools, prompts, models and policy."""
    decides: list[str] = []
    warns: list[str] = []
    for name, (version, fingerprint) in recorded.tools.items():
        found = today.tools.get(name)
        if found is None:
            decides.append(f"tool {name!r} is no longer listed")
        elif found[0] != version:
            said = f"tool {name!r} was version {version!r}, is now {found[0]!r}"
            (warns if version in promises.tools.get(name, ()) else decides).append(said)
        elif found[1] != fingerprint:
            warns.append(f"the code of tool {name!r} changed under version {version!r}")
    warns.extend(f"tool {name!r} is new" for name in today.tools if name not in recorded.tools)
    for name, was in recorded.prompts.items():
        now = today.prompts.get(name)
        if now is None:
            warns.append(f"prompt {name!r} is gone")
        elif _version(was) != _version(now):
            decides.append(f"prompt {name!r} was version {_version(was)!r}, is now {_version(now)!r}")
        elif _fingerprint(was) != _fingerprint(now):
            warns.append(f"the text of prompt {name!r} changed under version {_version(was)!r}")
    warns.extend(f"prompt {name!r} is new" for name in today.prompts if name not in recorded.prompts)
    for role, model in recorded.models.items():
        if role not in today.models:
            warns.append(f"model {role!r} is no longer declared")
        elif today.models[role] != model:
            decides.append(f"model {role!r} was {model!r}, is now {today.models[role]!r}")
    warns.extend(f"model {role!r} is new" for role in today.models if role not in recorded.models)
    if recorded.policy != today.policy:
        warns.append(f"the policy was {recorded.policy or 'none'}, is now {today.policy or 'none'}")
    return decides, warns


def _changed_code(recorded: Manifest, today: Manifest, but: str | None) -> Iterator[str]:
    """Yield what changed in segments and states; the workflow as a whole only where no part of it tells more."""
    found = but is not None
    for name in recorded.segments:
        if name != but and _differ(recorded.segments, today.segments, name):
            found = True
            yield f"the code of segment {name!r} changed"
    for name in recorded.states:
        if _differ(recorded.states, today.states, name):
            found = True
            yield f"the type of the state of segment {name!r} changed"
    if not found and recorded.version == today.version and recorded.fingerprint != today.fingerprint:
        yield f"the code of {recorded.workflow!r} changed under version {recorded.version!r}"


def _differ(recorded: Mapping[str, str], today: Mapping[str, str], name: str) -> bool:
    """Say whether a part that both have is another one: what an older manifest does not tell cannot differ."""
    return name in recorded and name in today and recorded[name] != today[name]


def _version(part: Part | str) -> str:
    return "1" if isinstance(part, str) else part[0]


def _fingerprint(part: Part | str) -> str:
    return part if isinstance(part, str) else part[1]


def _said(part: Part | str | None) -> str:
    if part is None:
        return ""
    return part if isinstance(part, str) else f"{part[0]} ({part[1]})"
