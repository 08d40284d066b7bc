"""`crash_everywhere`: a user's own workflow, killed at every point of it in turn, in one line of a test.

The workflow runs twice undisturbed, which tells its result, its effects and the points it passes. Then for each point,
in a fresh store and a fresh part of the outside world, a worker is forked and kills itself by SIGKILL at that point;
workers are started after it until the run has ended, a person settling by the outside's books what only a person can.
Result, number of effects, ledger and journal are compared with the undisturbed run's.

What that proves: this workflow, with these tools and this input, comes to the same end at whichever named point its
process dies. A process that dies is really dead: no clean-up of Python runs, its locks go with it. What it does not
prove: the machine losing power (`power_cut`), a kill in the middle of a system call (Milepost's own suite does that to
Milepost), a tool that is only reached with other input, or what is the same in every fork of one process, such as the
order of a set of strings.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any, TypedDict, TypeVar, Unpack

from milepost.core.authority import Authority
from milepost.definitions.tools import Cost
from milepost.definitions.workflows import Workflow
from milepost.testing import seeds
from milepost.testing.crashing.lives import PATIENCE_S
from milepost.testing.crashing.points import find
from milepost.testing.crashing.report import Report
from milepost.testing.crashing.tries import Scene, Trial, Try, Waiting
from milepost.testing.crashing.worker import Outsides, Resources, Setting
from milepost.testing.world.rules import draw

I = TypeVar("I")  # noqa: E741 - "input", as in the documentation
R = TypeVar("R")


class Options(TypedDict, total=False):
    """How a workflow is run when it is tried. All are optional.

    * `resources(account)`: what the app opens for its tools, as `App(resources=…)` takes it, pointed at this part of
      the outside world. The account itself is always there: `call.resource(Account)`. It is called in the worker's
      process, so it may also point settings or the environment there.
    * `secrets`, `authority`, `budget`: as `App` and `App.run` take them; without an authority, all scopes that the
      tools ask for. `also`: workflows that this one starts.
    * `signals`: by name, what is sent to the run at its start. Approvals are always given.
    * `repeats`: tools whose effect may be applied again, such as a model call that the ledger counts.
    * `equal(one, other)`: whether two results are the same where it matters. By default all of it must be.
    * `seed`: what is drawn is the same for the same seed; by default that of the test run (`--milepost-seed`).
    * `most`: at most so many points are tried, drawn by the seed. By default all.
    * `together`: how many tries go on at once; by default one for each processor, at most four.
    * `patience`: after so many seconds a worker that hangs is ended, and that is reported.
    """

    resources: Callable[[Any], Resources]
    secrets: Callable[[str], str]
    authority: Authority
    budget: Cost
    also: Sequence[Workflow[Any, Any]]
    signals: Mapping[str, object]
    repeats: Collection[str]
    equal: Callable[[Any, Any], bool]
    seed: int
    most: int
    together: int
    patience: int


def crash_everywhere(workflow: Workflow[I, R], input: I, world: Outsides[Any], /, **options: Unpack[Options]) -> Report:
    """Kill a worker at every point of a run in turn, let others finish it, and report what is not as it should be.

        crash_everywhere(refund, Ticket("o-1", 500), world).raise_if_broken()

    `world` gives each try a place of its own (see `Outsides`); its books are what is counted. See `Options` for the
    rest. Needs `os.fork`. It blocks: in an event loop that the tools need, call it by `asyncio.to_thread`.
    """
    return tried("crash_everywhere", workflow, input, world, options, lambda _, points: kills(points))


def crash_at(
    workflow: Workflow[I, R], input: I, world: Outsides[Any], point: str, /, *points: str, **options: Unpack[Options]
) -> Report:
    """Do what `crash_everywhere` does at named points only: a regression, kept.

    A point is named as the report names it, or by a part of its name that no other has. Raises NoSuchPoint where the
    undisturbed run does not pass it.
    """

    def chosen(_: Try, passed: tuple[str, ...]) -> Iterable[tuple[str, Scene]]:
        return kills([find(one, passed) for one in (point, *points)])

    return tried("crash_at", workflow, input, world, options, chosen)


def kills(points: Iterable[str]) -> list[tuple[str, Scene]]:
    """Return for each point the scene in which a worker is killed there."""
    return [(point, partial(_killed, point=point)) for point in points]


def _killed(one: Try, point: str) -> Waiting:
    yield from one.killed(point)
    yield from one.finish()


Scenes = Callable[[Try, tuple[str, ...]], Iterable[tuple[str, Scene]]]


def tried(
    what: str, workflow: Workflow[Any, Any], input: Any, world: Outsides[Any], options: Options, scenes: Scenes
) -> Report:
    """Run a workflow undisturbed, then play the scenes that `scenes` makes of that run and its points; report."""
    known = set(Options.__annotations__)
    if unknown := set(options) - known:
        raise TypeError(f"{what}: no option {', '.join(sorted(unknown))}; there are {', '.join(sorted(known))}")
    seed = options["seed"] if "seed" in options else seeds.current()
    setting = Setting(
        workflow=workflow,
        input=input,
        also=tuple(options.get("also", ())),
        resources=options.get("resources"),
        secrets=options.get("secrets"),
        authority=options.get("authority"),
        budget=options.get("budget"),
        signals=options.get("signals", {}),
        seed=seed,
    )
    trial = Trial(
        setting,
        world,
        repeats=options.get("repeats", ()),
        equal=options.get("equal"),
        together=options.get("together"),
        patience_s=options.get("patience", PATIENCE_S),
    )
    with closing(trial):
        undisturbed = trial.undisturbed()
        made = list(scenes(undisturbed, trial.reference.seen.ended.points)) if trial.reference.usable else []
        made = _drawn(made, options.get("most"), seed)
        trial.play(made)
        report = _reported(f"{what}({workflow.name})", seed, trial, [point for point, _ in made])
    if report.broken:
        seeds.HELD.broken.append(report)
    return report


def _reported(title: str, seed: int, trial: Trial, points: list[str]) -> Report:
    """Return the report, all of it in the order of the points: in which order tries end is a matter of chance."""
    place = {point: number for number, point in enumerate(points)}
    return Report(
        title=title,
        seed=seed,
        points=tuple(points),
        equal=trial.equals,
        broken=tuple(sorted(trial.broken, key=lambda broken: place.get(broken.point, -1))),
        with_person=tuple(sorted(trial.with_person, key=place.__getitem__)),
        asked=tuple(sorted({path for paths in trial.with_person.values() for path in paths})),
        missed=tuple(sorted(trial.missed, key=place.__getitem__)),
        unseen=tuple(sorted(trial.reference.unseen)),
    )


def _drawn(scenes: list[tuple[str, Scene]], most: int | None, seed: int) -> list[tuple[str, Scene]]:
    """Return some of the scenes, in their order, drawn by the seed; all of them where that is not too many.

    What is drawn depends on the names alone: a point more, or one less, leaves the others where they are.
    """
    if most is None or len(scenes) <= most:
        return scenes
    drawn = sorted((point for point, _ in scenes), key=lambda point: draw(seed, point))[:most]
    return [scene for scene in scenes if scene[0] in drawn]
