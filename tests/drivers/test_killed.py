"""Workers and Temporal's server are killed in the middle of what they do, and nothing is done twice or lost.

No heartbeat helps here: with those of these tests Temporal would hear of a dead worker after five minutes. What helps
is that another worker finds the lock file of the dead one free, or its lease lapsed.
"""

import random
import signal
import time
from functools import partial

import pytest

from tests.crash.fleet import errands, gripping, holding, pressing
from tests.drivers import desk
from tests.drivers.floor import NO_HEARTBEAT_S, ON_BOTH, Floor
from tests.polling import eventually

AT_ONCE_S = 30.0  # on a machine with much to do; what it would take otherwise is ten times that


@ON_BOTH
def test_a_worker_killed_in_the_middle_of_an_effect_is_followed_at_once_by_another(floor: Floor) -> None:
    for _ in range(2):
        floor.work()
    run = floor.begin(holding, "door")
    eventually(lambda: floor.applied("hold"), saying="the door is held")

    floor.kill(floor.holder(run))
    killed = time.monotonic()

    assert floor.result(run) == ["door held", "door is on its way"]
    assert time.monotonic() - killed < AT_ONCE_S < NO_HEARTBEAT_S / 5
    assert floor.closed(run).name == "COMPLETED"
    assert len(floor.applied("hold")) == 1
    assert floor.judged() == []


def test_what_a_worker_was_about_to_do_when_it_died_is_not_done_again_but_asked(floor: Floor) -> None:
    dies = floor.work(dies="press bell:before")
    run = floor.begin(pressing, "bell")
    floor.died(dies)
    floor.work()
    floor.parked(run, "unknown")

    floor.typed("resolve", run, "pressing/press#1", "--happened", '"heard"', "--why", "I heard it", "--by", "ann")

    assert floor.result(run) == "heard"
    assert floor.closed(run).name == "COMPLETED"
    assert floor.applied("press") == []


@ON_BOTH
def test_the_server_killed_in_the_middle_of_an_effect_finds_it_done_when_it_is_back(floor: Floor) -> None:
    floor.work()
    run = floor.begin(holding, "door")
    eventually(lambda: floor.applied("hold"), saying="the door is held")

    floor.server.kill()
    floor.go()
    eventually(lambda: floor.run(run).status == "done", saying="the worker finishes what it has begun")
    floor.server.start()

    assert floor.closed(run).name == "COMPLETED"
    assert floor.judged() == []


@ON_BOTH
def test_a_verb_that_was_typed_while_the_server_was_dead_wakes_the_run_when_it_is_back(floor: Floor) -> None:
    floor.work()
    run = floor.begin(desk.asking, "name")
    floor.parked(run, "signal")

    floor.server.kill()
    floor.typed("send", run, "name", '"Ada"')
    floor.server.start()

    assert floor.result(run) == "Ada"
    assert floor.closed(run).name == "COMPLETED"


@ON_BOTH
def test_worker_and_server_killed_together_go_on_where_they_were(floor: Floor) -> None:
    floor.work()
    run = floor.begin(holding, "door")
    eventually(lambda: floor.applied("hold"), saying="the door is held")

    floor.server.kill()
    floor.kill(*floor.processes)
    floor.server.start()
    floor.work()

    assert floor.result(run) == ["door held", "door is on its way"]
    assert floor.closed(run).name == "COMPLETED"
    assert len(floor.applied("hold")) == 1
    assert floor.judged() == []


def test_a_server_that_has_lost_everything_is_told_of_every_run_again(floor: Floor) -> None:
    floor.work()
    run = floor.begin(desk.asking, "name")
    floor.parked(run, "signal")

    floor.server.kill()
    for part in floor.server.folder.glob("state.db*"):
        part.unlink()
    floor.server.start()
    floor.typed("send", run, "name", '"Ada"')

    assert floor.result(run) == "Ada"
    assert floor.closed(run).name == "COMPLETED"


def has_paid(floor: Floor, done: int) -> bool:
    return len(floor.applied("pay")) >= done


@ON_BOTH
def test_runs_end_once_each_however_often_workers_and_the_server_are_killed(floor: Floor) -> None:
    chance = random.Random(5)
    for _ in range(2):
        floor.work()
    runs = [floor.begin(errands, f"order {number}") for number in range(6)]

    for done in (3, 12, 24):
        eventually(partial(has_paid, floor, done), within_s=60, saying="some of it is done")
        if chance.random() < 0.5:
            floor.server.kill()
            floor.server.start()
        floor.kill(floor.processes[-1])
        floor.work()
    for run in runs:
        assert len(floor.result(run)) == 6

    assert [floor.closed(run).name for run in runs] == ["COMPLETED"] * 6
    assert len(floor.applied("carry")) == len(floor.applied("pay")) == 36
    assert floor.judged() == []


@ON_BOTH
def test_a_worker_frozen_past_its_lease_is_taken_over_and_only_gives_evidence_when_it_thaws(floor: Floor) -> None:
    frozen = floor.work(freezes="press bell:before", lease="3s")
    run = floor.begin(pressing, "bell")
    eventually(lambda: floor.run(run).owner is not None, saying="it is held")
    epoch = floor.run(run).epoch
    floor.work(lease="3s")
    floor.parked(run, "unknown")

    frozen.send_signal(signal.SIGCONT)

    assert floor.result(run) == "bell pressed"  # its evidence, in the inbox, says what a person would have had to say
    assert floor.run(run).epoch > epoch
    assert floor.closed(run).name == "COMPLETED"  # whichever activity it was that came to the end
    assert len(floor.applied("press")) == 1
    assert floor.judged() == []


def test_a_worker_whose_loop_hangs_is_ended_by_its_watchdog_and_followed_by_another(floor: Floor) -> None:
    hangs = floor.work()
    run = floor.begin(desk.knocking, "the door")
    eventually(lambda: floor.applied("knock"), saying="its loop hangs, while a thread goes on to renew its lease")
    floor.work()

    floor.died(hangs)

    assert floor.result(run) == "heard at the door"
    assert len(floor.applied("knock")) == 1
    assert floor.judged() == []


def test_a_worker_with_a_call_that_does_not_let_go_of_a_killed_run_is_ended(floor: Floor) -> None:
    holds = floor.work()
    run = floor.begin(gripping, "door")
    eventually((floor.folder / "gripping").exists, saying="a thread has it")

    floor.typed("kill", run, "--why", "the wrong door", "--by", "ann")

    floor.died(holds)
    floor.work()
    assert floor.closed(run).name == "FAILED"
    assert floor.applied("grip") == []


def test_a_task_that_a_worker_took_and_never_began_is_given_to_another_after_a_heartbeat(floor: Floor) -> None:
    stopped = floor.work(heartbeat_s=2)
    stopped.send_signal(signal.SIGSTOP)  # what the server sends it now, it never reads
    runs = [floor.begin(desk.one, f"lamp {number}", heartbeat_s=2) for number in range(4)]
    floor.work(heartbeat_s=2)

    assert [floor.result(run) for run in runs] == [f"lamp {number} placed" for number in range(4)]
    assert floor.judged() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_is_told_to_leave_gives_its_runs_to_another(floor: Floor, number: signal.Signals) -> None:
    leaving = floor.work()
    run = floor.begin(errands, "order")
    eventually(lambda: floor.applied("carry"), saying="it is under way")
    floor.work()

    leaving.send_signal(number)

    assert leaving.wait(60) == 0
    assert len(floor.result(run)) == 6
    assert floor.closed(run).name == "COMPLETED"
    assert floor.judged() == []
