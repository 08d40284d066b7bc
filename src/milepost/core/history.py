"""The whole of a run, stage by stage: what stands, what was undone, and what must be undone to get back to a boundary.

A stage is a boundary and what happened behind it, until the next one. A rewind deletes nothing. It writes its boundary
anew, as one more stage, and leaves the stages from the old one on *undone*: they stay readable, and nothing goes back
to them, for their states tell of effects that no longer stand.

The order of undoing is the order of confirming, backwards. A compensation is known by its step: `~VISIT/STEP` of what
it undoes. So one effect has one compensation, however often a rewind is begun; and a rewind that was given up half-way
(cancelled, say) is gone on with by the next one.

What may go wrong. A boundary between two effects of which the *later* one still stands and the *earlier* one was undone
cannot come about by one rewind, but by one that was given up and another that asks for less: such a boundary tells of
something that is gone, and is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from milepost.core import entries as e
from milepost.core.code_entries import Resumed
from milepost.core.state import IMPORTED, RunState
from milepost.core.steps import Effect
from milepost.errors import Damaged

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from milepost.core.budget import Amounts
    from milepost.core.steps import Step

END = "end"
UNDOING = "~"


def undoing(visit: int, step: str) -> str:
    """Return the step of what undoes the effect at this step of this visit."""
    return f"{UNDOING}{visit}/{step}"


@dataclass(slots=True)
class Stage:
    """A boundary, and the steps and spending of the visit behind it. `seq` is the number of the boundary's entry."""

    seq: int
    at: int
    boundary: e.Boundary
    steps: dict[str, Step] = field(default_factory=dict)
    spent: Amounts = field(default_factory=dict)
    ended: bool = False
    undone: bool = False

    @property
    def name(self) -> str:
        """The segment that is entered there, and which visit of it if not the first; a number in an attached run."""
        segment = self.boundary.segment
        if segment is None:
            return END if self.ended else str(self.visit)
        visits = self.boundary.visits.get(segment, 0)
        return f"{segment}@{visits + 1}" if visits else segment

    @property
    def visit(self) -> int:
        """The number of the visit that the boundary begins."""
        return self.boundary.visit

    def effects(self) -> Iterator[Effect]:
        """Yield what acted on the outside world in this stage, compensations left out."""
        for step, record in self.steps.items():
            if type(record) is Effect and record.effect != "read" and not step.startswith(UNDOING):
                yield record


@dataclass(slots=True)
class History:
    """A run from its first entry to its last. `undone_by` holds the confirmed compensations by their step.

    `children` says in which visit each was started, and how it stands; `doubted` is the evidence against what had
    failed in segments that were left, which no person has looked into yet.
    """

    state: RunState
    stages: list[Stage] = field(default_factory=list)
    undone_by: dict[str, Effect] = field(default_factory=dict)
    confirmed: dict[tuple[int, str], int] = field(default_factory=dict)
    children: dict[str, tuple[int, str]] = field(default_factory=dict)
    doubted: list[str] = field(default_factory=list)

    def find(self, text: str) -> Stage | None:
        """Return the boundary of this name or number, None where there is none."""
        fits = [stage for stage in self.stages if text in {stage.name, str(stage.visit)}]
        return fits[-1] if fits else None

    def standing(self) -> list[Stage]:
        """Return the stages that no rewind has undone."""
        return [stage for stage in self.stages if not stage.undone]

    def since(self, target: Stage) -> list[tuple[Stage, Effect]]:
        """Return the effects that are confirmed since a boundary and not undone yet, newest first."""
        found = [
            (self.confirmed[stage.visit, effect.step], stage, effect)
            for stage in self.standing()
            if stage.visit >= target.visit
            for effect in stage.effects()
            if effect.outcome == "confirmed" and undoing(stage.visit, effect.step) not in self.undone_by
        ]
        return [(stage, effect) for _, stage, effect in sorted(found, key=lambda one: one[0], reverse=True)]

    def children_since(self, target: Stage) -> list[tuple[str, str]]:
        """Return the children that were started since a boundary, each with how it stands."""
        return [(child, status) for child, (visit, status) in self.children.items() if visit >= target.visit]


def read(run: str, entries: Iterable[e.Entry]) -> History:
    """Return the history of a run from all of its entries. Raises Damaged, IllegalOutcome."""
    history = History(RunState(run))
    state = history.state
    for seq, entry in enumerate(entries, 1):
        if isinstance(entry, e.BOUNDARIES):
            _close(history)
            if isinstance(entry, e.Rewound):
                for stage in history.stages:
                    stage.undone = stage.undone or stage.visit >= entry.to
            history.stages.append(Stage(seq, entry.at, entry.boundary, ended=isinstance(entry, e.RunDone)))
        elif not history.stages:
            raise Damaged(run, "its first entry holds no boundary", seq=seq)
        if isinstance(entry, e.RewindAsked):
            _close(history)  # it drops the steps of the segment that it leaves
        state.apply(entry)
        if isinstance(entry, e.Contradicted) and type(state.steps.get(entry.step)) is not Effect:
            history.doubted.append(entry.evidence)
        elif isinstance(entry, Resumed | e.Retried):
            history.doubted.clear()
        if isinstance(entry, e.EffectConfirmed):
            history.confirmed[state.visit, entry.step] = seq
        elif isinstance(entry, e.ChildStarted):
            history.children[entry.child] = (state.visit, "running")
        elif isinstance(entry, e.ChildEnded) and entry.child in history.children:
            visit, _ = history.children[entry.child]
            history.children[entry.child] = (visit, entry.status)
    _close(history)
    return history


def _close(history: History) -> None:
    """Keep what the state holds of the current stage."""
    if not history.stages:
        return
    state, stage = history.state, history.stages[-1]
    stage.steps.update(state.steps)
    stage.spent = dict(state.ledger.spent)
    for effect in state.effects():
        if effect.step.startswith(UNDOING) and effect.outcome == "confirmed":
            history.undone_by[effect.step] = effect


def unsound(history: History, target: Stage) -> list[str]:
    """Return why nobody may go on from a boundary: what its state tells of does not stand any more."""
    if target.ended:
        return ["the run ended there: there is nothing to go on with"]
    if target.undone:
        return ["a rewind has undone it, or written it anew: what its state tells of does not stand"]
    gone = [
        effect.path
        for stage in history.standing()
        if stage.visit < target.visit
        for effect in stage.effects()
        if undoing(stage.visit, effect.step) in history.undone_by
    ]
    return [f"its state tells of {path}, which was undone" for path in gone]


def unsettled(history: History, *, driven: bool) -> list[str]:
    """Return what is not settled, each with what to do about it. Where the run is `driven`, what is in flight ends."""
    state = history.state
    found = [
        f"{effect.path} is {effect.outcome}: milepost resolve {state.run} {effect.path} --why … first"
        for effect in state.effects()
        if effect.open and effect.effect != "read" and not (driven and effect.outcome == "started")
    ]
    doubted = [effect.path for effect in state.effects() if effect.contradicted or effect.verify_from is not None]
    found.extend(f"{path} is being looked into: wait for it, or milepost resolve it" for path in doubted)
    # It is recorded as failed, so nothing would undo it, and going back would do it once more.
    how = "undo it by hand and milepost resume" if state.status == "blocked" else "fork it"
    return [*found, *(f"{evidence}, though it is recorded as failed: {how}" for evidence in history.doubted)]


def refused(history: History, target: Stage, *, driven: bool = False) -> list[str]:
    """Return why a run may not be taken back to one of its boundaries, as far as its record says; empty: it may.

    `driven` says that a living process holds it, which first lets what is in flight end.
    """
    state = history.state
    whole: list[str] = []
    if state.status == "killed":
        whole.append("the run was killed, and stays killed: fork it")
    if state.code == IMPORTED and state.status == "blocked":
        whole.append("it was taken in from another store and is not driven here: resume it first")
    if state.rewind is not None:
        whole.append(f"it is being taken back to boundary {state.rewind.to} already")
    if state.cancel is not None and not state.ended:
        whole.append("it was asked to stop: wait until it has ended")
    running = [child for child, status in history.children_since(target) if status == "running"]
    whole.extend(f"child {child} was started since then and runs: cancel or kill it first" for child in running)
    return [*whole, *unsound(history, target), *unsettled(history, driven=driven)]
