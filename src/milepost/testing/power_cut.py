"""What a disk may hold after the power went: a recording of everything SQLite wrote, and the states made from it.

`RecordingDisk` is a VFS: it passes every call on to the real one and keeps, in order, each write, truncation, creation,
deletion and sync of the database, its write-ahead log and its rollback journal. `states` replays the recording up to
some event, lets the power go there, and gives what may then be on the disk:

  what was synced is there, whole;
  of what was not, any part is there: nothing, all, some writes and not others, later ones without earlier ones, and of
  a write some of its sectors and not others;
  a created or deleted name counts only once its folder was synced, which SQLite does with the first sync of a new
  journal or log. Until then the old file, the new one, or none may be found under the name.

The memory of the dead machine, the shared index of the log among it, is gone. Whoever records also notes what was
acknowledged (`acknowledge`): what a commit had promised before the cut must be in every state after it. That a sector
is written whole or not at all is assumed, and that a sync that returned has reached the disk: a drive that lies about
it can lose anything, and no record can help that.

The states are chosen and torn by a seed, so that a state that was found to be bad can be made again from the same
recording.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, Literal

import apsw

SECTOR = 512
REAL = "unix"
RECORDED = apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_WAL
JOURNALS = apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_WAL

Way = Literal["none", "all", "torn", "some", "late", "sectors"]
WAYS: tuple[Way, ...] = ("none", "all", "torn", "some", "late", "sectors")


@dataclass(frozen=True, slots=True)
class Named:
    """A name was given to a file (a number, since a name may be used again), or taken away (None)."""

    name: str
    file: int | None


@dataclass(frozen=True, slots=True)
class Wrote:
    """Bytes were written into a file."""

    file: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Sized:
    """A file was cut off at `size`, or filled up to it with zeros."""

    file: int
    size: int


@dataclass(frozen=True, slots=True)
class Synced:
    """What was written into a file is on the disk from here on; with `folder` the names are too."""

    file: int
    folder: bool


Unsynced = Wrote | Sized
Event = Named | Wrote | Sized | Synced


class RecordingDisk(apsw.VFS):
    """Records what happens to the store in one folder. Use it inside `with disk.installed():`, from an empty folder on.

    A store may be closed and opened again. Every disk of a process has a name of its own.
    """

    def __init__(self, name: str = "recording") -> None:
        self.name = name
        self.events: list[Event] = []
        self.acknowledged: list[tuple[int, Any]] = []
        self._files: dict[str, int] = {}
        self._sizes: dict[int, int] = {}
        self._new: set[int] = set()
        super().__init__(name, REAL)

    @contextmanager
    def installed(self) -> Iterator[RecordingDisk]:
        """Let every connection that is opened inside the block, in this process, go through this disk."""
        apsw.set_default_vfs(self.name)
        try:
            yield self
        finally:
            apsw.set_default_vfs(REAL)

    @property
    def now(self) -> int:
        """The number of events so far: the present, as a place in the recording."""
        return len(self.events)

    def acknowledge(self, what: Any) -> None:
        """Note that this was promised to be durable."""
        self.acknowledged.append((self.now, what))

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802  SQLite's own name
        """Open a file, and begin to record it."""
        if name is None or not flags[0] & RECORDED:
            return apsw.VFSFile(REAL, name, flags)
        path = name if isinstance(name, str) else name.filename()
        short = Path(path).name
        if short not in self._files:
            if Path(path).exists() and Path(path).stat().st_size:
                raise ValueError(f"{path} was there before it was recorded: record from an empty folder on")
            number = len(self._sizes)
            self._files[short], self._sizes[number] = number, 0
            if flags[0] & JOURNALS:
                self._new.add(number)
            self.events.append(Named(short, number))
        return _RecordingFile(self, self._files[short], name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: FBT001, N802  SQLite's own form
        """Delete a file."""
        number = self._files.pop(Path(filename).name, None)
        if number is not None:
            self.events.append(Named(Path(filename).name, None))
        super().xDelete(filename, syncdir)

    def wrote(self, file: int, offset: int, data: bytes) -> None:
        """Record a write."""
        self.events.append(Wrote(file, offset, data))
        self._sizes[file] = max(self._sizes[file], offset + len(data))

    def sized(self, file: int, size: int) -> None:
        """Record a truncation."""
        self.events.append(Sized(file, size))
        self._sizes[file] = size

    def grown(self, file: int, size: int) -> None:
        """Record that a file is larger than what was written through SQLite: it was filled with zeros and synced."""
        if size > self._sizes[file]:
            self.sized(file, size)
            self.synced(file)

    def synced(self, file: int) -> None:
        """Record a sync."""
        self.events.append(Synced(file, folder=file in self._new))
        self._new.discard(file)


class _RecordingFile(apsw.VFSFile):
    def __init__(self, disk: RecordingDisk, number: int, name: str | apsw.URIFilename, flags: list[int]) -> None:
        self._disk = disk
        self._number = number
        super().__init__(REAL, name, flags)

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802
        self._disk.grown(self._number, self.xFileSize())
        super().xWrite(data, offset)
        self._disk.wrote(self._number, offset, bytes(data))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        super().xTruncate(newsize)
        self._disk.sized(self._number, newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802
        super().xSync(flags)
        self._disk.synced(self._number)


# ---------------------------------------------------------------- what may be there after a cut


@dataclass(slots=True)
class Image:
    """A file's bytes. Zeros at the end are not kept, only counted."""

    data: bytearray = field(default_factory=bytearray)
    size: int = 0

    def apply(self, change: Unsynced) -> None:
        """Change the file."""
        if isinstance(change, Sized):
            del self.data[change.size :]
            self.size = change.size
            return
        end = change.offset + len(change.data)
        if end > len(self.data):
            self.data.extend(bytes(end - len(self.data)))
        self.data[change.offset : end] = change.data
        self.size = max(self.size, end)

    def copy(self) -> Image:
        """Return a file of its own with the same bytes."""
        return Image(bytearray(self.data), self.size)


@dataclass(frozen=True, slots=True)
class DiskState:
    """What may be on the disk when the power went after `events` events, and what had been acknowledged by then."""

    events: int
    way: Way
    files: dict[str, Image]
    acknowledged: Sequence[Any]

    def __str__(self) -> str:
        return f"cut after event {self.events}, unsynced: {self.way}"

    @property
    def fingerprint(self) -> tuple[Any, ...]:
        """What tells this state's files from those of another state."""
        return tuple((name, image.size, bytes(image.data)) for name, image in sorted(self.files.items()))

    def write(self, folder: Path) -> None:
        """Write the files into a folder, which must be empty."""
        for name, image in self.files.items():
            with (folder / name).open("xb") as file:
                file.write(image.data)
                file.truncate(image.size)


class _Replay:
    """The disk while the recording is replayed: what is safe, and what is not yet."""

    def __init__(self) -> None:
        self.safe: dict[int, Image] = {}
        self.unsynced: dict[int, list[Unsynced]] = {}
        self.names: dict[str, int | None] = {}
        self.unsynced_names: list[Named] = []

    def take(self, event: Event) -> None:
        match event:
            case Named(file=file):
                self.unsynced_names.append(event)
                if file is not None:
                    self.safe[file], self.unsynced[file] = Image(), []
            case Synced(file=file, folder=folder):
                for change in self.unsynced[file]:
                    self.safe[file].apply(change)
                self.unsynced[file] = []
                if folder:
                    self.names.update((one.name, one.file) for one in self.unsynced_names)
                    self.unsynced_names = []
            case Wrote(file=file) | Sized(file=file):
                self.unsynced[file].append(event)

    @property
    def calm(self) -> bool:
        """Whether everything is synced, so that there is only one thing that the disk can hold."""
        return not self.unsynced_names and not any(self.unsynced.values())

    def cut(self, way: Way, chance: Random) -> dict[str, Image]:
        """Return what is found after a cut, by name."""
        names = dict(self.names)
        for one in self.unsynced_names:
            if way in {"all", "torn", "sectors"} or (way != "none" and chance.random() < 0.5):
                names[one.name] = one.file
        found = {}
        for name, file in names.items():
            if file is not None:
                image = self.safe[file].copy()
                for change in survivors(self.unsynced[file], way, chance):
                    image.apply(change)
                found[name] = image
        return found


def survivors(changes: list[Unsynced], way: Way, chance: Random) -> list[Unsynced]:
    """Return what reached the disk of the changes to a file that were never synced."""
    match way:
        case "none":
            return []
        case "all":
            return changes
        case "torn":
            return [*changes[:-1], *(_torn(changes[-1], chance) if changes else [])]
        case "some":
            return [change for change in changes if chance.random() < 0.5]
        case "late":
            return changes[chance.randrange(len(changes) + 1) :]
        case "sectors":
            return [part for change in changes for part in _sectors(change) if chance.random() < 0.7]


def _torn(change: Unsynced, chance: Random) -> list[Unsynced]:
    """Return a beginning of a write: some of its sectors, at least one less than all of them."""
    parts = _sectors(change)
    return parts[: chance.randrange(len(parts))]


def _sectors(change: Unsynced) -> list[Unsynced]:
    if isinstance(change, Sized):
        return [change]
    start, end = change.offset, change.offset + len(change.data)
    edges = [start, *range((start // SECTOR + 1) * SECTOR, end, SECTOR), end]
    return [Wrote(change.file, left, change.data[left - start : right - start]) for left, right in pairwise(edges)]


def states(
    disk: RecordingDisk, *, seed: int = 0, most: int | None = None, ways: Sequence[Way] = WAYS, at: int | None = None
) -> Iterator[DiskState]:
    """Give what the disk may hold after a cut behind each event, in each way; states with the same files only once.

    With `most`, so many pairs of an event and a way are drawn by the seed; with `at`, only cuts behind that event are
    made. Where all is synced there is one way.
    """
    wanted = _choose(disk, seed, most, ways)
    if at is not None:
        wanted = {number: some for number, some in wanted.items() if number == at}
    seen: set[tuple[Any, ...]] = set()
    replay = _Replay()
    for number in range(len(disk.events) + 1):
        if number:
            replay.take(disk.events[number - 1])
        promised = [what for at, what in disk.acknowledged if at <= number] if number in wanted else []
        for way in wanted.get(number, ()):
            state = DiskState(number, way, replay.cut(way, Random(f"{seed}/{number}/{way}")), promised)  # noqa: S311
            mark = (len(promised), hash(state.fingerprint))
            if mark not in seen:
                seen.add(mark)
                yield state


def _choose(disk: RecordingDisk, seed: int, most: int | None, ways: Sequence[Way]) -> dict[int, list[Way]]:
    pairs: list[tuple[int, Way]] = []
    replay = _Replay()
    for number in range(len(disk.events) + 1):
        if number:
            replay.take(disk.events[number - 1])
        pairs.extend((number, way) for way in (["all"] if replay.calm else ways))  # type: ignore[misc]
    if most is not None and most < len(pairs):
        pairs = Random(seed).sample(pairs, most)  # noqa: S311  chance that can be repeated is the point
    wanted: dict[int, list[Way]] = {}
    for number, way in pairs:
        wanted.setdefault(number, []).append(way)
    return wanted


def empty_folder(folder: Path) -> Path:
    """Return the folder, made or emptied of files: a place to write a state into."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if path.is_file():
            path.unlink()
    return folder
