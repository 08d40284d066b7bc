"""A service as a process of its own: it says where it listens, and ends with whoever started it, however that ends."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread

LOOPBACK = "127.0.0.1"
START_S = 20.0
STOP_S = 3.0
LOOK_S = 0.005


class NotStarted(Exception):
    """A service of the test world did not start to listen; its log says why."""


class Service:
    """One service, seen from the process that started it: `python -m MODULE --folder … --port-file …`."""

    def __init__(self, module: str, folder: Path, *options: str, called: str = "") -> None:
        self.name = called or module.rpartition(".")[2]
        self._log = folder / f"{self.name}.log"
        self._port_file = folder / f"{self.name}.port"
        self._port_file.unlink(missing_ok=True)
        argv = [sys.executable, "-m", module, "--folder", str(folder), "--port-file", str(self._port_file), *options]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=log, stderr=log)  # noqa: S603  ours

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def port(self) -> int:
        """Return the port it listens on, as soon as it does. Raises NotStarted."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if self._port_file.exists():
                return int(self._port_file.read_text())
            if self._process.poll() is not None:
                break
            time.sleep(LOOK_S)
        raise NotStarted(f"{self.name} did not start to listen: {self._log.read_text()[-2_000:]}")

    def stop(self) -> None:
        """End the process and wait until it is gone."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        for ask in (None, signal.SIGTERM, signal.SIGKILL):
            if ask is not None:
                self._process.send_signal(ask)
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                continue
            return


def arguments(what: str) -> argparse.ArgumentParser:
    """Return the command line of a service."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--folder", type=Path, required=True, help="where the rules of the accounts and the ledger are")
    parser.add_argument("--port-file", type=Path, required=True, help="written with the port once it listens")
    return parser


def announce(port_file: Path, port: int) -> None:
    """Write the port so that a reader sees the whole number or no file."""
    part = port_file.with_suffix(".part")
    part.write_text(f"{port}\n")
    part.replace(port_file)


def end_with_stdin() -> None:
    """End this process when its standard input ends: the parent holds the other end, and it closes with the parent."""

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 1):
            continue
        os._exit(0)

    Thread(target=wait, name="end-with-stdin", daemon=True).start()
