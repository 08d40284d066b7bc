"""Tasks that are killed everywhere: a run that nobody kills, then one for each kill point, and a verdict on it."""

import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext
from pathlib import Path

from evaluation import classes
from evaluation.dying import Stage, template
from evaluation.hosting import OutsideClient
from evaluation.killing import WorkerError
from evaluation.points import Point
from evaluation.verdicts import Verdict, differences, unkilled_differences


@dataclass(frozen=True)
class Swept:
    """What came of a sweep: a verdict for each kill point, and what is wrong with runs that nobody killed, by task."""

    verdicts: list[Verdict]
    wrong: dict[str, tuple[str, ...]]


def sweep(port: int, points: Sequence[Point], *, together: int) -> Swept:
    """Try the points, `together` tasks at a time. The outside world is at `port`."""
    by_case: dict[str, list[Point]] = {}
    for point in points:
        by_case.setdefault(point.case.name, []).append(point)
    groups = sorted(by_case.values(), key=len, reverse=True)  # a long one at the end would run alone
    said = _Progress(len(points))
    with tempfile.TemporaryDirectory(prefix="milepost-evaluation-") as folder, ThreadPoolExecutor(together) as pool:
        workers = template()
        swept = pool.map(lambda group: _sweep_task(Path(folder), port, workers, group, said.one_more), groups)
        tasks = list(swept)
    said.clear()
    verdicts = {id(one.point): one for task in tasks for one in task.verdicts}
    wrong = {name: found for task in tasks for name, found in task.wrong.items()}
    return Swept([verdicts[id(point)] for point in points], wrong)


def _sweep_task(
    folder: Path, port: int, workers: ForkServerContext, points: Sequence[Point], done: Callable[[], None]
) -> Swept:
    """One task with a store of its own: the unkilled run, and a run for each point."""
    case = points[0].case
    with closing(OutsideClient(port)) as client:
        stage = Stage(folder / f"{case.suite}-{case.id}.db", client, workers)
        try:
            unkilled = stage.play(case, f"{case.name}-unkilled")
        except WorkerError as failure:
            return Swept(
                [Verdict(point, ("there is no unkilled run",)) for point in points], {case.name: (str(failure),)}
            )
        verdicts = []
        for point in points:
            try:
                killed = stage.play(case, f"{case.name}-{point.position}-{point.moment}", point)
            except WorkerError as failure:
                verdicts.append(Verdict(point, (str(failure),)))
            else:
                found = differences(point, unkilled, killed, classes.of(point.function))
                verdicts.append(Verdict(point, found, killed.persons))
            done()
        wrong = unkilled_differences(case, unkilled)
        return Swept(verdicts, {case.name: wrong} if wrong else {})


class _Progress:
    """How many points were tried, on a terminal."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._lock = threading.Lock()

    def one_more(self) -> None:
        with self._lock:
            self._done += 1
            self._say(f"{self._done} of {self._total} kill points")

    def clear(self) -> None:
        self._say("")

    @staticmethod
    def _say(what: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\x1b[K{what}", end="", file=sys.stderr, flush=True)
