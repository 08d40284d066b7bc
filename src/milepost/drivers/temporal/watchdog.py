"""Ends a process whose event loop hangs.

Such a worker is the one case in which nobody else can help. Its lease is renewed by a thread, so it holds its runs for
good; Temporal, which misses its heartbeats, can only ask others, who are told that the runs are held. So another thread
looks whether the loop still turns, and kills the process if it does not: what was in flight is unknown then, and found
out by the next owner. Where no thread gets a turn any more, the lease lapses as well, and the runs are taken over.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time

log = logging.getLogger("milepost")
LOOKS = 10  # so many in the time that is given


class Watchdog:
    """Kills this process when `beat` was not called for `frozen_s` seconds, from `start` until `stop`."""

    def __init__(self, frozen_s: float) -> None:
        self._frozen_s = frozen_s
        self._last = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="milepost-watchdog", daemon=True)

    def beat(self) -> None:
        """Say that the loop turns."""
        self._last = time.monotonic()

    def start(self) -> None:
        """Begin to look."""
        self.beat()
        self._thread.start()

    def stop(self) -> None:
        """End looking."""
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        looked = time.monotonic()
        while not self._stop.wait(self._frozen_s / LOOKS):
            now = time.monotonic()
            if now - looked > self._frozen_s / 2:
                self.beat()  # the whole process stood still, or the machine: the loop shall have its turn first
            looked = now
            if now - self._last > self._frozen_s:
                log.critical("the event loop of this worker hangs for %.0f s: it is killed", now - self._last)
                os.kill(os.getpid(), signal.SIGKILL)
