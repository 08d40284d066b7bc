"""Lock files: how one machine knows at once that a worker is dead.

Every process that drives runs holds a POSIX record lock on a file of its own beside the store. The kernel drops it when
the process ends, however it ends; a forked child does not inherit it (flock would be kept alive by one).

Two rules of record locks shape this module. They never conflict inside one process, so a process must not ask about its
own files. And closing *any* descriptor of a file drops all locks of the process on it, so a file is opened once, here,
and nowhere else; a descriptor for asking about another process is opened and closed freely, since we hold no lock
there.
"""

from __future__ import annotations

import fcntl
import os
import threading
from contextlib import suppress
from pathlib import Path

from milepost.stores import marks

_held: dict[str, int] = {}
_guard = threading.Lock()


def folder_of(place: str) -> Path:
    """Return the folder of a store's lock files."""
    return Path(place + ".workers")


def hold(place: str, worker: str) -> None:
    """Take the lock of a worker of this process."""
    folder = folder_of(place)
    folder.mkdir(mode=0o700, exist_ok=True)
    path = str(folder / f"{worker}.lock")
    with _guard:
        while True:
            descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.lockf(descriptor, fcntl.LOCK_EX)  # who asks whether we live holds it for a moment only
            if _stands(path, descriptor):
                break
            os.close(descriptor)  # somebody cleared the file before it was locked: make it again
        _held[path] = descriptor


def _stands(path: str, descriptor: int) -> bool:
    try:
        return Path(path).stat().st_ino == os.fstat(descriptor).st_ino
    except FileNotFoundError:
        return False


def release(place: str, worker: str) -> None:
    """Give the lock up and remove its file."""
    path = str(folder_of(place) / f"{worker}.lock")
    with _guard:
        descriptor = _held.pop(path, None)
        if descriptor is not None:
            Path(path).unlink(missing_ok=True)
            os.close(descriptor)
            marks.has_let_go(place, worker)


def is_dead(place: str, worker: str) -> bool:
    """Say whether the process of a worker of this machine is proven to have ended."""
    path = str(folder_of(place) / f"{worker}.lock")
    with _guard:
        if path in _held:
            return False
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return True  # removed by its owner on leaving, or never made: made before any run is claimed
        except OSError:
            return False  # cannot tell, so it lives
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        else:
            return True
        finally:
            os.close(descriptor)


def leftovers(place: str) -> list[str]:
    """Return the workers whose lock files stand although their processes ended."""
    folder = folder_of(place)
    if not folder.is_dir():
        return []
    names = sorted(path.name.removesuffix(".lock") for path in folder.glob("*.lock"))
    return [name for name in names if is_dead(place, name)]


def clear(place: str) -> None:
    """Remove the files of workers that are proven dead, each while its lock is held: a file in use is never removed."""
    for worker in leftovers(place):
        path = str(folder_of(place) / f"{worker}.lock")
        with _guard, suppress(OSError):
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                Path(path).unlink(missing_ok=True)
                marks.has_let_go(place, worker)
            finally:
                os.close(descriptor)
