"""Several workers on one store: killed, frozen, drained, taken over."""

import random
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from milepost.core import entries as e
from tests.crash import fleet
from tests.crash.killing import journals, judged, told_of
from tests.crash.workers import Fleet, fleet_in, is_stopped
from tests.crash.world import World
from tests.polling import eventually

AT_ONCE_S = 15  # on a machine with much to do; the lease would last for twenty at least
SHORT = "1s"  # long enough for a worker to keep it until it freezes


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Fleet]:
    with fleet_in(tmp_path) as made:
        yield made


def test_a_dead_worker_is_taken_over_at_once_although_its_lease_lasts(workers: Fleet, tmp_path: Path) -> None:
    """Requirement 69. The kernel drops the lock of a process that ends, however it ends."""
    for _ in range(3):
        workers.start(lease="30s")
    run = workers.begin(fleet.holding, "door")
    eventually(lambda: World(tmp_path).lines(), saying="the effect was applied")
    (dead,) = workers.holding()
    dead.send_signal(signal.SIGKILL)
    dead.wait()
    (tmp_path / "go").touch()

    eventually(lambda: workers.run(run).epoch == 2, within_s=AT_ONCE_S, saying="another worker claimed the run")
    assert workers.result(run) == ["door held", "door is on its way"]
    unknown = next(entry for entry in journals(tmp_path)[0] if isinstance(entry, e.EffectUnknown))
    assert unknown.died
    assert [line.attempt for line in World(tmp_path).lines()] == [1, 1]
    assert judged(tmp_path) == []


def test_a_frozen_worker_that_wakes_after_its_lease_neither_sends_nor_writes(workers: Fleet, tmp_path: Path) -> None:
    """It stopped between a durable `started` and the send; awake again it says that it never sent, and that is used."""
    frozen = workers.start(fleet.STOP_BEFORE_SENDING, lease="2s")
    run = workers.begin(fleet.both, "red")
    eventually(lambda: is_stopped(frozen), saying="the worker stopped before it sent")
    workers.start()
    eventually(lambda: any(effect.person for effect in workers.effects(run)), saying="the other one asks a person")
    assert World(tmp_path).lines() == []

    frozen.send_signal(signal.SIGCONT)

    assert workers.result(run) == ["red placed", "red pressed"]
    applied = {line.tool: line.attempt for line in World(tmp_path).lines()}
    assert applied == {"place": 2, "press": 2}, "sent by the owner alone, on the word of the one that had lost the run"
    for tool in ("place", "press"):
        failed = next(entry for entry in told_of(tmp_path, tool) if isinstance(entry, e.EffectFailed))
        assert (failed.by, failed.reason, failed.attempt) == ("evidence", "not_sent", 1)
    assert frozen.poll() is None, "it lost a run, not its life"
    assert judged(tmp_path) == []


def test_what_a_frozen_worker_did_before_it_lost_the_run_settles_it_when_it_wakes(
    workers: Fleet, tmp_path: Path
) -> None:
    frozen = workers.start(lease=SHORT, at="press red:applied")
    run = workers.begin(fleet.pressing, "red")
    eventually(lambda: is_stopped(frozen), saying="the worker stopped after the world had applied it")
    workers.start()
    eventually(lambda: any(effect.person for effect in workers.effects(run)), saying="the other one asks a person")

    frozen.send_signal(signal.SIGCONT)

    assert workers.result(run) == "red pressed"
    confirmed = next(entry for entry in told_of(tmp_path, "press") if isinstance(entry, e.EffectConfirmed))
    assert (confirmed.by, confirmed.attempt) == ("evidence", 1)
    assert len(World(tmp_path).lines()) == 1
    assert judged(tmp_path) == []


def test_an_absence_proves_nothing_while_a_frozen_worker_may_still_act(workers: Fleet, tmp_path: Path) -> None:
    frozen = workers.start(lease=SHORT, at="place cup:before")
    run = workers.begin(fleet.placing, "cup")
    eventually(lambda: is_stopped(frozen), saying="the worker stopped before the world applied it")
    workers.start()
    eventually(lambda: workers.run(run).reason == "unknown", saying="the other one asked, and waits")
    assert 1 <= len(_asked(tmp_path, "place")) <= 3

    frozen.send_signal(signal.SIGCONT)  # and it acts: what its code does after the send began is beyond us

    assert workers.result(run) == "cup placed"
    assert [line.attempt for line in World(tmp_path).lines()] == [1]
    assert judged(tmp_path) == []


def test_a_drained_worker_finishes_what_is_in_flight_and_starts_nothing_new(workers: Fleet, tmp_path: Path) -> None:
    drained = workers.start()
    run = workers.begin(fleet.holding, "door")
    eventually(lambda: World(tmp_path).lines(), saying="the effect was applied")
    drained.send_signal(signal.SIGTERM)
    eventually((tmp_path / "draining").exists)
    (tmp_path / "go").touch()

    assert drained.wait(timeout=60) == 0
    row = workers.run(run)
    assert (row.status, row.owner) == ("ready", None)
    told = [type(entry) for entry in told_of(tmp_path, "hold")]
    assert told == [e.EffectStarted, e.EffectConfirmed]
    assert told_of(tmp_path, "ship") == []

    workers.start()
    assert workers.result(run) == ["door held", "door is on its way"]
    assert judged(tmp_path) == []


def test_a_drain_whose_grace_ends_leaves_unknown_and_the_next_worker_finds_out(workers: Fleet, tmp_path: Path) -> None:
    drained = workers.start(grace="200ms")
    run = workers.begin(fleet.holding, "door")
    eventually(lambda: World(tmp_path).lines(), saying="the effect was applied")
    drained.send_signal(signal.SIGTERM)

    assert drained.wait(timeout=60) == 0
    assert [type(entry) for entry in told_of(tmp_path, "hold")] == [e.EffectStarted, e.EffectUnknown]
    workers.start()
    assert workers.result(run) == ["door held", "door is on its way"]
    assert [line.attempt for line in World(tmp_path).lines()] == [1, 1]
    assert judged(tmp_path) == []


def test_a_thread_that_outlives_its_worker_is_not_quiet(workers: Fleet, tmp_path: Path) -> None:
    """The worker closed in good order, and its process goes on, with a tool in a thread that nobody can end."""
    left = workers.start(fleet.STAYS, grace="100ms")
    run = workers.begin(fleet.gripping, "door")
    eventually((tmp_path / "gripping").exists, saying="the thread waits")
    left.send_signal(signal.SIGTERM)
    eventually((tmp_path / "closed").exists, saying="its worker closed")

    workers.start()
    eventually(lambda: len(_asked(tmp_path, "grip")) > 1, saying="the next worker asked twice, and it is not there")
    (tmp_path / "go").touch()

    assert workers.result(run) == "door gripped"
    assert [line.attempt for line in World(tmp_path).lines()] == [1]
    assert judged(tmp_path) == []


def test_workers_that_are_killed_again_and_again_share_twenty_runs_without_one_repeated_effect(
    workers: Fleet, tmp_path: Path, tell: Callable[[str], None]
) -> None:
    """Requirement 33. Requirement 69."""
    workers.start()
    workers.start()
    runs = [workers.begin(fleet.errands, f"order-{number}") for number in range(20)]
    chance = random.Random(7)
    for kill in range(1, 6):
        eventually(partial(_has_lines, tmp_path, 30 * kill), saying="work goes on")
        victim = chance.choice(eventually(workers.holding))
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        workers.start(waits=False)

    for number, run in enumerate(runs):
        assert workers.result(run) == [f"parcel {errand} of order-{number} paid" for errand in range(fleet.ERRANDS)]
    applied = [(line.tool, str(line.args)) for line in World(tmp_path).lines()]
    assert len(applied) == len(set(applied)) == 20 * 2 * fleet.ERRANDS
    assert judged(tmp_path) == []
    lost = [entry for entries in journals(tmp_path) for entry in entries if isinstance(entry, e.EffectUnknown)]
    tell(f"twenty runs: {len(lost)} of {len(applied)} effects were in flight at one of 5 kills")
    assert lost


def _has_lines(folder: Path, count: int) -> bool:
    return len(World(folder).lines()) >= count


def _asked(folder: Path, effect: str) -> list[e.Entry]:
    return [entry for entry in told_of(folder, effect) if isinstance(entry, e.FindingRecorded)]
