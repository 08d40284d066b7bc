"""A commit that raises is unknown: the store writes no more, and whoever opens the file next reads what is true."""

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
        input="go\n" * APPENDS, capture_output=True, text=True, check=False, timeout=60,
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


def call_before(place: Path, call: str, append: int) -> int:
    """Return which system call of this name is the last one before an undisturbed process says an append is durable."""
    code, said, trace = appended(place, "-e", f"trace={call},write")
    assert (code, durable(said)) == (0, APPENDS)
    return trace[: trace.index(f"wrote {append}")].count(f"{call}(")


def failing(place: Path, call: str, error: str, when: str) -> tuple[int, list[str]]:
    """Run a process whose system calls fail; return its exit code and what it said."""
    code, said, trace = appended(place, "-e", f"trace={call}", "-e", f"inject={call}:error={error}:when={when}")
    assert "(INJECTED)" in trace
    return code, said


@pytest.mark.parametrize("append", [0, 7, APPENDS - 1])
def test_a_sync_that_fails_stops_the_store_for_good(stores: SqlitePlace, tmp_path: Path, append: int) -> None:
    """Requirement 12."""
    number = call_before(tmp_path / "counted.db", "fdatasync", append)

    code, said = failing(stores.path, "fdatasync", "EIO", str(number))

    assert durable(said) == append
    assert_stopped_and_read_back(stores.path, code, said)


def test_a_full_disk_refuses_the_commit_and_nothing_is_lost(stores: SqlitePlace, tmp_path: Path) -> None:
    number = call_before(tmp_path / "counted.db", "pwrite64", 5)

    code, said = failing(stores.path, "pwrite64", "ENOSPC", f"{number}+")

    assert durable(said) == 5
    assert_stopped_and_read_back(stores.path, code, said)


@pytest.mark.parametrize("call", ["pwrite64", "fdatasync"])
def test_a_store_that_could_not_be_made_is_made_the_next_time(stores: SqlitePlace, call: str) -> None:
    code, said = failing(stores.path, call, "ENOSPC" if call == "pwrite64" else "EIO", "2+")
    assert (code, said) == (1, [""])

    code, said, _ = appended(stores.path)

    assert (code, durable(said)) == (0, APPENDS)
    assert len(chain_of(stores.path, "a1")[0]) == 2 + 2 * APPENDS


def test_a_file_that_may_not_grow_any_more_refuses_the_commit(stores: SqlitePlace) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))

    done = subprocess.run(
        [sys.executable, "-m", "tests.stores.appending", str(stores.path), "a1", "2000"],
        input="go\n" * 200, capture_output=True, text=True, check=False, timeout=60, preexec_fn=limit,
    )  # fmt: skip

    said = done.stdout.split("\n")
    assert 0 < durable(said) < 2000
    assert_stopped_and_read_back(stores.path, done.returncode, said)
