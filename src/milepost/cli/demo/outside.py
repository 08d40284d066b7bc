"""Starts and stops the outside world of the demo: the payment service and the mail server."""

import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from milepost.cli.demo.failure import DemoFailed
from milepost.cli.demo.ledgers import Applied, Mail, MailLedger, PaymentsLedger

_START_SECONDS = 15.0
_STOP_SECONDS = 3.0
_LOOK_SECONDS = 0.01


class Service:
    """One service as a process. It ends with this process, however this process ends."""

    def __init__(self, name: str, folder: Path, seed: int) -> None:
        self.name = name
        self.ledger = folder / f"{name}.ledger"
        self._log = folder / f"{name}.log"
        self._port_file = folder / f"{name}.port"
        self._port_file.unlink(missing_ok=True)
        argv = [sys.executable, "-m", f"{__package__}.{name}", "--end-with-stdin", "--seed", str(seed)]
        argv += ["--ledger", str(self.ledger), "--port-file", str(self._port_file)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=log, stderr=log)  # noqa: S603 - ours

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def port(self) -> int:
        """The port it listens on. Waits for it; `DemoFailed` when the service ended or stayed silent."""
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            if self._port_file.exists():
                return int(self._port_file.read_text())
            if self._process.poll() is not None:
                break
            time.sleep(_LOOK_SECONDS)
        raise DemoFailed(f"the {self.name} service", "it did not start to listen", str(self._log))

    def stop(self) -> None:
        """End the process and wait until it is gone."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        for ask in (None, signal.SIGTERM, signal.SIGKILL):
            if ask is not None:
                self._process.send_signal(ask)
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                continue
            return


class Outside:
    """Both services, running in `folder` between enter and exit. Their ledgers stay there and can be read any time."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.seed = seed
        self.payments_port = 0
        self.mail_port = 0
        self._running = ExitStack()

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as starting:  # both at once; the ports are awaited after
            payments, mail = (Service(name, self.folder, self.seed) for name in ("payments", "mail"))
            starting.callback(payments.stop)
            starting.callback(mail.stop)
            self.payments_port = payments.port()
            self.mail_port = mail.port()
            self._running = starting.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._running.close()

    def applied(self) -> list[Applied]:
        """Every movement of money, from the payment service's own ledger."""
        ledger = PaymentsLedger(self.folder / "payments.ledger", read_only=True)
        try:
            return ledger.all_applied()
        finally:
            ledger.close()

    def faults_met(self) -> dict[str, int]:
        """How often the payment service misbehaved in each way."""
        ledger = PaymentsLedger(self.folder / "payments.ledger", read_only=True)
        try:
            return ledger.faults_met()
        finally:
            ledger.close()

    def mails(self) -> list[Mail]:
        """Every mail that arrived, from the mail server's own ledger."""
        ledger = MailLedger(self.folder / "mail.ledger", read_only=True)
        try:
            return ledger.all_mails()
        finally:
            ledger.close()
