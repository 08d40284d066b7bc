"""The small process around a worker, which ends it where it cannot end itself.

A worker that hangs inside a commit holds the store's lock against everybody; one whose event loop is blocked hears no
signal and renews a lease that it makes no use of; a call may keep its cancellation to itself. None of that can be
mended from inside. So `milepost worker` is two processes: this one, which does nothing but watch, and the one that
drives runs, in a process group of its own, so that what its tools have started ends with it.

  what is seen                                              then
  no sign of life for --frozen                              the group is killed, and the worker started again
  a run was killed, and a call of it has not let go         the same, once --grace has passed
    (the mark beside the store, stores/marks.py)
  SIGTERM or SIGINT, and the worker does not leave          the group is killed once --grace and a little has passed
  the stop file stands                                      the group is killed; started again once it is gone
  the worker was killed by somebody else                    it is started again
  the worker ended by itself                                this process ends with the same code

It is started again a few times in a row, after a pause that doubles; a worker that stays up for a while counts as well
again. What was in flight when it died is unknown, as after any death. The worker in turn ends when this process does:
its end of the socket closes, however that came.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from milepost.stores import marks

log = logging.getLogger("milepost.cli")
SOCKET = "MILEPOST_SUPERVISOR_FD"
LOOK_S = 0.1
FIRST_SIGN_S = 120.0  # an App may import a great deal before its worker lives
LEAVE_S = 5.0  # what a worker has beyond its grace to give runs back and close the store
RESTARTS_MOST = 5
PAUSE_S = 1.0
PAUSE_MOST_S = 60.0
WELL_AFTER_S = 300.0
BEAT = b"."


# ------------------------------------------------------------ in the worker


def reporting(place: str) -> Callable[[str], Callable[[], None]] | None:
    """Return how this process reports to its supervisor, None where it has none."""
    number = os.environ.pop(SOCKET, None)
    if number is None:
        return None
    line = socket.socket(fileno=int(number))
    line.set_inheritable(False)
    threading.Thread(target=_end_with, args=(line,), name="milepost-supervisor", daemon=True).start()

    def begin(worker: str) -> Callable[[], None]:
        line.sendall(f"{place}\0{worker}\n".encode())

        def beat() -> None:
            with suppress(OSError):  # a full pipe says enough; a closed one ends this process anyway
                line.send(BEAT, socket.MSG_DONTWAIT)

        return beat

    return begin


def _end_with(line: socket.socket) -> None:
    with suppress(OSError):
        line.recv(1)
    os.kill(os.getpid(), signal.SIGKILL)


# ------------------------------------------------------------ around it


@dataclass
class Watched:
    """One life of a worker."""

    process: subprocess.Popen[bytes]
    line: socket.socket
    started: float
    heard: float | None = None
    said: bytes = b""
    place: str = ""
    worker: str = ""
    asked: float | None = None  # since when the calls of a killed run have to let go
    killed: str = ""

    def listen(self, now: float) -> None:
        """Take in what the worker says."""
        with suppress(BlockingIOError):
            while heard := self.line.recv(65_536):
                self.heard = now
                if not self.worker:
                    self.said += heard
                    first, end, _ = self.said.partition(b"\n")
                    if end:
                        self.place, _, self.worker = first.decode().partition("\0")

    def kill(self, why: str) -> None:
        """End it, and all that it has started."""
        self.killed = why
        log.error("worker %d is killed: %s", self.process.pid, why)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


class Supervisor:
    """Starts a worker, watches it, and starts it again where it had to be ended."""

    def __init__(self, command: Sequence[str], *, grace_s: float, frozen_s: float) -> None:
        self._command = list(command)
        self._grace_s = grace_s
        self._frozen_s = frozen_s
        self._signals = 0
        self._signalled = 0.0
        self._now: Watched | None = None
        self._place = ""

    def run(self) -> int:
        """Supervise until the worker ends by itself; return its exit code, 128 + N where it died of signal N."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._pass_on)
        restarts = 0
        while True:
            watched = self._start()
            code = self._watch(watched)
            lived = time.monotonic() - watched.started
            if code >= 0 or self._signals:
                return code if code >= 0 else 128 - code
            restarts = 1 if lived > WELL_AFTER_S else restarts + 1
            why = watched.killed or f"it died of signal {-code}"
            if restarts > RESTARTS_MOST:
                log.error("the worker died %d times in a row, and is not started again: %s", restarts, why)
                return 128 - code
            if not self._pause(restarts):
                return 128 - code
            log.warning("the worker is started again (%d of %d): %s", restarts, RESTARTS_MOST, why)

    def _pass_on(self, number: int, _: object) -> None:
        self._signals += 1
        self._signalled = time.monotonic()
        if self._now is not None:
            with suppress(ProcessLookupError):
                self._now.process.send_signal(number)

    def _start(self) -> Watched:
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(  # noqa: S603  this very command
                self._command,
                env={**os.environ, SOCKET: str(theirs.fileno())},
                pass_fds=[theirs.fileno()],
                process_group=0,
            )
        ours.setblocking(False)
        self._now = Watched(process, ours, time.monotonic())
        if self._signals:  # one came before there was a worker to hear it
            process.terminate()
        return self._now

    def _watch(self, watched: Watched) -> int:
        with watched.line:
            while (code := watched.process.poll()) is None:
                ready, _, _ = select.select([watched.line], [], [], LOOK_S)
                now = time.monotonic()
                if ready:
                    watched.listen(now)
                    time.sleep(LOOK_S / 10)  # a closed line is always ready: the process is about to end
                why = "" if watched.killed else self._against(watched, now)
                if why:
                    watched.kill(why)
        self._now = None
        self._place = watched.place or self._place
        if watched.worker:
            marks.has_let_go(watched.place, watched.worker)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(watched.process.pid, signal.SIGKILL)  # what its tools have started does not outlive it
        return code

    def _against(self, watched: Watched, now: float) -> str:
        """Return why a worker has to be ended, empty where it may go on."""
        if watched.place and marks.stopped(watched.place):
            return "the stop file stands"
        if self._signals and now - self._signalled > self._grace_s + LEAVE_S:
            return "it was asked to leave, and has not within its grace"
        if watched.worker and marks.asked_to_let_go(watched.place, watched.worker):
            watched.asked = watched.asked or now
            if now - watched.asked > self._grace_s:
                return "a call of a run that was killed has not let go within the grace"
        else:
            watched.asked = None
        allowed = self._frozen_s if watched.heard is not None else max(self._frozen_s, FIRST_SIGN_S)
        if not self._signals and now - (watched.heard or watched.started) > allowed:
            return f"no sign of life for {allowed:g} s"
        return ""

    def _pause(self, restarts: int) -> bool:
        """Wait before the next start, and as long as the stop file stands; return False where it is time to leave."""
        until = time.monotonic() + min(PAUSE_MOST_S, PAUSE_S * 2 ** (restarts - 1))
        told = False
        while time.monotonic() < until or (self._place and marks.stopped(self._place)):
            if self._signals:
                return False
            if not told and self._place and marks.stopped(self._place):
                log.warning("everything is stopped: the worker starts again once that is lifted")
                told = True
            time.sleep(LOOK_S)
        return True


def supervise(options: Sequence[str], *, grace_s: float, frozen_s: float) -> int:
    """Run `milepost worker` with these options under a supervisor; return its exit code."""
    command = [sys.executable, "-m", "milepost", "worker", "--no-supervisor", *options]
    return Supervisor(command, grace_s=grace_s, frozen_s=frozen_s).run()
