"""Lives: processes that are forked for one worker each, and die as the kernel lets a process die.

A fork has everything that the test has: its modules, its fixtures, what it has patched. It has no threads but one, no
signal handlers, no standard output of the test, and it ends without the test's own clean-up. What it leaves behind is
what a killed worker leaves behind: files, and bytes on their way.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from milepost.testing.crashing.points import Fuse
from milepost.testing.crashing.worker import LEAPS_MOST, Ended, Leap, Place, Setting, live

PATIENCE_S = 60
COMPLAINT = 2_000
Burn = Literal["kill", "freeze", "lose"]


class AnswerLost(ConnectionResetError):
    """What a tool hears in place of the answer that was lost on its way."""


class Life:
    """One worker process, the `number`-th of the try that `about` names.

    `fuse` is the point at which it is killed or frozen, or at which its tool loses an answer; empty for none.
    """

    def __init__(
        self,
        setting: Setting,
        place: Place,
        number: int,
        about: str,
        *,
        fuse: str = "",
        burn: Burn = "kill",
        leaps: int = LEAPS_MOST,
        patience_s: int = PATIENCE_S,
        advance: Callable[[int], None] | None = None,
    ) -> None:
        self._told = place.folder / f"life-{number}.json"
        self._burnt = place.folder / f"life-{number}.burnt"
        self._log = place.folder / f"life-{number}.log"
        self.stopped = False
        self.code: int | None = None
        lit = Fuse(fuse, BURNS[burn])
        lit.told = self._write_burnt
        leap = Leap(advance or place.clock.advance, leaps)

        def be() -> None:
            ended = live(setting, place, lit, f"{about} {number}", leap)
            part = self._told.with_suffix(".part")
            part.write_bytes(msgspec.json.encode(ended))
            part.replace(self._told)

        self.pid = fork(be, self._log, patience_s)

    def running(self) -> bool:
        """Whether the process lives, be it stopped or not."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
            if pid and os.WIFSTOPPED(status):
                self.stopped = True
            elif pid:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code is None

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        if self.running():
            os.kill(self.pid, number)

    def end(self) -> None:
        """Kill it if it lives, and wait until it is gone."""
        if self.running():
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            _, status = os.waitpid(self.pid, 0)
            self.code = os.waitstatus_to_exitcode(status)

    def _write_burnt(self, at_work: int) -> None:
        self._burnt.write_text(str(at_work))

    @property
    def burnt(self) -> int | None:
        """How many calls of tools were under way when its fuse burnt; None if it did not."""
        return int(self._burnt.read_text()) if self._burnt.exists() else None

    @property
    def ended(self) -> Ended:
        """How it ended by itself; `broke` where it was ended."""
        if self._told.exists():
            return msgspec.json.decode(self._told.read_bytes(), type=Ended)
        said = self._log.read_text(errors="replace")[-COMPLAINT:] if self._log.exists() else ""
        how = f"it took too long, or hung: {said}" if self.code == -signal.SIGALRM else f"exit code {self.code}: {said}"
        return Ended("broke", why=how.rstrip(": "))


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _freeze() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _lose() -> None:
    raise AnswerLost("the answer was lost on its way")


BURNS: dict[Burn, Callable[[], None]] = {"kill": _kill, "freeze": _freeze, "lose": _lose}


def fork(be: Callable[[], None], log: Path, patience_s: int) -> int:
    """Fork a process that does `be` and ends; return its id. After `patience_s` seconds the kernel ends it."""
    with warnings.catch_warnings():
        # Python warns of forks beside threads, whose locks nobody would ever release in the child. The child runs a
        # loop of its own and no code of those threads.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        gc.freeze()  # nothing of the test's is collected here: it might close or delete what the test still uses
        for number in (signal.SIGALRM, signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        signal.alarm(patience_s)
        _redirect(log)
        be()
        code = 0
    except BaseException:  # noqa: BLE001  a child never returns into the test
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stderr.flush()
        os._exit(code)


def _redirect(log: Path) -> None:
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    file = log.open("a", buffering=1, encoding="utf-8", errors="replace")
    os.dup2(file.fileno(), 1)
    os.dup2(file.fileno(), 2)
    sys.stdin, sys.stdout, sys.stderr = open(0, closefd=False), file, file  # noqa: SIM115  it ends with us
