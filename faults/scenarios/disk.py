"""Faults 16 to 18: a disk that fails, a disk that is full, and what is left of unsynced writes when the power goes."""

from __future__ import annotations

import re
from pathlib import Path

from faults.lives import Ended
from faults.noted import unacknowledged
from faults.recorded import recording
from faults.scenarios import baseline
from faults.scenarios.killing import TWENTY
from faults.scoreboard import Fault
from faults.stage import Stage, how
from faults.worker import STORE_FAILED
from milepost.errors import NotAStore, StoreMissing
from milepost.operations.inspection import Inspector
from milepost.stores.api import Query, Store
from milepost.testing.power_cut import DiskState, empty_folder, states

LEAST_FILE = 20_000  # bytes: what a worker's own output takes
MOST_FILE = 900_000
SYNCS_MOST = 40
COMPLAINT = 300
EVENTS = 700
FAILED_SYNC = re.compile(r"fdatasync\(\d+<([^>]*)>\) = -1 EIO")
JOURNAL = ("store.db", "store.db-wal", "store.db-journal", "store.db-shm")


def failing_sync(stage: Stage) -> None:
    """Let one sync of the disk fail, or all from one on."""
    syncs = [point for point in baseline.writes(stage, "twenty") if point.call == "fdatasync"]
    stage.result.must(len(syncs) <= SYNCS_MOST, f"{len(syncs)} syncs, and only {SYNCS_MOST} tries: one a sync is meant")
    point = baseline.chosen(stage, syncs)
    persists = stage.chance.random() < 0.3
    inject = point.inject_from if persists else point.inject
    ended = stage.work("twenty", under=[*inject("error=EIO"), "-y"], mode="note")
    recorded_first(stage, f"sync {point.number} failed")
    log = (stage.folder / "0.trace").read_text()
    failed = FAILED_SYNC.search(log)
    if stage.result.met(failed):
        refused(stage, ended, f"sync {point.number} failed")
    if failed is not None and failed[1].endswith("store.db-wal") and "fdatasync(" in log[failed.end() :]:
        # A commit: nobody knows what is on the disk. The last sync of all only empties the log of a store that closes.
        stage.result.must(
            stopped(ended), f"commit {point.number} was not synced, and the worker ended with {how(ended)}"
        )
    stage.judge(f"sync {point.number} failed")
    if persists and stopped(ended):
        sent = len(stage.outside.requests())
        again = stage.work("twenty", under=syncs[0].inject_from("error=EIO"))
        refused(stage, again, "the disk stayed broken")
        stage.result.must(len(stage.outside.requests()) == sent, "something was sent although nothing can be recorded")
    stage.done("twenty", result=TWENTY)


def full_disk(stage: Stage) -> None:
    """Let the disk be full at one write, from one write on, or at a size of its files."""
    writes = [point for point in baseline.writes(stage, "twenty") if point.call == "pwrite64"]
    point = baseline.chosen(stage, writes)
    match stage.seed % 3:
        case 0:
            ended = stage.work("twenty", under=point.inject("error=ENOSPC"), mode="note")
            full = "ENOSPC" in (stage.folder / "0.trace").read_text()
        case 1:
            ended = stage.work("twenty", under=point.inject_from("error=ENOSPC"), mode="note")
            full = "ENOSPC" in (stage.folder / "0.trace").read_text()
        case _:
            most = stage.chance.randrange(LEAST_FILE, MOST_FILE)
            ended = stage.work("twenty", fsize=most, mode="note")
            full = ended.code != 0
    if stage.result.met(full):
        refused(stage, ended, "the disk was full")
    recorded_first(stage, "the disk was full")
    stage.judge("the disk was full")
    stage.done("twenty", result=TWENTY)


def refused(stage: Stage, ended: Ended, when: str) -> None:
    """Check that a worker stopped and said that its store failed, or did without what failed. Nothing else will do."""
    fine = stopped(ended) or how(ended) in {"done", "person"}
    stage.result.must(fine, f"{when}, and the worker ended with {how(ended)}: {ended.err[-COMPLAINT:]}")


def stopped(ended: Ended) -> bool:
    """Whether a worker stopped because its store failed, and said so as its last word."""
    last = (ended.err.splitlines() or [""])[-1]
    return ended.code == STORE_FAILED and last.startswith("StoreFailed: ")


def recorded_first(stage: Stage, when: str) -> None:
    """Check that nothing was sent of which the store had not acknowledged that it began."""
    early = unacknowledged(stage.folder, stage.outside.requests())
    stage.result.must(not early, f"{when}, and yet this was sent before its record was durable: {', '.join(early)}")


def power_cut(stage: Stage) -> None:
    """Let the power go at one write, keep of what was not synced what a disk may keep, and go on from there."""
    at = stage.chance.randrange(1, EVENTS)
    ended = stage.ended(stage.start("record", str(at), "twenty", "", "x"))
    stage.result.must(ended.killed or ended.code == 0, f"the recorded run ended with {how(ended)}")
    disk = recording(stage.folder / "recording", stage.folder.name)
    found = list(states(disk, seed=stage.seed, at=disk.now))
    for state in found:
        look(stage, state)
    state = stage.chance.choice(found)
    put(stage.folder, state)
    stage.judge(str(state))
    stage.done("twenty", result=TWENTY)


def look(stage: Stage, state: DiskState) -> None:
    """Check that a state opens, verifies, and has all that was acknowledged."""
    folder = empty_folder(stage.folder / "found")
    state.write(folder)
    stage.result.points += 1

    async def entries(store: Store) -> int:
        runs = await store.runs(Query(limit=10))
        for run in runs:
            verified = await Inspector(store).verify(run.id)
            stage.result.must(verified.damage is None, f"{state}: {verified.damage}")
        return sum([len((await store.chain(run.id))[1]) for run in runs])

    promised = max(state.acknowledged, default=0)
    try:
        found = stage.ask(entries, folder)
    except (StoreMissing, NotAStore) as error:
        stage.result.must(isinstance(error, StoreMissing) or "it is empty" in str(error), f"{state}: {error}")
        found = 0
    stage.result.must(found >= promised, f"{state}: {promised} entries were acknowledged, {found} are left")


def put(folder: Path, state: DiskState) -> None:
    """Let a folder hold what the disk holds after the cut."""
    for name in JOURNAL:
        (folder / name).unlink(missing_ok=True)
    state.write(folder)


FAULTS = (
    Fault(
        16,
        "EIO when a commit is synced",
        "strace: EIO from the N-th fdatasync, or from it on, every N in turn",
        "the worker stops with StoreFailed and reads back when it starts again; nothing is sent that the store had not "
        "acknowledged",
        failing_sync,
        tries=SYNCS_MOST,
        smoke=2,
    ),
    Fault(
        17,
        "disk full",
        "strace: ENOSPC from the N-th pwrite64, or from it on; or RLIMIT_FSIZE",
        "refused with StoreFailed and no other error, nothing sent that the store had not acknowledged, and it goes on "
        "when there is space",
        full_disk,
        tries=60,
        smoke=3,
        least=0.4,
    ),
    Fault(
        18,
        "power cut: unsynced writes lost, reordered, torn",
        "a VFS that records each write and sync of a worker that dies at the N-th; every kind of remains is opened, "
        "one of them is gone on from",
        "it opens, verifies, has every acknowledged entry; then same result, nothing repeated, lost or misbelieved",
        power_cut,
        tries=40,
        smoke=2,
        least=1.5,
    ),
)
