"""A worker that cannot end itself is ended from outside, with all that it has started, and started again."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

from milepost.cli import supervisor
from tests.cli.shop_floor import Shop
from tests.cli.test_worker import in_flight
from tests.polling import eventually

FROZEN = "2s"  # longer than a machine with much to do keeps a worker from its beat
WOULD_TAKE_S = 60  # without being ended from outside: so long a call blocks

PROGRAM = """
import asyncio, os, subprocess, sys, time
from pathlib import Path
import milepost as mp

LEDGER = Path("ledger.txt")


def note(line):
    with LEDGER.open("a") as ledger:
        ledger.write(line + "\\n")


@mp.tool(effect="queryable", visible_within="0s", timeout="100s")
async def charge(order: str) -> str:
    note(order)
    if order.startswith("blocks"):
        time.sleep(60)  # the whole event loop stands
    if order.startswith("keeps"):
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                pass  # keeps its cancellation to itself
    if order.startswith("starts"):
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        Path("grandchild.part").write_text(str(child.pid))
        Path("grandchild.part").rename("grandchild")
        await asyncio.sleep(60)
    return f"receipt for {order}"


@charge.reconcile
def find(order: str) -> mp.Finding[str]:
    return mp.happened(f"receipt for {order}") if order in LEDGER.read_text().splitlines() else mp.did_not_happen()


@mp.workflow(version="1", tools=[charge])
async def buy(run: mp.Run, order: str) -> str:
    return await charge(order)


app = mp.App("sqlite:///shop.db", workflows=[buy])
"""


@pytest.fixture
def floor(shop: Shop) -> Shop:
    (shop.folder / "shop.py").write_text(PROGRAM)
    return shop


def begin(shop: Shop, order: str) -> str:
    run = shop.start("buy", order)
    eventually(lambda: order in shop.ledger(), saying="it is in flight")
    return run


def child_of(supervisor: int) -> int:
    """The worker's own process."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == supervisor:
            return int(path.parent.name)
    raise AssertionError("it has no child")


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_worker_whose_event_loop_stands_is_killed_and_started_again(floor: Shop) -> None:
    """Requirement 66. What was in flight is unknown, and found out by the next life."""
    worker = floor.worker("--frozen", FROZEN)
    run = begin(floor, "blocks")

    eventually(lambda: floor.status(run) == "done")

    assert floor.ledger() == ["blocks"]
    assert "no sign of life for 2 s" in floor.log(worker)
    assert "started again (1 of 5)" in floor.log(worker)
    names = [line["entry"] for line in floor.read("journal", run)]
    assert names.index("effect_started") < names.index("effect_unknown") < names.index("effect_confirmed")
    assert worker.poll() is None


def test_a_stopped_worker_is_killed_and_started_again(floor: Shop) -> None:
    """Requirement 66. SIGSTOP leaves it its locks and its lease, and nobody else can help."""
    worker = floor.worker("--frozen", FROZEN)
    process = child_of(worker.pid)
    first = floor.start("buy", "zero")
    eventually(lambda: floor.status(first) == "done", saying="it lives")

    os.kill(process, signal.SIGSTOP)

    eventually(lambda: floor.log(worker).count(" drives ") >= 2)
    assert gone(process)
    run = floor.start("buy", "one")
    eventually(lambda: floor.status(run) == "done")


def test_a_worker_that_holds_the_store_s_lock_for_too_long_is_killed(floor: Shop) -> None:
    """Requirement 66. Frozen inside a transaction, it keeps everybody else from writing, a kill as well."""
    (floor.folder / "shop.py").write_text(
        PROGRAM
        + """
from milepost.stores.sqlite.writing import Batch

together = Batch.together


def stands(self, appends):
    together(self, appends)
    if Path("freeze").exists():
        Path("freeze").unlink()
        time.sleep(60)  # the lock is held


Batch.together = stands
"""
    )
    worker = floor.worker("--frozen", FROZEN)
    (floor.folder / "freeze").touch()
    run = floor.start("buy", "one")

    eventually(lambda: floor.status(run) == "done")

    assert "no sign of life" in floor.log(worker)
    assert floor.ledger() == ["one"]


@pytest.mark.parametrize("order", ["keeps", "blocks"])
def test_a_call_of_a_killed_run_that_does_not_let_go_ends_its_worker_within_the_grace(floor: Shop, order: str) -> None:
    """Requirement 66. A call that keeps its cancellation to itself, and one that blocks the whole loop."""
    worker = floor.worker("--grace", "1s")
    process = child_of(worker.pid)
    run = begin(floor, order)

    told = json.loads(floor.process("kill", run, "--why", "it hangs", "--json").stdout)
    began = time.monotonic()

    assert told["unknown"] == [{"run": run, "path": "buy/charge#1"}]
    eventually(lambda: gone(process))
    assert time.monotonic() - began < WOULD_TAKE_S / 2
    eventually(lambda: floor.log(worker).count(" drives ") >= 2)
    assert "has not let go within the grace" in floor.log(worker)
    assert floor.status(run) == "killed"
    assert floor.ledger() == [order], "nothing resumes by itself"


def test_a_killed_run_whose_calls_let_go_ends_no_worker(floor: Shop) -> None:
    worker = floor.worker("--grace", "30s")
    process = child_of(worker.pid)
    run = begin(floor, "starts")

    floor.ok("kill", run, "--why", "enough")

    eventually(lambda: not list(floor.folder.glob("shop.db.workers/*.kill")), saying="the mark is taken back")
    other = floor.start("buy", "one")
    eventually(lambda: floor.status(other) == "done")
    assert child_of(worker.pid) == process
    os.kill(int((floor.folder / "grandchild").read_text()), signal.SIGKILL)


def test_what_a_tool_has_started_ends_with_its_worker(floor: Shop) -> None:
    worker = floor.worker("--grace", "100ms")
    begin(floor, "starts")
    eventually((floor.folder / "grandchild").exists, saying="its process runs")
    grandchild = int((floor.folder / "grandchild").read_text())
    assert not gone(grandchild)

    worker.send_signal(signal.SIGTERM)

    assert worker.wait(timeout=60) == 0
    eventually(lambda: gone(grandchild))


def test_a_worker_that_does_not_leave_within_its_grace_is_killed(floor: Shop) -> None:
    worker = floor.worker("--grace", "200ms")
    begin(floor, "blocks")

    worker.send_signal(signal.SIGTERM)

    assert worker.wait(timeout=60) == 128 + signal.SIGKILL
    assert "was asked to leave" in floor.log(worker)


def test_a_hard_stop_kills_the_worker_and_lifting_it_starts_it_again(floor: Shop) -> None:
    """Requirement 66. Requirement 60. No database is asked; what was in flight is found out afterwards."""
    worker = floor.worker()
    process = child_of(worker.pid)
    run = begin(floor, "starts")

    floor.ok("stop", "--hard", "--why", "a fire")

    eventually(lambda: gone(process))
    eventually(lambda: "starts again once that is lifted" in floor.log(worker))
    second = floor.start("buy", "two")
    assert floor.ledger() == ["starts"]
    floor.ok("stop", "--lift", "--why", "it is out")
    eventually(lambda: floor.status(second) == "done")
    eventually(lambda: floor.status(run) == "done")
    assert floor.ledger() == ["starts", "two"]
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(timeout=60) == 0


def test_a_worker_that_somebody_kills_is_started_again_but_not_for_ever(floor: Shop) -> None:
    """Requirement 69."""
    worker = floor.worker()
    os.kill(child_of(worker.pid), signal.SIGKILL)
    eventually(lambda: floor.log(worker).count(" drives ") >= 2)

    watching = supervisor.Supervisor(["sh", "-c", "kill -9 $$"], grace_s=1, frozen_s=1)
    watching._pause = lambda restarts: restarts <= supervisor.RESTARTS_MOST  # type: ignore[method-assign]
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        assert watching.run() == 128 + signal.SIGKILL
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_the_worker_ends_when_its_supervisor_is_killed(floor: Shop) -> None:
    worker = floor.worker()
    process = child_of(worker.pid)

    worker.kill()

    eventually(lambda: gone(process))


def test_a_worker_without_a_supervisor_drives_as_well(shop: Shop) -> None:
    worker = shop.worker("--no-supervisor")
    run = in_flight(shop)

    worker.send_signal(signal.SIGTERM)
    worker.send_signal(signal.SIGTERM)

    assert worker.wait(timeout=60) in {128 + signal.SIGTERM, 0}
    assert shop.status(run) != "done"
