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
import secrets
import socket
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from milepost.stores import marks

if TYPE_CHECKING:
    from milepost.stores.api import Store

_held: dict[str, int] = {}
_guard = threading.Lock()


def machine(store: Store) -> str:
    """Return what workers here are named after. Of two with one name, each can prove whether the other is dead.

    Where lock files stand beside the store that is the host's name: whoever has the store sees them. Elsewhere a host's
    name proves nothing, for two containers may share it and see other files. There it goes on with a mark of the folder
    itself.
    """
    host = socket.gethostname()
    return host if store.capabilities.lock_files else f"{host}.{_mark(folder_of(store.local))}"


@cache
def _mark(folder: Path) -> str:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    mark = folder / "mark"
    new = folder / f"mark.{os.getpid()}"
    with suppress(FileExistsError):
        new.write_text(secrets.token_hex(4))
        os.link(new, mark)  # whole, or not at all: somebody may read it now
    new.unlink(missing_ok=True)
    return mark.read_text()


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


def _is_held(path: str) -> bool:
    """Say whether a file of this process goes by this name as well: by a mount, say."""
    try:
        found = os.stat(path)  # noqa: PTH116  asked at each look, of each worker
    except OSError:
        return False
    return any(os.path.samestat(found, os.fstat(descriptor)) for descriptor in _held.values())


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
        if path in _held or _is_held(path):
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
