"""A server process under a keeper: started, signalled and awaited by its id, and gone when this process is.

Also: the account that servers run as (PostgreSQL and PgBouncer refuse to be root), folders which that account can
reach, and free ports.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.polling import eventually

KEEPER = Path(__file__).with_name("keeper.py")
PREFERRED = ("postgres", "nobody")
LONGEST_FOLDER = 80  # the path of a unix socket in it has at most 107 characters


class NotInstalled(Exception):
    """A program that the tests need is missing; the message says how it comes here."""


@dataclass(frozen=True)
class Account:
    """Whom a server runs as."""

    uid: int
    gid: int


def account(name: str | None = None) -> Account | None:
    """Return the account for servers: None is this process's own, if that is not root's.

    Nobody is created: any account with an entry in the system's list will do, since initdb asks for its name.
    """
    return chosen_account(os.geteuid(), [*([pwd.getpwnam(name)] if name else pwd.getpwall())])


def chosen_account(uid: int, entries: Iterable[pwd.struct_passwd]) -> Account | None:
    """Return whom of the accounts a process of `uid` starts servers as."""
    if uid != 0:
        return None
    others = {entry.pw_name: Account(entry.pw_uid, entry.pw_gid) for entry in entries if entry.pw_uid != 0}
    for name in (*PREFERRED, *others):
        if name in others:
            return others[name]
    raise NotInstalled("PostgreSQL refuses to run as root, and this machine has no other account to run it as.")


def reaches(who: Account | None, path: Path) -> bool:
    """Whether an account may enter a folder, or run a program."""
    if who is None:
        return os.access(path, os.X_OK)
    asked = subprocess.run(["test", "-x", str(path)], user=who.uid, group=who.gid, extra_groups=[], check=False)
    return asked.returncode == 0


def folder_for(who: Account | None) -> Path:
    """Make a temporary folder that an account owns and reaches, with a path short enough for a socket."""
    for place in dict.fromkeys([tempfile.gettempdir(), "/tmp", "/var/tmp"]):  # noqa: S108  names made by mkdtemp
        folder = Path(tempfile.mkdtemp(prefix="milepost-server-", dir=place)).resolve()
        if who is not None:
            os.chown(folder, who.uid, who.gid)
        if len(str(folder)) <= LONGEST_FOLDER and reaches(who, folder):
            return folder
        folder.rmdir()
    raise NotInstalled("No temporary folder is reachable for the account that servers run as: set TMPDIR.")


def free_port() -> int:
    """Return a port of the loopback device that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def program(name: str, how: str) -> str:
    """Return the path of a program. Raises NotInstalled, saying how it comes here."""
    beside = Path(sys.executable).parent
    path = os.pathsep.join([str(beside), os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
    found = shutil.which(name, path=path)
    if found is None:
        raise NotInstalled(f"{name} is not installed: {how}.")
    return found


class Kept:
    """One process under a keeper."""

    def __init__(
        self, command: Sequence[str], *, log: Path, ending: signal.Signals, cwd: Path, who: Account | None = None
    ) -> None:
        self.log = log
        ids = ["-", "-"] if who is None else [str(who.uid), str(who.gid)]
        with log.open("ab") as said:
            self._keeper = subprocess.Popen(
                [sys.executable, "-I", "-S", str(KEEPER), str(ending.value), *ids, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                cwd=cwd,
                start_new_session=True,  # the terminal's Ctrl-C is for the tests: the keeper ends when they have
            )
        assert self._keeper.stdout is not None, "it was started with a pipe"
        first = self._keeper.stdout.readline()
        if not first:
            raise NotInstalled(f"{command[0]} does not start: {self.said()}")
        self.pid = int(first)

    @property
    def running(self) -> bool:
        """Whether the server has not ended."""
        return self._keeper.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if it has not ended."""
        assert self._keeper.stdin is not None, "it was started with a pipe"
        with suppress(BrokenPipeError):
            self._keeper.stdin.write(f"{number.value}\n".encode())
            self._keeper.stdin.flush()

    def wait(self, within_s: float = 60.0) -> int:
        """Wait for its end and return its code. Raises subprocess.TimeoutExpired."""
        return self._keeper.wait(within_s)

    def end(self, number: signal.Signals | None = None) -> int:
        """End it, by a signal or as its keeper does, and wait until it is gone. Once more does nothing."""
        if number is not None:
            self.send(number)
            self.wait()
        for pipe in (self._keeper.stdin, self._keeper.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        return self.wait()

    def said(self, most: int = 2_000) -> str:
        """Return the end of what it has logged."""
        return self.log.read_text(errors="replace")[-most:] if self.log.exists() else ""


class Restartable(ABC):
    """A server that may be stopped, killed and started again with the state of its folder."""

    stopped_by = signal.SIGTERM

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process: Kept | None = None

    @property
    def running(self) -> bool:
        """Whether its first process lives."""
        return self._process is not None and self._process.running

    @property
    def pid(self) -> int:
        """The id of its first process."""
        assert self._process is not None, "it was started"
        return self._process.pid

    @abstractmethod
    def start(self) -> None:
        """Start it, and wait until it answers."""

    def stop(self) -> None:
        """Stop it as a service is stopped."""
        self._end(self.stopped_by)

    def kill(self) -> None:
        """Kill its first process; others that it has find out by themselves."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Stop it if it runs, and start it on the same port with the same state."""
        if self.running:
            self.stop()
        self.start()

    def _end(self, number: signal.Signals) -> None:
        assert self._process is not None, "it was started"
        self._process.end(number)

    def close(self) -> None:
        """End it in whatever state it is, and remove its folder."""
        if self._process is not None:
            self._process.end()
        eventually(self._removed, saying="its processes to leave its folder")

    def _removed(self) -> bool:
        shutil.rmtree(self.folder, ignore_errors=True)  # a process that is just leaving may write one more file
        return not self.folder.exists()
