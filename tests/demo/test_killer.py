"""The killer: it kills for real, counts honestly, and never goes on for ever."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from milepost.cli.demo.failure import DemoFailed
from milepost.cli.demo.killer import Killer, Plan, Report
from tests.demo.processes import is_gone
from tests.polling import eventually

# One byte for each step, forty in all; a step is "begun" while the second file is longer than the first.
WORKER = """
import sys, time
from pathlib import Path
steps, begun, pids = (Path(sys.argv[1]) / name for name in ("steps", "begun", "pids"))
with pids.open("a") as file:
    print(__import__("os").getpid(), file=file)
while (done := len(steps.read_bytes()) if steps.exists() else 0) < 40:
    begun.write_bytes(b"." * (done + 1))
    time.sleep(0.01)
    with steps.open("ab") as file:
        file.write(b".")
"""

QUICK = Plan(
    seed=3,
    steps=40,
    kills=6,
    on_effect=2,
    life=(0.0, 0.05),
    early_life=(0.0, 0.05),
    patience=0.1,
    linger=(0.0, 0.01),
    whole_time=120.0,
)


class Work:
    """A folder in which the worker leaves its traces."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def count(self, name: str) -> int:
        path = self.folder / name
        return len(path.read_bytes()) if path.exists() else 0

    def in_flight(self) -> list[str]:
        """The attempt that the last life has begun and not ended; each life has names of its own."""
        return [f"{self.pids()[-1]}:{self.count('begun')}"] if self.count("begun") > self.count("steps") else []

    def pids(self) -> list[int]:
        path = self.folder / "pids"
        return [int(pid) for pid in path.read_text().split()] if path.exists() else []

    def killer(self, plan: Plan, program: str = WORKER, *, effects: bool = True) -> Killer:
        return Killer(
            [sys.executable, "-c", program, str(self.folder)],
            plan,
            progress=lambda: self.count("steps"),
            in_flight=lambda: self.in_flight() if effects else [],
            log=self.folder / "worker.log",
        )


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return Work(tmp_path)


def test_the_worker_is_killed_as_often_as_planned_and_still_finishes_its_work(work: Work) -> None:
    report = work.killer(QUICK).run()

    assert len(report.kills) >= QUICK.kills
    assert report.on_effect >= QUICK.on_effect
    assert report.restarts == len(report.kills)
    assert work.count("steps") == 40


def test_lives_are_cut_short_when_the_work_would_be_done_before_the_planned_kills(work: Work) -> None:
    report = work.killer(replace(QUICK, life=(9.0, 9.0), early_share=0.0)).run()

    assert len(report.kills) == QUICK.kills


def test_every_killed_process_was_one_that_was_started_here_and_none_is_left(work: Work) -> None:
    report = work.killer(replace(QUICK, early_share=0.0)).run()

    assert [kill.pid for kill in report.kills] == work.pids()[:-1]
    assert all(is_gone(pid) for pid in work.pids())


def test_the_time_from_a_restart_to_the_first_new_step_is_noted_for_restarts_only(work: Work) -> None:
    report = work.killer(replace(QUICK, early_share=0.0)).run()

    assert 0 < len(report.first_steps) <= report.restarts
    assert all(0 < seconds < QUICK.whole_time for seconds in report.first_steps)


def test_without_effects_in_flight_it_stops_at_the_most_kills(work: Work) -> None:
    plan = replace(QUICK, kills=2, on_effect=1, most_kills=3, patience=0.01)

    report = work.killer(plan, effects=False).run()

    assert (len(report.kills), report.on_effect) == (3, 0)


def test_an_effect_that_an_earlier_kill_left_in_flight_does_not_count_again(work: Work) -> None:
    killer = work.killer(replace(QUICK, kills=3, on_effect=0, patience=0.01))
    killer._in_flight = lambda: ["left behind by the first kill"]

    report = killer.run()

    assert [kill.on_effect for kill in report.kills] == [True, False, False]


def test_an_aimed_kill_waits_for_an_effect_that_is_worth_it_and_no_longer_than_its_patience(work: Work) -> None:
    plan = replace(QUICK, kills=1, on_effect=0, early_share=0.0, aimed_share=1.0, patience=0.5)
    killer = work.killer(plan, WORKER.replace("0.01", "0.05"))
    killer._worth = lambda _: False

    (kill,) = killer.run().kills

    assert kill.lived >= 0.5


def test_without_time_to_kill_the_worker_is_left_alone(work: Work) -> None:
    assert work.killer(replace(QUICK, killing_time=0.0)).run().kills == []


def test_a_worker_that_fails_by_itself_is_restarted_only_so_often(work: Work) -> None:
    program = "import sys; print('out of luck'); open(sys.argv[1] + '/begun', 'ab').write(b'.'); sys.exit(3)"

    with pytest.raises(DemoFailed) as failed:
        work.killer(replace(QUICK, most_crashes=2, early_share=0.0), program).run()

    assert work.count("begun") == 3
    assert Path(failed.value.log).read_text().split("\n")[0] == "out of luck"


def test_a_worker_that_never_ends_is_ended_with_the_time_of_the_demo(work: Work) -> None:
    killer = work.killer(replace(QUICK, kills=0, on_effect=0, whole_time=0.5), WORKER.replace("< 40", "< 10**9"))
    killer._progress = lambda: len(eventually(work.pids, saying="the worker runs"))

    with pytest.raises(DemoFailed):
        killer.run()

    assert work.pids() != []
    assert all(is_gone(pid) for pid in work.pids())


def test_a_seed_draws_the_same_ends_of_lives_every_time(work: Work) -> None:
    def ends(seed: int) -> list[object]:
        killer = work.killer(replace(QUICK, seed=seed))
        return [killer._draw() for _ in range(30)]

    assert ends(3) == ends(3)
    assert ends(3) != ends(4)


def test_someone_who_looks_on_sees_the_kills_grow(work: Work) -> None:
    seen: list[int] = []

    def look(report: Report) -> None:
        seen.append(len(report.kills))

    killer = work.killer(QUICK)
    killer._on_look = look
    killer.run()

    assert seen == sorted(seen)
    assert set(seen) >= set(range(1, QUICK.kills + 1))
