"""Starting, watching and ending workers, from the side of who runs the faults."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import msgspec

from faults import strace
from faults.zygote import Order

ROOT = Path(__file__).resolve().parent.parent
LOOK_S = 0.002
ATTACH_S = 20.0
COMPLAINT = 3_000
STANDING = {"T", "t"}
SIGNALLED = "--- SIGSTOP {"


class Zygote:
    """The process that forks workers. It ends with this one."""

    def __init__(self) -> None:
        path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "faults.zygote"],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._turn = threading.Lock()

    def fork(self, order: Order) -> int:
        """Start a worker and return its id."""
        asks, answers = self._process.stdin, self._process.stdout
        assert asks is not None, "it was started with a pipe"
        assert answers is not None, "it was started with a pipe"
        with self._turn:
            asks.write(msgspec.json.encode(order) + b"\n")
            asks.flush()
            return int(answers.readline())

    def close(self) -> None:
        """End it, and every worker that is left."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        self._process.wait()


@dataclass(frozen=True)
class Ended:
    """How a worker ended: its code (minus the signal that killed it), what it printed, and what it complained of."""

    code: int
    out: str
    err: str

    @property
    def killed(self) -> bool:
        """Whether it died of SIGKILL."""
        return self.code == -signal.SIGKILL


class Life:
    """One worker process, under strace where options for it are given."""

    def __init__(self, zygote: Zygote, order: Order, trace: Path, under: list[str] | None) -> None:
        self.order = msgspec.structs.replace(order, waits=under is not None)
        self._tracer: subprocess.Popen[bytes] | None = None
        self._trace = trace
        self.pid = zygote.fork(self.order)
        if under is not None:
            self._attach(strace.command(trace, [*under, "-p", str(self.pid)]))

    def _attach(self, command: list[str]) -> None:
        deadline = time.monotonic() + ATTACH_S
        while not self.stopped and time.monotonic() < deadline and self.code is None:
            time.sleep(LOOK_S)
        self._tracer = subprocess.Popen(command, stderr=subprocess.PIPE)
        told: IO[bytes] | None = self._tracer.stderr
        assert told is not None, "it was started with a pipe"
        line = told.readline()
        if b"attached" not in line:
            self.send(signal.SIGKILL)
            raise strace.ToolMissing(f"strace cannot attach: {line.decode()}")
        self.send(signal.SIGCONT)
        while self._state in STANDING and time.monotonic() < deadline and self.code is None:
            time.sleep(LOOK_S)

    @property
    def _state(self) -> str:
        """The state of the process as the kernel tells it, in a letter."""
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return "X"

    @property
    def code(self) -> int | None:
        """How it ended, None while it lives."""
        try:
            return int(Path(self.order.status).read_text())
        except FileNotFoundError:
            return None

    @property
    def stopped(self) -> bool:
        """Whether it stands still under a signal."""
        if self._tracer is None:
            return self._state == "T"
        # A traced process stands still for a moment at each call: only the log tells whether a signal came.
        return self._state in STANDING and SIGNALLED in self._trace.read_text(errors="replace")

    @property
    def left(self) -> bool:
        """Whether it has turned to the outside; known of one that was started to be frozen."""
        return strace.left(self._trace)

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, unless it has ended."""
        if self.code is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def wait(self, within_s: float) -> Ended | None:
        """Wait for its end; None if that does not come."""
        deadline = time.monotonic() + within_s
        while self.code is None:
            if time.monotonic() > deadline:
                return None
            time.sleep(LOOK_S)
        if self._tracer is not None:
            self._tracer.wait()  # its log is whole only then
            if self._tracer.stderr is not None:
                self._tracer.stderr.close()
        code = self.code
        assert code is not None, "it has ended"
        return Ended(code, Path(self.order.out).read_text(), Path(self.order.err).read_text(errors="replace"))

    def where(self) -> str:
        """Say where a worker that hangs is, and the end of what it complained of."""
        stopped = self.stopped
        self.send(signal.SIGUSR1)
        time.sleep(LOOK_S * 100)
        said = Path(self.order.err).read_text(errors="replace") if Path(self.order.err).exists() else ""
        return f"{'stopped, ' if stopped else ''}{said[-COMPLAINT:]}"

    def end(self) -> None:
        """Kill it if it lives, and wait until it is gone."""
        self.send(signal.SIGKILL)
        self.wait(ATTACH_S)
