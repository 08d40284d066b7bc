"""A worker whose every write is recorded, and which dies at a chosen one.

What a power cut there may leave is made from the recording; what had been done outside by then is in the ledgers.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from milepost.stores.api import Operation
from milepost.stores.sqlite.store import SqliteStore
from milepost.testing.power_cut import Event, Named, RecordingDisk, Sized, Synced, Wrote

KINDS: dict[str, Callable[..., Event]] = {kind.__name__: kind for kind in (Named, Wrote, Sized, Synced)}
ENTRIES = "SELECT count(*) FROM mp_journal WHERE run > 0"


class Tape(list[Event]):
    """Events, of which the last one that is wanted ends the process."""

    def __init__(self, most: int, full: Callable[[], None]) -> None:
        super().__init__()
        self._most = most
        self._full = full

    def append(self, event: Event) -> None:
        """Take an event."""
        super().append(event)
        if len(self) >= self._most:
            self._full()


class WatchedStore(SqliteStore):
    """A store that notes how many entries there are whenever it has acknowledged a batch."""

    disk: ClassVar[RecordingDisk]

    def _commit(self, operations: Sequence[Operation]) -> list[Any]:
        answers = super()._commit(operations)
        ((entries,),) = self._reader.execute(ENTRIES).fetchall()
        self.disk.acknowledge(entries)
        return answers


def recorded(path: Path, most: int, work: Callable[[], int]) -> int:
    """Do some work on a disk that is recorded; at the last event that is wanted, write all down and die."""
    disk = RecordingDisk("recorded")

    def die() -> None:
        write(path, disk)
        os.kill(os.getpid(), signal.SIGKILL)

    disk.events = Tape(most, die)
    WatchedStore.disk = disk
    with disk.installed():
        code = work()
    write(path, disk)
    return code


def write(path: Path, disk: RecordingDisk) -> None:
    """Write a recording down."""
    events = [(type(event).__name__, asdict(event)) for event in disk.events]
    path.write_bytes(msgspec.msgpack.encode((events, disk.acknowledged)))


def recording(path: Path, name: str) -> RecordingDisk:
    """Read a recording. Each disk of a process needs a name of its own."""
    events, acknowledged = msgspec.msgpack.decode(path.read_bytes())
    disk = RecordingDisk(name)
    disk.events = [KINDS[kind](**fields) for kind, fields in events]
    disk.acknowledged = [(int(at), what) for at, what in acknowledged]
    return disk
