"""Fault 19: the file of the store is changed behind its back, between a kill and the next start.

What can be noticed without a seal must be noticed before anything is sent; the rest is a gap with a name. A flipped
bit in the write-ahead log makes SQLite end the log in front of it, as it would after a power cut: what had been
acknowledged behind it is gone without a trace, and so it is when the log is cut, or when an older copy or another
store stands in the file's place.

In every second try the store is sealed between the kill and the change, and the worker is given the seal. Then there is
no gap: whatever of this has a consequence must be noticed before anything is sent.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from faults.lives import Ended
from faults.scenarios import baseline
from faults.scenarios.killing import TWENTY
from faults.scoreboard import Fault
from faults.stage import Stage, how, said
from faults.worker import STORE_FAILED
from milepost.cli.opening import writing
from milepost.operations import keys, sealing
from milepost.stores.api import Store
from milepost.testing.check import Rule

EFFECTS = 15  # of a run of twenty steps, without reads and notes
PAGES = 2
FILES = ("store.db", "store.db-wal")
SHARE_FLIPPED = 0.55
SHARE_FLIPPED_SEALED = 0.25  # what only a seal notices is what it is there for
# What an older or shorter record may lead to: what it does not know of any more may be done once more, with other
# arguments where they came from an answer that has changed since.
OF_THE_GAP: frozenset[Rule] = frozenset({"repeated", "unrecorded", "not_started", "failed", "altered"})


def changed_behind_its_back(stage: Stage) -> None:
    """Kill a run in the middle, change its file, and start it again."""
    syncs = [point for point in baseline.writes(stage, "twenty") if point.call == "fdatasync"]
    point = stage.chance.choice(syncs[len(syncs) // 3 : len(syncs) * 2 // 3])
    older = stage.folder.with_name(f"{stage.folder.name}-older")
    early = stage.chance.choice(syncs[len(syncs) // 4 : len(syncs) // 3])
    both = stage.killed(early, "twenty")
    keep(stage.folder, older)
    if not both or not stage.killed(point, "twenty"):
        stage.done("twenty", result=TWENTY)
        return
    good = stage.folder.with_name(f"{stage.folder.name}-good")
    sealed = bool(stage.seed % 2)
    if sealed:
        seal(stage)
    change, in_gap = chosen(stage, older, sealed=sealed)
    gap = in_gap and not sealed
    if not in_gap:
        stage.ask(lambda store: store.counts())  # the last one who closes it copies the log into the file
    keep(stage.folder, good)
    what = change()
    sent = len(stage.outside.requests())
    stage.result.points += 1
    ended = stage.work("twenty")
    if noticed(ended):
        stage.result.must(
            len(stage.outside.requests()) == sent, f"{what}: noticed only after something was sent ({how(ended)})"
        )
        restore(good, stage.folder)
        stage.result.asked += 1  # who puts back a copy is a person
        stage.done("twenty", result=TWENTY)
        return
    ended = stage.finish("twenty")
    broken = stage.violations()
    right = how(ended) == "done" and said(ended)["result"] == TWENTY and once_each(stage)
    if gap:
        stage.result.gap += bool(broken) or not right
        others = [violation for violation in broken if violation.rule not in OF_THE_GAP]
        stage.result.must(not others, f"{what}: {others[:2]}")
        # What it takes for refused had been done by the run that it has forgotten: so it may fail, and never break.
        fine = noticed(ended) or how(ended) in {"done", "person", "run_failed"}
        stage.result.must(fine, f"{what}, and it ended with {how(ended)}")
        return
    # What is not noticed lies where recovery does not look: in free space, or in the history of segments that ended.
    # Then the run must be as if nothing had been, and `milepost verify` must see what there is to be seen.
    stage.result.must(right, f"{what}, not noticed, and it ended with {how(ended)}: {broken[:2]}")
    seen = not broken or any(violation.rule == "damaged" for violation in broken)
    stage.result.must(seen, f"{what}, not noticed, not even by verify: {broken[:2]}")


def seal(stage: Stage) -> None:
    """Seal the store as the kill left it, elsewhere, with its log beside it, as if the machine had died right after."""
    keys_ = stage.folder.with_name(f"{stage.folder.name}-keys")
    place = stage.folder.with_name(f"{stage.folder.name}.seal")
    keys.create("ada", keys_)
    signer = keys.read_private(keys_ / "ada.key")
    after = stage.folder.with_name(f"{stage.folder.name}-sealed")

    async def sealing_it(store: Store) -> None:
        await sealing.seal(store, writing(store), signer, place, stage.setup.wall.now(), "ann")
        keep(stage.folder, after)  # while it is open: who closes it last copies the log into the file

    stage.ask(sealing_it)
    restore(after, stage.folder)
    stage.declare(seal=str(place))


def once_each(stage: Stage) -> bool:
    """Whether the outside has each effect of the run, and has it once."""
    applied = Counter((line.tool, line.name) for line in stage.outside.lines() if line.tool != "ask")
    pages = applied.pop(("publish", "x"), 0)
    return set(applied.values()) == {1} and len(applied) == EFFECTS - PAGES and pages == PAGES


def noticed(ended: Ended) -> bool:
    """Whether a worker said that the file is damaged, and stopped."""
    return ended.code == STORE_FAILED or how(ended) in {"run_blocked", "damaged"}


def chosen(stage: Stage, older: Path, *, sealed: bool) -> tuple[Callable[[], str], bool]:
    """Return the change that the seed means, and whether it belongs to the gap that only a seal closes."""
    if stage.chance.random() < (SHARE_FLIPPED_SEALED if sealed else SHARE_FLIPPED):
        return stage.chance.choice([(lambda: flipped(stage, "store.db")), (lambda: entry_flipped(stage))]), False
    changes: list[tuple[Callable[[], str], bool]] = [
        (lambda: cut(stage, "store.db"), False),
        (lambda: other_kind(stage), False),
        (lambda: flipped(stage, "store.db-wal"), True),
        (lambda: cut(stage, "store.db-wal"), True),
        (lambda: replaced(stage, older), True),
    ]
    return stage.chance.choice(changes[2:] if sealed else changes)


def flipped(stage: Stage, name: str) -> str:
    """Flip one bit somewhere in a file."""
    path = stage.folder / name
    data = bytearray(path.read_bytes())
    place, bit = stage.chance.randrange(len(data)), stage.chance.randrange(8)
    data[place] ^= 1 << bit
    path.write_bytes(data)
    return f"bit {bit} of byte {place} of {name} flipped"


def entry_flipped(stage: Stage) -> str:
    """Flip one bit in an entry that recovery reads, so that it stays text: the last bit of a digit or letter in it."""
    path = stage.folder / "store.db"
    (run,) = stage.runs()
    body = stage.chance.choice(stage.ask(lambda store: store.tail(run.id)).entries).body
    data = bytearray(path.read_bytes())
    starts = list(places(bytes(data), body))
    if not starts:
        return flipped(stage, "store.db")  # it is spread over several pages
    letters = [place for place, letter in enumerate(body) if chr(letter).isalnum()]
    place = stage.chance.choice(letters)
    for start in starts:  # the file may hold an older copy of a page
        data[start + place] ^= 1
    path.write_bytes(data)
    return f"one bit of entry {body[max(0, place - 20) : place + 20]!r} flipped"


def places(data: bytes, wanted: bytes) -> Iterator[int]:
    """Give each place where some bytes stand."""
    place = data.find(wanted)
    while place >= 0:
        yield place
        place = data.find(wanted, place + 1)


def cut(stage: Stage, name: str) -> str:
    """Cut a file off somewhere."""
    path = stage.folder / name
    size = path.stat().st_size
    left = stage.chance.randrange(size)
    with path.open("r+b") as file:
        file.truncate(left)
    return f"{name} cut from {size} to {left} bytes"


def other_kind(stage: Stage) -> str:
    """Put another file in its place."""
    path = stage.folder / "store.db"
    path.write_bytes(stage.chance.randbytes(path.stat().st_size))
    (stage.folder / "store.db-wal").unlink(missing_ok=True)
    return "another file in its place"


def replaced(stage: Stage, older: Path) -> str:
    """Put an older copy of itself in its place."""
    restore(older, stage.folder)
    return "an older copy in its place"


def keep(folder: Path, copy: Path) -> None:
    """Copy the files of a store that nobody has open."""
    copy.mkdir(exist_ok=True)
    for name in FILES:
        if (folder / name).exists():
            shutil.copyfile(folder / name, copy / name)


def restore(copy: Path, folder: Path) -> None:
    """Put a copy in the place of a store."""
    for name in (*FILES, "store.db-shm"):
        (folder / name).unlink(missing_ok=True)
    for path in copy.iterdir():
        shutil.copyfile(path, folder / path.name)


FAULTS = (
    Fault(
        19,
        "the file changed behind its back",
        "a bit flipped, the file cut, another file, an older copy, a log cut or with a bit flipped, between SIGKILL "
        "and restart; every second try with a seal",
        "noticed before anything is sent, or without consequence: with a seal always; without one, what follows an "
        "older record is counted as the gap",
        changed_behind_its_back,
        tries=60,
        smoke=4,
    ),
)
