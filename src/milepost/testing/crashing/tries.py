"""Tries: each has a store and a part of the outside world of its own, in which workers are disturbed and judged.

A try is a generator that yields while it waits, so that several go on at once without a thread: a process with threads
is no good mother of forks. What a try came to is compared with two runs that nobody disturbed. Where those two differ,
nothing can be said of what differs, and that is said first.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from milepost.testing.crashing import reasons
from milepost.testing.crashing.lives import PATIENCE_S, Life
from milepost.testing.crashing.points import calls
from milepost.testing.crashing.report import UNDISTURBED, Broken
from milepost.testing.crashing.seen import Identity, Seen, look, settle
from milepost.testing.crashing.worker import Ended, How, Outsides, Place, Setting

Waiting = Generator[None, None, None]
LOOK_S = 0.002
LIVES_MOST = 8
STILL_S = 0.25
STILL_LOOKS = 50  # on a machine with much to do these take longer, and so does what is on its way
STILL_MOST_S = 20.0
MEMORY = Path("/dev/shm")  # noqa: S108  a folder of our own is made in it
FINE = frozenset({"done", "failed", "cancelled"})
STANDS: dict[How, str] = {
    "done": "is done.", "failed": "failed:", "cancelled": "was cancelled:", "killed": "was killed:",
    "blocked": "is blocked:", "waits": "waits for somebody:", "worn out": "never settles:", "broke": "broke:",
}  # fmt: skip


class Try:
    """One try: its lives, one after the other or beside each other, and how the last one ended."""

    def __init__(self, setting: Setting, place: Place, point: str, reference: Reference, patience_s: int) -> None:
        self.setting = setting
        self.place = place
        self.point = point
        self.missed = False
        self.asked: list[str] = []
        self.ended = Ended("broke", why="it was never started")
        self.lives: list[Life] = []
        self.before_a_person: Callable[[], Waiting] = _nothing
        self.advance: Callable[[int], None] = place.clock.advance
        self._results = reference.results
        self._loose = reference.loose
        self._patience_s = patience_s

    def start(self, **how: Any) -> Life:
        """Start a worker."""
        number, patience_s = len(self.lives) + 1, self._patience_s
        life = Life(self.setting, self.place, number, self.point, patience_s=patience_s, advance=self.advance, **how)
        self.lives.append(life)
        return life

    def lived(self, life: Life) -> Waiting:
        """Wait until a life has ended."""
        while life.running():
            yield
        self.ended = life.ended

    def killed(self, point: str) -> Waiting:
        """Let a worker die at a point, and wait until what it had sent has arrived."""
        life = self.start(fuse=point)
        yield from self.lived(life)
        self.missed = life.burnt is None
        # Its own call cannot be under way: the worker died in the code of it, not in the kernel's.
        if (life.burnt or 0) > (": " in point):
            yield from self.still()

    def still(self) -> Waiting:
        """Wait until nothing more arrives in the outside world."""
        most, since, count, looks = time.monotonic() + STILL_MOST_S, time.monotonic(), -1, 0
        while time.monotonic() < most:
            applied = len(self.place.outside.applied())
            looks += 1
            if applied != count:
                since, count, looks = time.monotonic(), applied, 0
            if looks > STILL_LOOKS and time.monotonic() - since > STILL_S:
                return
            yield

    def finish(self) -> Waiting:
        """Start workers until the run has ended, a person settling what only a person can."""
        for _ in range(LIVES_MOST):
            yield from self.lived(self.start())
            if self.ended.how != "waits":
                return
            yield from self.before_a_person()
            settled = settle(self.place, self._results, self._loose)
            if not settled:
                return
            self.asked += settled

    def close(self) -> None:
        """End what is left."""
        for life in self.lives:
            life.end()


def _nothing() -> Waiting:
    yield from ()


Scene = Callable[[Try], Waiting]


@dataclass
class Reference:
    """What the undisturbed run came to, how it is to be compared, and what is wrong with it already."""

    seen: Seen
    counts: Counter[Identity] = field(default_factory=Counter)
    coarse: set[str] = field(default_factory=set)
    loose: set[str] = field(default_factory=set)
    borrowed: set[str] = field(default_factory=set)
    unseen: set[str] = field(default_factory=set)
    plain: bool = False
    comparable: bool = True
    broken: list[Broken] = field(default_factory=list)
    excused: set[tuple[str, str]] = field(default_factory=set)

    @property
    def usable(self) -> bool:
        """Whether it came to an end that others can be compared with."""
        return self.seen.ended.how in FINE

    @property
    def results(self) -> dict[str, Any]:
        """What the effects returned, by path."""
        return {view.path: view.result for view in self.seen.effects if view.outcome == "confirmed"}


class Trial:
    """Plays tries of one workflow, and judges them."""

    def __init__(
        self,
        setting: Setting,
        world: Outsides[Any],
        *,
        repeats: Iterable[str] = (),
        equal: Callable[[Any, Any], bool] | None = None,
        together: int | None = None,
        patience_s: int = PATIENCE_S,
    ) -> None:
        self.setting = setting
        self.world = world
        self.repeats = frozenset(repeats)
        self.equal = equal
        self.together = together or min(4, os.cpu_count() or 1)
        self.patience_s = patience_s
        self.tools = setting.tools
        self.reference = Reference(Seen(Ended("broke"), (), (), frozenset(), frozenset(), ()))
        self.broken: list[Broken] = []
        self.equals = 0
        self.with_person: dict[str, list[str]] = {}
        self.missed: list[str] = []
        self._name = f"try-{uuid.uuid4().hex[:10]}"
        self._count = 0
        self._kept: dict[tuple[str, str, str], Path] = {}
        self._folder = Path(tempfile.mkdtemp(prefix="milepost-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None))

    def close(self) -> None:
        """Remove every store that is not kept."""
        shutil.rmtree(self._folder, ignore_errors=True)

    # ------------------------------------------------------------ playing

    def place(self) -> Place:
        """Return a place where nothing was done yet."""
        self._count += 1
        folder = self._folder / str(self._count)
        folder.mkdir()
        return Place(folder, self.world.account(f"{self._name}-{self._count}"))

    def undisturbed(self) -> Try:
        """Run the workflow twice undisturbed, take the first for the measure, and return its try."""
        tries = [self._try(point) for point in (UNDISTURBED, f"{UNDISTURBED}, again")]
        self._play([(one, one.finish()) for one in tries])
        self.reference = measure(self, *tries)
        self.broken += self.reference.broken
        return tries[0]

    def play(self, scenes: Iterable[tuple[str, Scene]]) -> None:
        """Play a scene at each point, some at a time, and judge each as it ends."""
        self._play(self._begun(scenes), self.judge)

    def _begun(self, scenes: Iterable[tuple[str, Scene]]) -> Iterator[tuple[Try, Waiting]]:
        for point, scene in scenes:
            one = self._try(point)
            yield one, scene(one)

    def _try(self, point: str) -> Try:
        return Try(self.setting, self.place(), point, self.reference, self.patience_s)

    def _play(self, tries: Iterable[tuple[Try, Waiting]], judge: Callable[[Try], None] = lambda _: None) -> None:
        waiting, playing = iter(tries), list[tuple[Try, Waiting]]()
        try:
            while True:
                while len(playing) < self.together and (following := next(waiting, None)) is not None:
                    playing.append(following)
                if not playing:
                    return
                for one, scene in list(playing):
                    if next(scene, self) is self:  # it has nothing to wait for any more
                        playing.remove((one, scene))
                        judge(one)
                        one.close()
                time.sleep(LOOK_S)
        finally:
            for one, _ in playing:
                one.close()

    def look(self, one: Try) -> Seen:
        """Read what a try left, as the reference is read."""
        reference = self.reference
        unseen = reference.unseen | reference.loose
        return look(one.place, one.ended, repeats=self.repeats, unseen=unseen, plain=reference.plain)

    # ------------------------------------------------------------ judging

    def judge(self, one: Try) -> None:
        """Compare a try with the undisturbed run."""
        seen = self.look(one)
        found = [Broken(one.point, rule, what, why) for rule, what, why in self._differences(seen)]
        if one.missed:
            self.missed.append(one.point)
        elif not found:
            self.equals += 1
        if one.asked:
            self.with_person[one.point] = one.asked
        for broken in found:
            kept = self._keep(broken, one)
            self.broken.append(Broken(broken.point, broken.rule, broken.what, broken.why, kept))
        if not found:
            shutil.rmtree(one.place.folder, ignore_errors=True)

    def _differences(self, seen: Seen) -> Iterable[tuple[str, str, str]]:
        counted = list(self._miscounted(seen))
        yield from counted
        miscounted = {rule for rule, _, _ in counted}
        yield from self._ended(seen.ended, excused=bool(miscounted))
        for violation in seen.violations:
            known = (violation.rule, violation.path) in self.reference.excused
            if not known and violation.rule not in {"repeated", "unrecorded"} | ({"lost"} if miscounted else set()):
                yield violation.rule, f"{violation.path}: {violation.why}", reasons.rule(violation.rule)

    def _miscounted(self, seen: Seen) -> Iterable[tuple[str, str, str]]:
        reference = self.reference
        counts = seen.counts(reference.coarse)
        for identity in sorted({*counts, *reference.counts}):
            name, args = identity
            expected, got = reference.counts[identity], counts[identity]
            shown = f"{name} {args}".rstrip()
            tool = self.tools.get(name)
            if got > expected and name not in self.repeats:
                lines = seen.lines_of(identity, reference.coarse)
                what = f"{shown} was applied {_times(got)} instead of {_times(expected)}."
                lent = name in reference.borrowed
                yield "repeated", what, reasons.borrowed(name) if lent else reasons.repeated(tool, lines, seen)
            elif got < expected and seen.ended.how == reference.seen.ended.how:
                what = f"{shown} was applied {_times(got)} instead of {_times(expected)}."
                yield "missing", what, reasons.missing(tool, name, seen)

    def _ended(self, ended: Ended, *, excused: bool) -> Iterable[tuple[str, str, str]]:
        measure_ = self.reference.seen.ended
        if ended.how in {"worn out", "broke"}:
            yield "stuck", f"The run never came to its end: {ended.why}.", reasons.ending(ended)
        elif ended.how != measure_.how:
            # Who finds two of a thing stops and calls a person: that follows from the first mistake, and is no second.
            if not excused or ended.code == "diverged":
                said = ": ".join(part for part in (ended.code, ended.why) if part)
                yield "ending", f"The run {STANDS[ended.how]} {said}", reasons.ending(ended)
        elif self.reference.comparable and not excused and not self.same(ended, measure_):
            what = f"The result is {_shown(ended)} instead of {_shown(measure_)}."
            yield "result", what, f"{reasons.RECORD_IT} If a result may differ, give equal=."

    def same(self, one: Ended, other: Ended) -> bool:
        """Whether two results are the same."""
        if self.equal is not None and one.how == other.how == "done":
            read = self.setting.workflow.result.read
            return self.equal(read(bytes(one.result)), read(bytes(other.result)))
        return _shown(one) == _shown(other)

    def _keep(self, broken: Broken, one: Try) -> Path | None:
        """Keep the store of the first try that broke in a way, where a person can look at it."""
        way = (broken.rule, broken.what, broken.why)
        if way not in self._kept and one.place.folder.exists():
            self._kept[way] = Path(tempfile.mkdtemp(prefix="milepost-broken-"))
            shutil.copytree(one.place.folder, self._kept[way], dirs_exist_ok=True)
        return self._kept[way] / "store.db" if way in self._kept else None


def measure(trial: Trial, one: Try, other: Try) -> Reference:
    """Make a measure of two undisturbed runs, and say what is wrong with them."""
    first = look(one.place, one.ended, repeats=trial.repeats, unseen=(), plain=False)
    second = look(other.place, other.ended, repeats=trial.repeats, unseen=(), plain=False)
    made = Reference(first, plain=any(violation.rule == "altered" for violation in first.violations))
    if not made.usable:
        why = f"{first.ended.code}: {first.ended.why}".removeprefix(": ")
        made.broken.append(
            Broken(UNDISTURBED, "ending", f"The run {STANDS[first.ended.how]} {why}", reasons.undisturbed(first.ended))
        )
        return made
    confirmed = Counter(view.tool for view in first.effects if view.outcome == "confirmed" and view.by != "once")
    applied = Counter(line.tool for line in first.lines)
    unrecorded = {violation.path for violation in first.violations if violation.rule == "unrecorded"}
    called = calls(first.ended.points)
    made.borrowed = {tool for tool in applied if tool in trial.tools and applied[tool] > called[tool]}
    made.unseen = {tool for tool in confirmed if not applied[tool]}
    # What comes without a key and with other content than its arguments cannot be told apart; it can be counted.
    made.loose = {tool for tool in unrecorded if confirmed[tool] and confirmed[tool] == applied[tool]}
    made.coarse = {
        tool for tool in applied if _of(tool, first.counts(())) != _of(tool, second.counts(()))
    }  # fmt: skip
    made.counts = first.counts(made.coarse)
    if made.counts != second.counts(made.coarse):
        what = (
            f"Two undisturbed runs had different effects: {dict(made.counts)} and {dict(second.counts(made.coarse))}."
        )
        made.broken.append(
            Broken(UNDISTURBED, "unlike", what, "Nothing can be compared: let the test decide what varies.")
        )
    if set(confirmed) and set(confirmed) == made.unseen and not all(_hidden(trial, tool) for tool in confirmed):
        what = f"The ledger has no line of {', '.join(sorted(confirmed))}, which happened."
        why = "Let applied() return one line for each effect that was really applied, with the tool's name."
        made.broken.append(Broken(UNDISTURBED, "unseen", what, why))
    made.comparable = trial.same(one.ended, other.ended)
    if not made.comparable:
        what = f"Two undisturbed runs have different results: {_shown(one.ended)} and {_shown(other.ended)}."
        why = "Results cannot be compared: give equal=, which says whether two are the same where it matters."
        made.broken.append(Broken(UNDISTURBED, "result", what, why))
    unseen = made.unseen | made.loose
    made.seen = look(one.place, one.ended, repeats=trial.repeats, unseen=unseen, plain=made.plain)
    for violation in made.seen.violations:
        made.excused.add((violation.rule, violation.path))
        made.broken.append(_from_the_start(trial, violation.rule, violation.path, violation.why, made.seen))
    return made


def _from_the_start(trial: Trial, rule: str, path: str, why: str, seen: Seen) -> Broken:
    tool = trial.tools.get(path)
    if rule == "unrecorded" and (tool is None or tool.effect == "read"):
        what = f"{path} was applied, and no step records it."
        return Broken(UNDISTURBED, rule, what, reasons.repeated(tool, (), seen))
    return Broken(UNDISTURBED, rule, f"{path}: {why}", reasons.rule(rule))


def _hidden(trial: Trial, tool: str) -> bool:
    """Whether a tool's effect stands in the store itself, where no outside ledger sees it."""
    return tool in trial.tools and trial.tools[tool].effect == "transactional"


def _of(tool: str, counts: Counter[Identity]) -> dict[Identity, int]:
    return {identity: count for identity, count in counts.items() if identity[0] == tool}


def _times(count: int) -> str:
    return "once" if count == 1 else "never" if not count else f"{count} times"


def _shown(ended: Ended) -> str:
    if ended.how != "done":
        return f"{ended.code}: {ended.why}"
    return msgspec.json.encode(msgspec.json.decode(bytes(ended.result)), order="deterministic").decode()
