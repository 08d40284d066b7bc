"""Standard input that ends when this process is told to: then what is under way is answered, and nothing more is read.

A thread that waits for input cannot be interrupted, and the process would not end before a host says something more. So
the input is handed on through a pipe, and it is the pipe that ends.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

STDIN = 0
CHUNK = 65_536
LEAVE_S = 1.0  # for a host that fills the pipe and reads nothing


@contextmanager
def ending_input() -> Iterator[Callable[[], None]]:
    """Put a pipe in the place of standard input while the block runs; what is yielded ends it."""
    real, (end, out), (asleep, wake) = os.dup(STDIN), os.pipe(), os.pipe()
    os.dup2(end, STDIN)
    os.close(end)
    thread = threading.Thread(target=_hand_on, args=(real, out, asleep), name="milepost-input", daemon=True)
    thread.start()

    def finish() -> None:
        os.write(wake, b".")

    try:
        yield finish
    finally:
        finish()
        os.dup2(real, STDIN)  # which also leaves the pipe, so that a thread that still writes into it is told
        thread.join(LEAVE_S)
        for one in () if thread.is_alive() else (real, asleep, wake):
            os.close(one)


def _hand_on(real: int, out: int, asleep: int) -> None:
    with suppress(OSError):  # whoever read the pipe is gone
        while asleep not in (ready := select.select([real, asleep], [], [])[0]):
            given = os.read(real, CHUNK) if ready else b""
            if not given:
                break
            while given:
                given = given[os.write(out, given) :]
    os.close(out)
