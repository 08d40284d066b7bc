"""`milepost worker` as a process of its own: signals, death, takeover, and stopping a run from outside."""

import json
import os
import resource
import signal
import subprocess
import sys

import pytest

from tests.cli.shop_floor import Shop
from tests.polling import eventually

SMALL_BYTES = 400_000


def in_flight(shop: Shop, order: str = "hangs") -> str:
    """Start a run whose effect hangs in a real worker; return its id once the effect has happened outside."""
    run = shop.start("buy", order)
    eventually(lambda: f"{order} 500" in shop.ledger(), saying="the effect is in flight")
    return run


def test_it_drives_runs_until_the_first_signal_and_then_gives_every_run_back(shop: Shop) -> None:
    worker = shop.worker()
    done = shop.start("buy", "one")
    eventually(lambda: shop.status(done) == "done")
    waiting = shop.start("listening")
    eventually(lambda: shop.status(waiting) == "parked")

    worker.send_signal(signal.SIGTERM)

    assert worker.wait(timeout=60) == 0
    assert "SIGTERM: finishing what is in flight" in shop.log(worker)
    assert "given every run back" in shop.log(worker)
    assert [row["worker"] for row in shop.read("runs")] == [None, None]
    assert shop.milepost("doctor").exit_code == 0


def test_the_first_signal_lets_what_is_in_flight_finish_within_the_grace(shop: Shop) -> None:
    (shop.folder / "shop.py").write_text((shop.folder / "shop.py").read_text().replace("wait(60)", "wait(1)"))
    worker = shop.worker("--grace", "20s")
    run = in_flight(shop)

    worker.send_signal(signal.SIGINT)

    assert worker.wait(timeout=60) == 0
    shop.drive()
    assert shop.status(run) == "done"
    names = [line["entry"] for line in shop.read("journal", run)]
    assert "effect_unknown" not in names
    assert shop.ledger() == ["hangs 500"]


def test_after_the_grace_what_still_hangs_is_unknown_and_the_process_leaves(shop: Shop) -> None:
    """Requirement 66."""
    worker = shop.worker("--grace", "300ms")
    run = in_flight(shop)

    worker.send_signal(signal.SIGTERM)

    assert worker.wait(timeout=60) == 0
    names = [line["entry"] for line in shop.read("journal", run)]
    assert "effect_unknown" in names
    shop.drive()
    assert shop.status(run) == "done"
    assert shop.ledger() == ["hangs 500"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_second_signal_ends_it_at_once_and_the_next_worker_finds_out(shop: Shop, number: signal.Signals) -> None:
    """Requirement 18. Requirement 69."""
    worker = shop.worker("--grace", "60s")
    run = in_flight(shop)

    worker.send_signal(number)
    eventually(lambda: "finishing what is in flight" in shop.log(worker))
    worker.send_signal(number)

    assert worker.wait(timeout=30) == 128 + number
    shop.worker()
    eventually(lambda: shop.status(run) == "done")
    names = [line["entry"] for line in shop.read("journal", run)]
    assert names.index("effect_started") < names.index("effect_unknown") < names.index("effect_confirmed")
    assert shop.ledger() == ["hangs 500"]


def test_a_killed_workers_runs_go_on_in_the_next_one_with_one_consistent_result(shop: Shop) -> None:
    """Requirement 69. Requirement 33."""
    worker = shop.worker()
    run = in_flight(shop)
    for _ in range(3):
        worker.kill()
        worker.wait()
        worker = shop.worker()
    eventually(lambda: shop.status(run) == "done")

    assert shop.read("show", run)["result"] == "receipt for hangs"
    assert shop.ledger() == ["hangs 500"]
    assert shop.read("verify", run)["sound"]


def test_a_run_is_killed_from_another_process_while_its_tool_hangs(shop: Shop) -> None:
    """Requirement 66. Requirement 60."""
    worker = shop.worker("--grace", "60s")  # within which nobody ends it for the thread that hangs
    run = in_flight(shop)

    ran = shop.process("kill", run[:8], "--why", "it hangs", "--json")

    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert told["unknown"] == [{"run": run, "path": "buy/charge#1"}]
    assert shop.status(run) == "killed"
    assert worker.poll() is None
    other = shop.start("buy", "one")
    eventually(lambda: shop.status(other) == "done", saying="the worker goes on with other runs")
    eventually(lambda: shop.read("effects", run) == [], saying="what was in flight is found out, and nothing is sent")
    names = [line["entry"] for line in shop.read("journal", run)]
    assert "attempt_quieted" not in names, "its thread still runs, so it may still act"
    assert shop.ledger() == ["hangs 500", "one 500"]


def test_a_cancel_from_another_process_is_not_overwritten_by_what_the_worker_writes_next(shop: Shop) -> None:
    """Requirement 66. Requirement 60. It is a message that the worker takes, beside whatever it records itself."""
    until_told = "[HANGS.wait(0.02) for _ in iter(Path('go').exists, True)]"
    code = (shop.folder / "shop.py").read_text().replace("HANGS.wait(60)", until_told)
    (shop.folder / "shop.py").write_text(code)
    shop.worker()
    run = shop.start("staged", "hangs")
    eventually(lambda: "hangs 500" in shop.ledger(), saying="the first segment is in flight")

    assert shop.process("cancel", run, "--why", "enough", "--by", "ann").returncode == 0
    eventually(lambda: "cancel_asked" in [line["entry"] for line in shop.read("journal", run)])
    (shop.folder / "go").touch()

    eventually(lambda: shop.status(run) == "cancelled")
    names = [line["entry"] for line in shop.read("journal", run)]
    assert names.index("cancel_asked") < names.index("effect_confirmed") < names.index("run_stopped")
    assert "approval_asked" not in names, "nothing new was started after it"


def test_only_so_many_runs_are_driven_together(shop: Shop) -> None:
    shop.worker("--together", "1")
    in_flight(shop, "hangs")
    second = shop.start("buy", "two")

    for _ in range(20):
        assert shop.status(second) == "ready"
    assert shop.ledger() == ["hangs 500"]


def test_it_ends_with_code_4_when_its_store_fails(shop: Shop) -> None:
    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (SMALL_BYTES, SMALL_BYTES))

    worker = shop.worker(preexec_fn=small_files)
    for number in range(20):
        shop.start("buy", f"{number} " + "x" * 20_000)

    assert worker.wait(timeout=60) == 4
    log = shop.log(worker)
    assert "[store_failed]" in log
    assert "Traceback" not in log
    assert shop.milepost("verify").exit_code == 0


def test_its_log_is_json_on_request_and_safe_for_a_terminal_otherwise(shop: Shop) -> None:
    worker = shop.worker("--json")
    worker.terminate()
    assert worker.wait(timeout=60) == 0

    lines = [json.loads(line) for line in shop.log(worker).splitlines()]

    assert [line["level"] for line in lines] == ["info"] * 3
    assert "drives" in lines[0]["message"]


def test_a_worker_without_an_app_ends_at_once_with_one_line(shop: Shop) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "MILEPOST_APP"}

    ran = shop.process("worker", "--store", "shop.db", env=environment)

    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("milepost: ")
    assert ran.stderr.count("\n") == 1


def test_exit_codes_reach_the_caller_of_a_real_process(shop: Shop) -> None:
    run = shop.start("buy", "one")
    shop.drive()

    codes = [
        shop.process(*args).returncode
        for args in (["runs"], ["cancel", run], ["show", "ffff"], ["runs", "--store", "gone.db"], ["rusn"])
    ]

    assert codes == [0, 5, 3, 4, 2]


def heeds_sigint() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_an_interrupted_command_ends_with_code_130(shop: Shop) -> None:
    command = [sys.executable, "-m", "milepost", "start", "sleeping", "--wait"]
    pipe = subprocess.PIPE
    # Whoever runs the tests in the background of a shell has SIGINT ignored, and every process below it inherits that.
    process = subprocess.Popen(command, cwd=shop.folder, stdout=pipe, stderr=pipe, text=True, preexec_fn=heeds_sigint)  # noqa: PLW1509  it only sets a disposition
    shop.workers.append(process)
    assert process.stderr is not None
    assert "No worker is running" in process.stderr.readline()

    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)

    assert process.returncode == 130
    assert "interrupted" in error
    assert "Traceback" not in error
