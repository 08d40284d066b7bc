"""What came of trying a workflow at many points, as a test asserts it and a person reads it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

POINTS_SHOWN = 6
UNDISTURBED = "undisturbed"


@dataclass(frozen=True, slots=True)
class Broken:
    """One thing that does not hold. `point` is where the worker was disturbed.

    `rule` names what was broken: one of `milepost.testing.check`, or

      repeated    an effect was applied more often than in the undisturbed run
      missing     less often, and the run ended as if it had been
      result      the run has another result
      ending      the run ended in another way, or was blocked
      unlike      two undisturbed runs differ in their effects
      stuck       it never came to an end, or its process broke
      unseen      the outside ledger saw none of the effects: nothing can be compared

    `what` says what was seen and `why` what probably causes it, with what to do. `store` is the record of that try.
    """

    point: str
    rule: str
    what: str
    why: str
    store: Path | None = None

    def __str__(self) -> str:
        return f"{self.rule} at {self.point}: {self.what} {self.why}".rstrip()


class Unreliable(AssertionError):
    """A workflow does not survive what was done to it; `report` says at which points, and why."""

    def __init__(self, report: Report) -> None:
        super().__init__(str(report))
        self.report = report


@dataclass(frozen=True, slots=True)
class Report:
    """What came of trying a workflow. It is true if nothing is broken, and prints what is.

    `points` were tried, in the order of the undisturbed run; at `equal` of them all was as in that run. At those in
    `with_person` the run asked a person about the effects in `asked`, who looked into the outside ledger and said what
    they saw. `missed` were not reached again: that run was only another undisturbed one. Of the tools in `unseen` the
    ledger knows nothing, so they were not judged. The same `seed` tries the same again.
    """

    title: str
    seed: int
    points: tuple[str, ...] = ()
    equal: int = 0
    broken: tuple[Broken, ...] = ()
    with_person: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing is broken."""
        return not self.broken

    def __bool__(self) -> bool:
        return self.ok

    def raise_if_broken(self) -> None:
        """Raise Unreliable, an AssertionError whose text is the report, if anything is broken."""
        __tracebackhide__ = True  # pytest then shows the line of the test, and not this one
        if self.broken:
            raise Unreliable(self)

    def at(self, point: str) -> tuple[Broken, ...]:
        """Return what is broken at the points that have this text in their name."""
        return tuple(broken for broken in self.broken if point in broken.point)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        bad = len({broken.point for broken in self.broken} - {UNDISTURBED})
        yield f"{self.title}: {_points(self.points)}, {self.equal} equal, {bad} broken (seed {self.seed})"
        ways: dict[tuple[str, str, str], list[Broken]] = {}
        for broken in self.broken:
            ways.setdefault((broken.rule, broken.what, broken.why), []).append(broken)
        for (rule, what, why), some in ways.items():
            yield ""
            yield f"{rule}: {what}"
            points = [broken.point for broken in some]
            yield from (f"    at   {point}" for point in points[:POINTS_SHOWN])
            if len(points) > POINTS_SHOWN:
                yield f"         … and {_points(points[POINTS_SHOWN:])} more"
            if why:
                yield f"    why  {why}"
            store = next((broken.store for broken in some if broken.store is not None), None)
            if store is not None:
                yield f"    see  milepost runs --store {store}"
        notes = (
            (self.asked, f"A person was asked at {_points(self.with_person)}, and looked into the ledger, about"),
            (self.missed, "Not reached again"),
            (self.unseen, "Not judged, since the ledger has no line of them"),
        )
        for names, note in notes:
            if names:
                yield ""
                yield f"{note}: {', '.join(names[:POINTS_SHOWN])}{', …' if len(names) > POINTS_SHOWN else ''}"


def _points(points: Sequence[str]) -> str:
    return "1 point" if len(points) == 1 else f"{len(points)} points"
