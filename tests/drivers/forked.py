"""Processes that are forked from one which has imported everything: most of the time of each would go into imports.

Each is a process of its own, to be killed, frozen and waited for by its id.
"""

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Mapping
from pathlib import Path

from milepost.cli.main import cli
from tests.drivers import desk

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([__name__])


class Forked:
    """A process that does something, in an environment of its own; what it prints goes to a file."""

    def __init__(self, what: str, *args: str, environment: Mapping[str, str], said: Path) -> None:
        self._process = FORKS.Process(target=_live, args=(what, args, dict(environment), str(said)), daemon=True)
        self._process.start()
        self.pid = self._process.pid or 0

    def poll(self) -> int | None:
        """Return its code, or minus the signal that it died of; None while it lives."""
        return self._process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it lives."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def wait(self, within_s: float) -> int:
        """Wait for its end; return its code, or minus the signal that it died of."""
        self._process.join(within_s)
        code = self.poll()
        assert code is not None, f"process {self.pid} has not ended within {within_s} s"
        return code


def _live(what: str, args: tuple[str, ...], environment: dict[str, str], said: str) -> None:
    os.environ.clear()
    os.environ.update(environment)
    file = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for number in (1, 2):
        os.dup2(file, number)
    if what == "serve":
        asyncio.run(desk.serving(*args))
    else:
        cli.main(list(args), prog_name="milepost")
