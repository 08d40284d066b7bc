"""Files beside a store that say what the database may be too busy, or too broken, to say.

  STORE.stop                  nothing starts and nothing is sent while it stands; supervisors kill their workers. A
                              worker sees it within ten milliseconds
  STORE.workers/NAME.kill     a run of this worker was killed: its calls have to let go within the grace
  STORE.workers/RUN.wanted    another process of this machine waits for a run that somebody holds between two calls

Each is looked at by its name alone, so a look costs a system call and never waits. What is in a stop file is for
people. It is made whole or not at all, and outlives a power cut.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import msgspec

WANTED_S = 1.0  # whoever waits says so again and again: an older mark is of one that died
SEEN_WITHIN_S = 0.01  # a worker looks no more often: a system call before each of a thousand sends would be felt


class Stop(msgspec.Struct, frozen=True):
    """What a stop file says: who stopped everything, why, and when (milliseconds since 1970)."""

    by: str
    why: str
    at: int


def stop_path(place: str) -> str:
    """Return where the stop file of a store stands."""
    return place + ".stop"


def stopped(place: str) -> bool:
    """Say whether everything is stopped."""
    return os.path.exists(stop_path(place))  # noqa: PTH110  asked before each send: a Path costs more than the look


def stop(place: str, note: Stop) -> None:
    """Stop everything; once it has returned, every worker that runs has seen it. Raises OSError."""
    path = Path(stop_path(place))
    part = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(descriptor, msgspec.json.encode(note) + b"\n")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    part.replace(path)
    _settle(path.parent)
    time.sleep(5 * SEEN_WITHIN_S)


def read(place: str) -> Stop | None:
    """Return what the stop file says, None where there is none. A file that somebody made by hand stops as well."""
    try:
        data = Path(stop_path(place)).read_bytes()
    except FileNotFoundError:
        return None
    try:
        return msgspec.json.decode(data, type=Stop)
    except msgspec.MsgspecError:
        return Stop("somebody", data.decode("utf-8", "replace").strip()[:200], 0)


def lift(place: str) -> bool:
    """Remove the stop file; return whether there was one."""
    path = Path(stop_path(place))
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    _settle(path.parent)
    return True


def _settle(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _mark(place: str, worker: str) -> Path:
    return Path(_mark_path(place, worker))


def _mark_path(place: str, worker: str) -> str:
    return f"{place}.workers/{worker}.kill"


def ask_to_let_go(place: str, worker: str) -> None:
    """Tell a worker's supervisor that a run was killed whose calls may still act. Nothing where it does not live."""
    mark = _mark(place, worker)
    if mark.with_suffix(".lock").exists():
        with suppress(OSError):
            mark.touch(mode=0o600)


def asked_to_let_go(place: str, worker: str) -> bool:
    """Say whether the calls of a killed run have to let go."""
    return os.path.exists(_mark_path(place, worker))  # noqa: PTH110  asked at each turn of a worker


def has_let_go(place: str, worker: str) -> None:
    """Take the mark back: they have, or the worker is gone."""
    _mark(place, worker).unlink(missing_ok=True)


def _wanted_path(place: str, run_id: str) -> str:
    return f"{place}.workers/{run_id}.wanted"


def want(place: str, run_id: str) -> None:
    """Say, or say again, that a process waits for a run. It is a courtesy: what cannot be said is waited for longer."""
    with suppress(OSError):
        Path(_wanted_path(place, run_id)).touch(mode=0o600)


def wanted(place: str, run_id: str) -> bool:
    """Say whether a process waits for a run right now."""
    try:
        said = os.stat(_wanted_path(place, run_id)).st_mtime  # noqa: PTH116  asked again and again, of each run
    except OSError:
        return False
    return time.time() - said < WANTED_S


def wanted_no_more(place: str, run_id: str) -> None:
    """Take the mark back: who waited has it, or waits no more."""
    with suppress(OSError):
        Path(_wanted_path(place, run_id)).unlink(missing_ok=True)
