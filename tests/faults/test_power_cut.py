"""Power cuts: every state that the disk may then hold opens, verifies, keeps what was acknowledged, and recovers.

A real run is recorded once: two processes after each other, two cases of work with one effect of every class, small
checkpoints so that the log is copied and begun anew, the log's file filled up once. From each state a new process goes
on, in a world that has applied what it had applied by the cut.
"""

import os
import shutil
import sys
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
SEEDS = range(2) if ALL else range(1)
MOST = None if ALL else 260
LEAST = 3_000 if ALL else 180
CASES = ("anna", "ben")
CHECKPOINT_PAGES = 40
EXTEND_AFTER = 12
REBOOT_S = 60
DB = "store.db"
PROMISED = (
    "SELECT 'entry', run, seq, hex(hash) FROM mp_journal UNION ALL SELECT 'message', run, message_id, '' FROM mp_inbox"
)


class Recorder:
    """Notes what was acknowledged: each entry and message that was there when a commit returned."""

    def __init__(self, name: str) -> None:
        self.disk = RecordingDisk(name)
        self.applied: list[tuple[int, Applied]] = []
        self.time = Time()
        self.outside = Outside(on_applied=lambda line: self.applied.append((self.disk.now, line)))
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


def record(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, synchronous: str = "FULL") -> Recorder:
    """Record a real run: one process leaves while the first case waits for an approval, another does the rest."""
    monkeypatch.setattr(sqlite_store, "COMMITS_BEFORE_EXTENDING", EXTEND_AFTER)
    recorder = Recorder(name)
    outside = recorder.outside
    folder.mkdir()
    with recorder.disk.installed():
        for again in (False, True):
            store = MortalStore(str(folder / DB), create=True)
            store._writer.wal_autocheckpoint(CHECKPOINT_PAGES)
            store._writer.execute(f"PRAGMA synchronous = {synchronous}").fetchall()
            recorder.watch(store)
            process = Process(store, recorder.time, {Outside: outside}, [errands.errands])
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

    def __str__(self) -> str:
        return f"{self.states} disk states, {self.recovered} recoveries, {len(self.wrong)} wrong"


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
    verdict.wrong.extend(f"{state}: {what}" for what in recovered(store, outside, recorder.time.passed_s + REBOOT_S))


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


def recovered(store: MortalStore, outside: Outside, at_s: float) -> list[str]:
    """Go on from a state to the end of all work; return what is wrong then."""
    store._writer.execute(
        "PRAGMA synchronous = OFF"
    ).fetchall()  # no power goes in the recovery, and it is many times faster
    process = Process(store, Time(seed=1, passed_s=at_s), {Outside: outside}, [errands.errands])
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


@pytest.mark.timeout(1_800)
def test_after_a_power_cut_at_any_write_nothing_acknowledged_is_lost_and_the_run_ends_as_it_should(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Fault 18: torn and reordered unsynced writes."""
    recorder = record(tmp_path / "recorded", monkeypatch, "full")
    verdict = Verdict()

    for seed in SEEDS:
        for state in states(recorder.disk, seed=seed, most=MOST):
            judge(recorder, state, tmp_path / "found", verdict)

    with capfd.disabled():
        sys.stderr.write(f"\n  power cuts: {verdict}, of {recorder.disk.now} events\n")
    assert not verdict.wrong, "\n".join(verdict.wrong[:20])
    assert verdict.states >= LEAST
    assert verdict.recovered > LEAST // 10


@pytest.mark.parametrize("synchronous", ["OFF", "NORMAL"])
def test_a_store_that_does_not_sync_each_commit_is_found_to_lose_what_it_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, synchronous: str
) -> None:
    """The machine sees what it is there to see."""
    recorder = record(tmp_path / "recorded", monkeypatch, f"planted-{synchronous}", synchronous)
    found = Verdict()

    for state in states(recorder.disk, ways=("none",)):
        state.write(empty_folder(tmp_path / "found"))
        store = MortalStore(str(tmp_path / "found" / DB), create=True)
        found.wrong.extend(looked_at(store, state))
        store.close()
        if found.wrong:
            break

    assert any("acknowledged" in what for what in found.wrong), found.wrong


def test_a_recording_replays_into_the_files_that_are_really_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = record(tmp_path / "recorded", monkeypatch, "replayed")

    *_, last = states(recorder.disk, ways=("all",))

    assert last.events == recorder.disk.now
    assert list(last.files) == [DB]
    assert bytes(last.files[DB].data) == (tmp_path / "recorded" / DB).read_bytes()


def test_what_was_synced_is_in_every_state_and_what_was_not_may_be_gone_or_torn(tmp_path: Path) -> None:
    disk, log = RecordingDisk("small"), tmp_path / "plain.db-wal"
    with disk.installed():
        connection = apsw.Connection(str(tmp_path / "plain.db"))
        connection.execute("PRAGMA journal_mode = WAL; CREATE TABLE t (x)").fetchall()
        synced, before = log.read_bytes(), disk.now
        connection.execute("PRAGMA synchronous = NORMAL; INSERT INTO t VALUES (zeroblob(9000))").fetchall()
        whole, after = log.read_bytes(), disk.now
    connection.close()

    found = {bytes(one.files[log.name].data) for one in states(disk) if before < one.events <= after}

    assert all(one.startswith(synced) for one in found)
    assert whole in found
    assert any(not whole.startswith(one) for one in found), "no write is missing before a later one"
    assert len(found) > 2 * (after - before)


def test_the_same_seed_gives_the_same_states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = record(tmp_path / "recorded", monkeypatch, "seeded").disk

    first, again, other = ([state.fingerprint for state in states(disk, seed=seed, most=40)] for seed in (1, 1, 2))

    assert first == again
    assert first != other
