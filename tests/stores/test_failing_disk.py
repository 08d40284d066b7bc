"""A commit that raises is unknown: the store writes no more, and whoever opens the file next reads what is true."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stores.conftest import SqlitePlace
from tests.stores.test_processes import chain_of

APPENDS = 12


def appended(place: Path, *strace: str) -> tuple[int, list[str], str]:
    """Run a process that appends, traced if so said; return its exit code, what it said, and what was traced."""
    trace = place.parent / "trace"
    before = ["strace", "-f", "-o", str(trace), *strace] if strace else []
    done = subprocess.run(
        [*before, sys.executable, "-m", "tests.stores.appending", str(place), "a1", str(APPENDS)],
        input="go\ngo\n", capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    return done.returncode, done.stdout.split("\n"), trace.read_text() if strace else ""


def durable(said: list[str]) -> int:
    """Return how many appends the process said were durable."""
    return sum(line.startswith("wrote") for line in said)


def assert_stopped_and_read_back(place: Path, code: int, said: list[str]) -> None:
    assert code == 3
    assert said[1 + durable(said) : -1] == ["StoreFailed", "still StoreFailed"]
    bodies, _ = chain_of(place, "a1")
    written = bodies[2::2]
    assert written[: durable(said)] == [b"%d" % number for number in range(durable(said))]
    assert len(written) - durable(said) in {0, 1}, "the doubtful append is there, or it is not; nothing after it"
    assert b"after" not in bodies


def syncs(place: Path) -> int:
    """Return how many commits of an undisturbed process reach the disk."""
    code, said, trace = appended(place, "-e", "trace=fdatasync")
    assert (code, durable(said)) == (0, APPENDS)
    return trace.count("fdatasync(")


@pytest.mark.parametrize("from_last", [1, 5, APPENDS - 1])
def test_a_sync_that_fails_stops_the_store_for_good(stores: SqlitePlace, tmp_path: Path, from_last: int) -> None:
    """Requirement 12."""
    count = syncs(tmp_path / "counted.db")

    code, said, trace = appended(
        stores.path, "-e", "trace=fdatasync", "-e", f"inject=fdatasync:error=EIO:when={count - from_last}"
    )

    assert trace.count("(INJECTED)") == 1
    assert durable(said) < APPENDS
    assert_stopped_and_read_back(stores.path, code, said)


def test_a_full_disk_refuses_the_commit_and_nothing_is_lost(stores: SqlitePlace, tmp_path: Path) -> None:
    _, _, counted = appended(tmp_path / "counted.db", "-e", "trace=pwrite64")
    writes = counted.count("pwrite64(")

    code, said, trace = appended(
        stores.path, "-e", "trace=pwrite64", "-e", f"inject=pwrite64:error=ENOSPC:when={writes // 2}+"
    )

    assert "(INJECTED)" in trace
    assert_stopped_and_read_back(stores.path, code, said)


def test_after_the_disk_has_room_again_the_run_goes_on(stores: SqlitePlace) -> None:
    appended(stores.path, "-e", "trace=pwrite64", "-e", "inject=pwrite64:error=ENOSPC:when=40+")
    before, _ = chain_of(stores.path, "a1")

    code, said, _ = appended(stores.path.with_name("other.db"))

    assert (code, durable(said)) == (0, APPENDS)
    assert chain_of(stores.path, "a1")[0] == before


def test_a_file_that_may_not_grow_any_more_refuses_the_commit(stores: SqlitePlace) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))

    done = subprocess.run(  # noqa: PLW1509  nothing else runs in this process between fork and exec
        [sys.executable, "-m", "tests.stores.appending", str(stores.path), "a1", "2000"],
        input="go\ngo\n", capture_output=True, text=True, check=False, timeout=60, preexec_fn=limit, env=os.environ,
    )  # fmt: skip

    said = done.stdout.split("\n")
    assert 0 < durable(said) < 2000
    assert_stopped_and_read_back(stores.path, done.returncode, said)
