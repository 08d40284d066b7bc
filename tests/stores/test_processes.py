"""Several processes on one file: each chain stays whole, what was said to be durable is, and a lock is no damage."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import apsw
import pytest

from milepost.core.chain import verify
from milepost.errors import StoreBusy
from milepost.stores.api import Head, Tail
from milepost.stores.sqlite.store import SqliteStore
from milepost.testing.store_conformance import Subject
from milepost.testing.store_conformance.subject import append, status
from tests.stores.appending import IN_A_ROW
from tests.stores.conftest import SqlitePlace

ROUNDS = 15
APPENDS = ROUNDS * IN_A_ROW


@contextmanager
def process(place: Path, run_id: str, appends: int, *before: str) -> Iterator["subprocess.Popen[str]"]:
    """Start a process that appends, and end it whatever happens."""
    command = [*before, sys.executable, "-m", "tests.stores.appending", str(place), run_id, str(appends)]
    started = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


def hear(started: "subprocess.Popen[str]") -> str:
    assert started.stdout is not None
    return started.stdout.readline().strip()


def go(started: "subprocess.Popen[str]", times: int = 1) -> None:
    assert started.stdin is not None
    started.stdin.write("go\n" * times)
    started.stdin.flush()


def chain_of(place: Path, run_id: str) -> tuple[list[bytes], Head]:
    """Return the bodies of a verified chain, read by an opening of our own."""
    store = SqliteStore(str(place))
    genesis, stored, head = asyncio.run(store.chain(run_id))
    store.close()
    verify(run_id, genesis, 1, ((one.seq, one.body, one.hash) for one in stored), head.hash)
    return [one.body for one in stored], head


def tail_of(place: Path, run_id: str) -> Tail:
    store = SqliteStore(str(place))
    tail = asyncio.run(store.tail(run_id))
    store.close()
    return tail


def test_two_processes_append_to_one_file_in_turns_and_every_chain_is_whole(stores: SqlitePlace) -> None:
    with process(stores.path, "a1", APPENDS) as one, process(stores.path, "b1", APPENDS) as two:
        assert (hear(one), hear(two)) == ("ready", "ready")
        said: list[list[str]] = [[], []]
        for _ in range(ROUNDS):
            go(one)
            go(two)
            for heard, started in zip(said, (one, two), strict=True):
                heard.extend(hear(started) for _ in range(IN_A_ROW))
        assert (hear(one), hear(two)) == ("done", "done")

    assert said == [[f"wrote {number}" for number in range(APPENDS)]] * 2
    for run_id in ("a1", "b1"):
        bodies, _ = chain_of(stores.path, run_id)
        assert bodies[2::2] == [b"%d" % number for number in range(APPENDS)]
    file = apsw.Connection(str(stores.path))
    order = [row[0] for row in file.execute("SELECT run FROM mp_journal ORDER BY row").fetchall()]
    file.close()
    turns = sum(before != after for before, after in pairwise(order))
    assert turns >= ROUNDS, "they did not truly write side by side"


def test_what_a_process_said_was_durable_is_there_after_it_was_killed(stores: SqlitePlace) -> None:
    """Requirement 85. Requirement 59."""
    with process(stores.path, "a1", 10_000) as started:
        assert hear(started) == "ready"
        go(started, 1_000)
        said = [hear(started) for _ in range(40)]
        started.kill()
        said += [line.strip() for line in started.stdout or () if line.strip().startswith("wrote")]

    last = int(said[-1].split()[1])
    bodies, head = chain_of(stores.path, "a1")
    tail = tail_of(stores.path, "a1")
    assert bodies[2 : 4 + 2 * last : 2] == [b"%d" % number for number in range(last + 1)]
    assert len(bodies) in {4 + 2 * last, 6 + 2 * last}, "at most the append in flight is there besides"
    assert len(tail.entries) == 1
    assert tail.entries[0].body.startswith(b"boundary ")
    assert head.epoch == 1


def test_a_locked_file_is_busy_and_nothing_was_written(stores: SqlitePlace) -> None:
    async def scene() -> None:
        subject = Subject(stores, await stores.open())
        head = await subject.held("a1")
        store = subject.store
        assert isinstance(store, SqliteStore)
        store._writer.set_busy_timeout(20)
        file = apsw.Connection(str(stores.path))
        file.execute("BEGIN IMMEDIATE").fetchall()
        before = (head.row, head.seq, head.hash)

        with pytest.raises(StoreBusy, match="Nothing was written"):
            await subject.write(append(head, b"one", status=status("parked")))

        file.execute("ROLLBACK").fetchall()
        file.close()
        assert (head.row, head.seq, head.hash) == before
        assert await subject.bodies("a1") == [b"created a1", b"claimed 1"]
        assert (await store.run("a1")).status == "running"
        await subject.done(append(head, b"one"))
        assert (await subject.bodies("a1"))[-1] == b"one"
        subject.close()

    asyncio.run(scene())


def test_a_process_that_waits_its_turn_writes_when_the_lock_is_free(stores: SqlitePlace) -> None:
    with process(stores.path, "a1", 1) as started:
        assert hear(started) == "ready"
        file = apsw.Connection(str(stores.path))
        file.execute("BEGIN IMMEDIATE").fetchall()
        go(started)
        file.execute("ROLLBACK").fetchall()
        file.close()

        assert hear(started) == "wrote 0"


def test_a_commit_on_a_thread_of_its_own_answers_the_same(stores: SqlitePlace) -> None:
    async def scene() -> None:
        subject = Subject(stores, await stores.open())
        first, second = await subject.held("a1"), await subject.held("a2")
        await subject.claim("a2", "worker-2", "worker-1")

        answers = await subject.store.commit([append(first, b"one"), append(second, b"stale")], threaded=True)

        assert [type(answer).__name__ for answer in answers] == ["NoneType", "EpochLost"]
        assert (await subject.bodies("a1"))[-1] == b"one"
        subject.close()

    asyncio.run(scene())


def test_a_commit_at_once_is_made_only_where_commits_are_quick(stores: SqlitePlace) -> None:
    async def scene() -> None:
        subject = Subject(stores, await stores.open())
        head = await subject.held("a1")
        store = subject.store
        assert isinstance(store, SqliteStore)

        store.commit_seconds = 0.0
        quick = store.commit_now([append(head, b"one")])
        store.commit_seconds = 1.0
        slow = store.commit_now([append(head, b"two")])

        assert (quick, slow) == ([None], None)
        assert (await subject.bodies("a1"))[2:] == [b"one"]
        subject.close()

    asyncio.run(scene())
