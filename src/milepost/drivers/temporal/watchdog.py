"""Ends a process that cannot end itself: whose event loop hangs, or with a call that does not let go of a killed run.

A hanging loop is the one case in which nobody else can help. The lease is renewed by a thread, so the worker holds its
runs for good; Temporal, which misses its heartbeats, can only ask others, who are told that the runs are held. So
another thread looks whether the loop still turns, and kills the process if it does not: what was in flight is unknown
then, and found out by the next owner. Where no thread gets a turn any more, the lease lapses as well.

A call that may act on after `milepost kill` has the time of the grace to end. The mark beside the store says so.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable

log = logging.getLogger("milepost")
LOOKS = 10  # so many in the time that is given


class Watchdog:
    """Kills this process when `beat` was not called for `frozen_s` seconds, between `start` and `stop`.

    Also when a call of a killed run has not let go within `grace_s`.
    """

    def __init__(self, *, frozen_s: float, grace_s: float) -> None:
        self._frozen_s = frozen_s
        self._grace_s = grace_s
        self._last = time.monotonic()
        self._asked = 0.0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def beat(self) -> None:
        """Say that the loop turns."""
        self._last = time.monotonic()

    def start(self, asked: Callable[[], bool]) -> None:
        """Begin to look; `asked` says whether the calls of a killed run have to let go."""
        self.beat()
        self._thread = threading.Thread(target=self._watch, args=(asked,), name="milepost-watchdog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End looking."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self, asked: Callable[[], bool]) -> None:
        looked = time.monotonic()
        while not self._stop.wait(min(self._frozen_s, self._grace_s) / LOOKS):
            now = time.monotonic()
            if now - looked > self._frozen_s / 2:
                self.beat()  # the whole process stood still, or the machine: the loop shall have its turn first
            looked = now
            self._asked = (self._asked or now) if asked() else 0.0
            if now - self._last > self._frozen_s:
                _end(f"its event loop hangs for {now - self._last:.0f} s")
            if self._asked and now - self._asked > self._grace_s:
                _end("a call of a run that was killed has not let go within the grace")


def _end(why: str) -> None:
    log.critical("this worker is killed: %s", why)
    os.kill(os.getpid(), signal.SIGKILL)
