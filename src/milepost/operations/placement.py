"""Badly placed boundaries, found in what runs really did, and in the segments' code where that is enough.

A checkpoint preserves what was known. Placed badly, it preserves a doubt that the segment before could still have
settled, or it leaves so much behind one boundary that little can change while a run waits. None of this is wrong in
itself, so it is said and never decides. The codes are stable:

  long_segment      one visit recorded very many steps: all of them are served again at each re-entry, and none of their
                    code may change meanwhile. A boundary every hundred steps or so costs little
  empty_segment     a segment that records no step: its checkpoint keeps nothing that the one before did not
  unguarded_effect  an irreversible effect after much costly reading in the same segment: while it waits for a person,
                    everything that was read is tied to the code that read it. A boundary belongs between them
  split_decision    a segment's first act is an effect, the segment before ended with what decided it, and the state
                    that was handed over is the one it was given: the reason did not cross the boundary
  stale_decision    a segment sleeps and then acts on what an earlier segment read: the boundary kept an answer that
                    nobody asked for again after the sleep
  crossed_absent    a segment ended with an effect that was given up as absent: evidence that comes later can no longer
                    settle it there, it can only block the run

Carrying a decision in the state, and acting on it first thing in the next segment, is how it should be, and is no
finding: the state is the record of the decision.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from milepost.core import codec
from milepost.core import entries as e
from milepost.core.chain import verify
from milepost.core.code_entries import Migrated

if TYPE_CHECKING:
    from milepost.definitions.workflows import Workflow
    from milepost.stores.api import Store

LONG_STEPS = 200
MANY_READS = 10
MANY_COSTED = 3
READS = frozenset({"read", "costed"})
Code = Literal[
    "long_segment", "empty_segment", "unguarded_effect", "split_decision", "stale_decision", "crossed_absent"
]


@dataclass(frozen=True, slots=True)
class Smell:
    """One finding: its code, where it is, what was seen, and in how many visits."""

    code: Code
    workflow: str
    segment: str
    said: str
    times: int = 1


@dataclass(slots=True)
class Visit:
    """One visit of a segment as its journal tells it. `acts` are what it did, in order: (what, tool)."""

    segment: str
    entered_with: bytes
    acts: list[tuple[Literal["read", "costed", "effect", "irreversible", "sleep", "other"], str]] = field(
        default_factory=list
    )
    absent: list[str] = field(default_factory=list)
    left_with: bytes | None = None
    migrated: bool = False


def of_code(workflow: Workflow[Any, Any]) -> list[Smell]:
    """Return what the code alone shows: segments that can record no step, since they await nothing and ask no run."""
    if len(workflow.segments) < 2:  # noqa: PLR2004  a workflow of one segment has no boundary to move
        return []
    idle = [name for name, segment in workflow.segments.items() if _only_computes(segment.fn)]
    said = "it only computes, so its checkpoint keeps nothing new: join it to the segment before or after it"
    return [Smell("empty_segment", workflow.name, name, said) for name in idle]


def _only_computes(fn: Any) -> bool:
    """Say whether a segment neither awaits anything nor uses its run, whose clock and chance are recorded at once."""
    try:
        source = textwrap.dedent(inspect.getsource(fn))
        tree = ast.parse(source)
    except (OSError, TypeError, SyntaxError):
        return False
    waits, run = (ast.Await, ast.AsyncFor, ast.AsyncWith), fn.__code__.co_varnames[0]
    for node in ast.walk(tree):
        if isinstance(node, waits) or (isinstance(node, ast.Name) and node.id == run):
            return False
    return True


async def visits_of(store: Store, run_id: str) -> list[Visit]:
    """Return every visit of a run's segments, from its verified journal. Raises UnknownRun, Damaged."""
    genesis, stored, head = await store.chain(run_id)
    verify(run_id, genesis, 1, ((one.seq, one.body, one.hash) for one in stored), head.hash)
    return read_visits(codec.decode(one.plain) for one in stored)


def read_visits(entries: Iterable[e.Entry]) -> list[Visit]:
    """Return the visits that a run's entries tell of."""
    visits: list[Visit] = []
    seen: set[str] = set()
    for entry in entries:
        if isinstance(entry, e.BOUNDARIES):
            state = (entry.boundary.state_root or "").encode() or bytes(entry.boundary.state)
            if visits:
                visits[-1].left_with = state
            visits.append(Visit(entry.boundary.segment or "", state))
            seen = set()
        elif isinstance(entry, Migrated):
            visits[-1].migrated = True
        elif visits:
            _note(visits[-1], entry, seen)
    return [visit for visit in visits if visit.segment]


def _note(visit: Visit, entry: e.Entry, seen: set[str]) -> None:
    if isinstance(entry, e.EffectFailed) and entry.final and entry.reason == "absent":
        visit.absent.append(entry.step)
    step = getattr(entry, "step", "")
    plan = entry if isinstance(entry, e.EffectPlanned) else getattr(entry, "plan", None)
    if not step or step in seen:
        return
    if isinstance(plan, e.EffectPlanned):
        kind = {"read": "costed", "irreversible": "irreversible"}.get(plan.effect, "effect")
        visit.acts.append((kind, plan.tool))  # type: ignore[arg-type]  # the dict has these two values
    elif isinstance(entry, e.ReadReturned):
        visit.acts.append(("read", entry.tool))
    elif isinstance(entry, e.SleepEnded):
        visit.acts.append(("sleep", ""))
    elif isinstance(entry, e.ValueRecorded | e.SignalReceived | e.ChildStarted | e.ReadCancelled):
        visit.acts.append(("other", ""))
    else:
        return
    seen.add(step)


def of_runs(workflow: str, runs: Iterable[list[Visit]]) -> list[Smell]:
    """Return what the visits of several runs of a workflow show, each finding once, with how often it was seen."""
    found: Counter[tuple[Code, str, str]] = Counter()
    visited: Counter[str] = Counter()
    empty: Counter[str] = Counter()
    for visits in runs:
        read_before = False
        for before, visit in zip([None, *visits], visits, strict=False):
            visited[visit.segment] += 1
            empty[visit.segment] += not visit.acts and visit.left_with is not None and not visit.migrated
            found.update((code, visit.segment, said) for code, said in _of_visit(visit, before, read_before))
            read_before = read_before or any(kind in READS for kind, _ in visit.acts)
    for segment, times in empty.items():
        if times and times == visited[segment]:  # one that records nothing now and then is a shortcut, and fine
            said = "no visit of it recorded a step, so its checkpoint keeps nothing new"
            found["empty_segment", segment, said] = times
    return [Smell(code, workflow, segment, said, times) for (code, segment, said), times in sorted(found.items())]


def _of_visit(visit: Visit, before: Visit | None, read_before: bool) -> Iterable[tuple[Code, str]]:  # noqa: FBT001
    if len(visit.acts) > LONG_STEPS:
        yield "long_segment", f"one visit recorded more than {LONG_STEPS} steps: put a boundary between them"
    if visit.absent and visit.left_with is not None:
        yield (
            "crossed_absent",
            "it ended with an effect that was given up as absent, which later evidence can only block",
        )
    kinds = [kind for kind, _ in visit.acts]
    first = next((at for at, kind in enumerate(kinds) if kind in {"effect", "irreversible"}), None)
    if first is None:
        return
    tool = visit.acts[first][1]
    read_here = [kind for kind in kinds[:first] if kind in READS]
    if kinds[first] == "irreversible" and (len(read_here) >= MANY_READS or read_here.count("costed") >= MANY_COSTED):
        yield "unguarded_effect", f"{tool} is irreversible and comes after much reading: put a boundary before it"
    if read_here:
        return
    if "sleep" in kinds[:first] and read_before:
        yield "stale_decision", f"{tool} is called after a sleep on what an earlier segment read: ask again before it"
    elif first == 0 and before is not None and _kept_nothing(before):
        said = f"{tool} is called for what segment {before.segment} read last, which is not in the state: hand it over"
        yield "split_decision", said


def _kept_nothing(before: Visit) -> bool:
    """Say whether a visit ended with a read of which the state that it handed over holds nothing."""
    return bool(before.acts) and before.acts[-1][0] in READS and before.left_with == before.entered_with
