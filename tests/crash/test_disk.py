"""A disk that fails: nobody knows what a commit that raised has written, so the worker stops, and reads it back."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.killing import Ended, calls_of, restarted, spread, violations, whole, work
from tests.crash.world import World

CHOSEN = 20
SHARES = 2


def failing(folder: Path, number: str) -> Ended:
    """Run a worker whose N-th sync of the disk fails."""
    return work(folder, "-e", "trace=fdatasync", "-e", f"inject=fdatasync:error=EIO:when={number}")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("share", range(SHARES))
def test_a_worker_whose_commit_fails_stops_sends_nothing_on_its_word_and_starts_again_consistently(
    tmp_path: Path, share: int, tell: Callable[[str], None]
) -> None:
    (tmp_path / "counted").mkdir()
    count = calls_of(tmp_path / "counted")["fdatasync"]
    stopped = 0
    for number in spread(count, CHOSEN)[share::SHARES]:
        folder = tmp_path / f"failed-{number}"
        folder.mkdir()
        ended = failing(folder, str(number))
        assert "EIO" in (folder / "trace").read_text() or number > count * 0.8
        if ended.code:
            assert "StoreFailed" in ended.err, ended.err
            stopped += 1
        # Every line of the ledger has its `started` in the file, whatever became of the commit that failed.
        assert violations(folder) == [], f"sync {number} failed"
        whole(folder, restarted(folder))
    tell(f"a failing disk: {stopped} failed commits stopped the worker, of {count} syncs")
    assert stopped


def test_on_a_disk_that_stays_broken_nothing_more_is_ever_sent(tmp_path: Path) -> None:
    (tmp_path / "counted").mkdir()
    count = calls_of(tmp_path / "counted")["fdatasync"]
    ended = failing(tmp_path, f"{count * 2 // 3}+")
    assert "StoreFailed" in ended.err
    before = World(tmp_path).lines()
    assert before
    assert "StoreFailed" in failing(tmp_path, "1+").err
    assert World(tmp_path).lines() == before
    assert violations(tmp_path) == []
    whole(tmp_path, restarted(tmp_path))
