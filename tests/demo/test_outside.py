"""Starting and stopping the outside world: real processes, found and ended by their ids."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from milepost.cli.demo.failure import DemoFailed
from milepost.cli.demo.outside import Outside, Service
from tests.demo.processes import is_gone
from tests.polling import eventually

HOLD = """
import sys
from pathlib import Path
from milepost.cli.demo.outside import Service
services = [Service(name, Path(sys.argv[1]), 1) for name in ("payments", "mail")]
print(*[service.port() for service in services], flush=True)
sys.stdin.read()
"""


def listens(port: int) -> bool:
    """Whether somebody accepts connections there. Its process may be nobody's child, so its id would tell little."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            return True
    except ConnectionRefusedError:
        return False


def test_a_stopped_service_is_gone(tmp_path: Path) -> None:
    service = Service("payments", tmp_path, 1)
    service.port()

    service.stop()

    assert is_gone(service.pid)


def test_no_service_outlives_a_parent_that_was_killed(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with parent:
        assert parent.stdout is not None
        ports = [int(port) for port in parent.stdout.readline().split()]
        assert [listens(port) for port in ports] == [True, True]
        parent.send_signal(signal.SIGKILL)

    eventually(lambda: not any(listens(port) for port in ports), saying="both services ended")


def test_a_service_that_cannot_start_says_where_its_words_are(tmp_path: Path) -> None:
    (tmp_path / "payments.ledger").write_text("this is not a database, and long enough to be taken for a damaged one\n")

    with pytest.raises(DemoFailed) as failed:
        Outside(tmp_path, 1).__enter__()

    assert "NotADB" in Path(failed.value.log).read_text()
    assert failed.value.code == "demo_failed"
