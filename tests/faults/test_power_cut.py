"""Power cuts: every state that the disk may then hold opens, verifies, keeps what was acknowledged, and recovers.

A real run is recorded once: two processes after each other, two cases of work with one effect of every class, small
checkpoints so that the log is copied and begun anew, the log's file filled up once. From each state a new process goes on,
in a world that has applied what it had applied by the cut.
"""

import os
import shutil
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import apsw
import pytest

from milepost.operations.inspection import Inspector
from milepost.stores.api import Query
from milepost.stores.sqlite import store as sqlite_store
from milepost.testing.check import Applied, check
from milepost.testing.power_cut import DiskState, RecordingDisk, empty_folder, states
from tests.faults import errands
from tests.faults.errands import Outside
from tests.faults.simulated import MortalStore, Process, Time, now

ALL = os.environ.get("MILEPOST_FAULTS") == "all"
MOST = 6_000 if ALL else 260
CASES = ("anna", "ben")
CHECKPOINT_PAGES = 40
EXTEND_AFTER = 12
DB = "store.db"
PROMISED = "SELECT 'entry', run, seq, hex(hash) FROM mp_journal UNION ALL SELECT 'message', run, message_id, '' FROM mp_inbox"


class Recorder:
    """Notes what was acknowledged: each entry and message that was there when a commit returned."""

    def __init__(self, disk: RecordingDisk, outside: Outside) -> None:
        self.disk = disk
        self.outside = outside
        self.applied: list[tuple[int, Applied]] = []
        self.seen: set[tuple[Any, ...]] = set()

    def watch(self, store: MortalStore) -> None:
        def committed(*_: object) -> None:
            rows = set(store._reader.execute(PROMISED).fetchall())
            for row in rows - self.seen:
                self.disk.acknowledge(row)
            self.seen |= rows

        store.on_commit = committed

    def ledger(self, at: int, *, late: bool) -> list[Applied]:
        """Return what had been applied at a place in the recording; `late` is the last moment before the next event."""
        return [line for place, line in self.applied if place < at or (late and place == at)]


class RecordedOutside(Outside):
    """An outside world whose ledger says where in the recording a line was added."""

    recorder: Recorder

    def apply(self, tool: str, call: Any, args: dict[str, object], *, known_by_key: bool = False) -> None:
        before = len(self.ledger)
        super().apply(tool, call, args, known_by_key=known_by_key)
        self.recorder.applied.extend((self.recorder.disk.now, line) for line in self.ledger[before:])


def record(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, synchronous: str = "FULL") -> Recorder:
    """Record a real run: a process that leaves while the first case waits for an approval, then one that does the rest."""
    monkeypatch.setattr(sqlite_store, "COMMITS_BEFORE_EXTENDING", EXTEND_AFTER)
    disk, time, outside = RecordingDisk(name), Time(), RecordedOutside()
    recorder = outside.recorder = Recorder(disk, outside)
    folder.mkdir(exist_ok=True)
    with disk.installed():
        for again in (False, True):
            store = MortalStore(str(folder / DB), create=True)
            store._writer.wal_autocheckpoint(CHECKPOINT_PAGES)
            store._writer.execute(f"PRAGMA synchronous = {synchronous}").fetchall()
            recorder.watch(store)
            process = Process(store, time, outside, [errands.errands])
            for case in CASES if again else CASES[:1]:
                run_id = errands.begin(process, case)
                until = errands.ENDED if again else errands.ENDED | {"parked"}
                assert errands.drive(process, run_id, outside, until=until) == ("done" if again else "parked")
            process.leave()
    return recorder


@dataclass
class Verdict:
    """What was found in all states of a recording."""

    states: int = 0
    recovered: int = 0
    wrong: list[str] = field(default_factory=list)
    seen: set[Any] = field(default_factory=set)


def judge(recorder: Recorder, state: DiskState, folder: Path, verdict: Verdict) -> None:
    """Open a state, look at it, and go on from it."""
    state.write(empty_folder(folder))
    shutil.rmtree(folder / (DB + ".workers"), ignore_errors=True)
    verdict.states += 1
    try:
        store = MortalStore(str(folder / DB), create=True)
    except Exception as error:  # noqa: BLE001  whatever it is, the store did not open
        verdict.wrong.append(f"{state}: does not open: {error!r}")
        return
    wrong = looked_at(store, state)
    if wrong:
        verdict.wrong.extend(f"{state}: {what}" for what in wrong)
        store.close()
        return
    outside = Outside(recorder.ledger(state.events, late=state.way != "none"))
    mark = (content(store), len(outside.ledger))
    if mark in verdict.seen:  # nothing tells it from one that was recovered already
        store.close()
        return
    verdict.seen.add(mark)
    verdict.recovered += 1
    verdict.wrong.extend(f"{state}: {what}" for what in recovered(store, outside))


def looked_at(store: MortalStore, state: DiskState) -> list[str]:
    """Return what is wrong with a store as it was found."""
    try:
        pages = store._reader.execute("PRAGMA integrity_check").fetchall()
        found = set(store._reader.execute(PROMISED).fetchall())
        runs = now(store.runs(Query(limit=100)))
        damage = [now(Inspector(store).verify(row.id)).damage for row in runs]
    except apsw.Error as error:
        return [f"cannot be read: {error!r}"]
    lost = set(state.acknowledged) - found
    return [
        *([] if pages == [("ok",)] else [f"integrity: {pages[:2]}"]),
        *(f"damaged: {one}" for one in damage if one is not None),
        *([f"lost {len(lost)} of {len(state.acknowledged)} acknowledged, such as {min(lost)}"] if lost else []),
    ]


def content(store: MortalStore) -> bytes:
    """Return what tells the content of a store from that of another."""
    digest = sha256()
    names = store._reader.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").fetchall()
    for (name,) in names:
        digest.update(repr((name, store._reader.execute(f"SELECT * FROM {name}").fetchall())).encode())  # noqa: S608
    return digest.digest()


def recovered(store: MortalStore, outside: Outside) -> list[str]:
    """Go on from a state to the end of all work; return what is wrong then."""
    store._writer.execute("PRAGMA synchronous = OFF").fetchall()  # no power goes in the recovery, and it is many times faster
    process = Process(store, Time(seed=1), outside, [errands.errands])
    wrong = []
    try:
        for case in CASES:
            run_id = errands.begin(process, case)
            status = errands.drive(process, run_id, outside)
            if status != "done" or errands.result(process, run_id) != errands.result_of(case):
                wrong.append(f"the errands of {case} ended as {status}, with {errands.result(process, run_id)}")
        ledger = [*outside.ledger, *errands.entered(store)]
        wrong.extend(map(str, now(check(store, ledger))))
        for case in CASES:
            wrong.extend(
                f"{tool} of {args} was applied {times} times"
                for tool, args in errands.applied_by(case)
                if (times := sum((line.tool, line.args) == (tool, args) for line in ledger)) != 1
            )
    finally:
        process.leave()
    return wrong


def everything(recorder: Recorder, folder: Path, *, most: int | None, seed: int = 0) -> Verdict:
    verdict = Verdict()
    for state in states(recorder.disk, seed=seed, most=most):
        judge(recorder, state, folder, verdict)
    return verdict


@pytest.mark.timeout(1_800)
def test_after_a_power_cut_at_any_write_nothing_acknowledged_is_lost_and_the_run_ends_as_it_should(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fault 18: torn and reordered unsynced writes. Requirement 33."""
    recorder = record(tmp_path / "recorded", monkeypatch, "full")

    verdict = everything(recorder, tmp_path / "found", most=MOST)

    with capsys.disabled():
        print(
            f"\npower cuts: {verdict.states} disk states at {recorder.disk.now} events, "
            f"{verdict.recovered} recoveries, {len(verdict.wrong)} wrong"
        )
    assert not verdict.wrong, "\n".join(verdict.wrong[:20])
    assert verdict.states > MOST // 2
    assert verdict.recovered > 20
