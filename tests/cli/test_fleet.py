"""A worker as others see it: probes, metrics, draining; queues and schedules, as people list them."""

import re
import signal
import subprocess
import urllib.error
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from milepost.cli import probes
from milepost.errors import ExtraMissing
from tests.cli.shop_floor import Shop
from tests.polling import eventually

SCHEDULED = """
app.schedule(buy, "0 2 * * *", "nightly", key="nightly", tz="Europe/Riga", queue="slow")
app.limit("slow", together=1)
"""


def port_of(shop: Shop, worker: "subprocess.Popen[str]") -> int:
    eventually(lambda: "on port" in shop.log(worker), saying="the worker answers")
    found = re.search(r"on port (\d+)", shop.log(worker))
    assert found is not None
    return int(found[1])


def ask(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def samples(port: int) -> dict[tuple[str, ...], float]:
    """Return the metrics by name and label."""
    _, text = ask(port, "/metrics")
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_worker_answers_probes_and_metrics_and_stops_being_ready_before_it_has_drained(shop: Shop) -> None:
    """Requirement 13."""
    worker = shop.worker("--grace", "30s", "--metrics", "127.0.0.1:0", "--concurrency", "7")
    port = port_of(shop, worker)
    assert ask(port, "/live") == (200, "ok")
    assert ask(port, "/ready") == (200, "ok")
    assert ask(port, "/other")[0] == 404
    assert ask(port, "/live", "POST")[0] == 405
    assert ask(port, "/live", "HEAD") == (200, "")
    run = shop.start("buy", "hangs")
    eventually(lambda: "hangs 500" in shop.ledger(), saying="the effect is in flight")
    found = samples(port)
    assert found["milepost_worker_runs_driven",] == 1
    assert found["milepost_worker_room",] == 6
    assert found["milepost_queue_held", "default"] == 1
    assert found["milepost_runs", "running"] == 1
    assert 0 < found["milepost_worker_lease_left_seconds",] <= 90

    worker.send_signal(signal.SIGTERM)

    eventually(lambda: ask(port, "/ready") == (503, "draining"), saying="it is not ready any more")
    assert ask(port, "/live") == (200, "ok")
    assert shop.status(run) == "running"
    assert worker.poll() is None


def test_a_worker_that_everything_was_stopped_for_is_not_ready(shop: Shop) -> None:
    worker = shop.worker("--metrics", "127.0.0.1:0", "--no-supervisor")
    port = port_of(shop, worker)
    shop.ok("stop", "--hard", "--why", "looking")

    assert ask(port, "/ready") == (503, "stopped by the stop file")
    assert ask(port, "/live") == (200, "ok")


def test_a_worker_of_one_queue_drives_its_runs_alone_also_under_its_supervisor(shop: Shop) -> None:
    other = shop.start("buy", "other")
    mine = shop.start("buy", "mine", "--queue", "slow", "--priority", "3", "--group", "ann")
    assert shop.read("queues") == [
        {"queue": "default", "waiting": 1, "since": shop.read("queues")[0]["since"], "driven": 0},
        {"queue": "slow", "waiting": 1, "since": shop.read("queues")[1]["since"], "driven": 0},
    ]
    shop.worker("--queue", "slow")

    eventually(lambda: shop.status(mine) == "done")

    assert shop.status(other) == "ready"
    assert "default" in shop.ok("queues")
    assert "slow" not in shop.ok("queues")


def test_a_run_that_begins_later_is_left_until_then(shop: Shop) -> None:
    run = shop.start("buy", "later", "--begins", "1h")
    shop.drive()

    assert shop.status(run) == "ready"
    assert "No run waits" in shop.ok("queues")
    assert shop.milepost("start", "buy", '"x"', "--begins", "soon").exit_code == 2


def test_schedules_are_listed_with_their_next_tick(shop: Shop) -> None:
    assert "Nothing is scheduled" in shop.ok("schedules")
    program = shop.folder / "shop.py"
    program.write_text(program.read_text() + SCHEDULED)
    worker = shop.worker()
    eventually(lambda: bool(shop.read("schedules")))
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(timeout=60) == 0

    (row,) = shop.read("schedules")

    assert (row["schedule"], row["cron"], row["tz"], row["queue"]) == ("nightly", "0 2 * * *", "Europe/Riga", "slow")
    assert (row["last_run"], row["late"]) == (None, False)
    assert "nightly" in shop.ok("schedules")


@pytest.mark.parametrize("given", ["9464", "127.0.0.1:", "127.0.0.1:port", "127.0.0.1:70000", ":9464"])
def test_what_is_no_address_is_refused(shop: Shop, given: str) -> None:
    result = shop.milepost("worker", "--metrics", given)

    assert result.exit_code == 2
    assert "HOST:PORT" in result.output


def test_without_the_library_metrics_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(probes, "import_module", missing)

    with pytest.raises(ExtraMissing, match=r"milepost\[metrics\]"):
        probes.library()
    assert probes.address_of("[::1]:80") == ("::1", 80)
