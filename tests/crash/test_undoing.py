"""Killed at every commit and send of a rewind: each compensation happens once, and the run stands at its boundary."""

from collections.abc import Callable
from pathlib import Path

import pytest

from milepost.core import entries as e
from tests.crash.killing import calls_of, copied, journals, killed_at, restarted, spread, violations, work
from tests.crash.world import World

SHARES = 2
CHOSEN = {"fdatasync": 1_000, "pwrite64": 24}  # every commit, and a choice of the writes between them
PLACES = [
    *(f"{tool}:{place}" for tool in ("call_back", "refund") for place in ("before", "applied", "return")),
    "call_back:before,call_back:reconcile",
]


@pytest.fixture(scope="session")
def paid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run that charged, shipped and ended."""
    folder = tmp_path_factory.mktemp("paid") / "desk"
    folder.mkdir()
    assert restarted(folder, "pay") == "paid"
    return folder


def is_back(folder: Path) -> None:
    """Assert that both effects were undone once, newest first, and that the run went on from its boundary."""
    assert restarted(folder, "undo") == "not paid"
    assert violations(folder) == []
    assert [line.tool for line in World(folder).lines()] == ["charge", "ship", "call_back", "refund"]
    [told] = journals(folder)
    back = [entry for entry in told if isinstance(entry, e.RewindAsked | e.Rewound)]
    assert [type(entry) for entry in back] == [e.RewindAsked, e.Rewound]
    asked, rewound = back
    assert isinstance(asked, e.RewindAsked)
    assert [undo.with_ for undo in asked.undo] == ["call_back", "refund"]
    confirmed = [entry.step for entry in told if isinstance(entry, e.EffectConfirmed)]
    assert confirmed[-2:] == [f"~{undo.visit}/{undo.step}" for undo in asked.undo]
    assert rewound.boundary.segment == "deciding"
    assert isinstance(told[-1], e.RunDone)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("share", range(SHARES))
def test_a_rewind_killed_at_any_write_or_sync_undoes_each_effect_once_and_ends_at_its_boundary(
    tmp_path: Path, paid: Path, share: int, tell: Callable[[str], None]
) -> None:
    """Requirement 21. Requirement 51. With two compensations: one sent again under its key, one looked up."""
    counts = calls_of(copied(paid, tmp_path / "counted"), "undo")
    points = [(call, number) for call, count in counts.items() for number in spread(count, CHOSEN[call])]
    hit = 0
    for call, number in points[share::SHARES]:
        folder = copied(paid, tmp_path / f"{call}-{number}")
        hit += killed_at(folder, call, number, "undo")
        assert violations(folder) == [], f"killed at {call} {number}"
        is_back(folder)
    tell(f"a rewind: {hit} kill points hit, {len(points[share::SHARES])} chosen of {sum(counts.values())}")
    assert hit


@pytest.mark.parametrize("place", PLACES)
def test_a_compensation_that_is_cut_short_at_its_send_happens_once(tmp_path: Path, paid: Path, place: str) -> None:
    """Requirement 21. Requirement 33."""
    folder = copied(paid, tmp_path / "desk")
    for crash_at in place.split(","):
        assert work(folder, crash_at=crash_at, program="undo").killed, crash_at
        assert violations(folder) == [], crash_at
    is_back(folder)
