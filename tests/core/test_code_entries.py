"""Under which code a run goes on: what its entries make of the state, and what is decided from it."""

import pytest

from milepost.core import entries as e
from milepost.core.code_entries import CodeChanged, Migrated, Resumed
from milepost.core.decide import Decision, Enter, Migrate, Rest, World, decide
from milepost.core.state import RunState
from tests.core import samples as say

BOUNDARY_S = "m" * 64
BLOCKED = e.RunStopped(at=50, status="blocked", code="incompatible", why="x", manifest="new")


def changed(manifest: str, *changes: str) -> CodeChanged:
    return CodeChanged(at=40, manifest=manifest, changes=changes)


def test_a_boundary_says_which_code_made_it_and_what_came_later_is_kept_beside_it() -> None:
    """Requirement 44."""
    state = say.run(changed("new", "a", "b"), changed("newer", "b", "c"))

    assert (state.manifest_digest, state.code_digest) == (BOUNDARY_S, "newer")
    assert state.code_changes == ("a", "b", "c")


def test_the_next_boundary_forgets_what_differed_since_the_last() -> None:
    state = say.run(changed("new", "a"), e.Checkpointed(at=60, boundary=say.boundary(manifest="new")))

    assert (state.manifest_digest, state.code_digest, state.code_changes) == ("new", "new", ())


def test_a_migration_is_told_by_its_boundary_alone() -> None:
    migrated = Migrated(at=40, version="1", to="2", segment="a", to_segment="b", before="x", after="y", by="2")
    before, after = say.run(), say.run(migrated)

    assert (after.segment, after.code_digest, after.seq) == (before.segment, before.code_digest, before.seq + 1)


def test_a_block_names_the_code_that_may_not_go_on_until_it_is_lifted() -> None:
    """Requirement 57. Both sides stay in the record, so that they can be shown without the code."""
    state = say.run(BLOCKED)
    assert (state.status, state.refused_digest) == ("blocked", "new")

    state.apply(Resumed(at=70, by="ann", was="incompatible"))

    assert (state.status, state.code, state.why, state.refused_digest) == ("ready", "", "", "")
    assert state.code_digest == BOUNDARY_S


def test_what_a_person_accepts_is_the_code_that_counts_from_then_on() -> None:
    """Requirement 40."""
    state = say.run(BLOCKED, Resumed(at=70, by="ann", manifest="new", accepted=("the code of segment 'pay' changed",)))

    assert (state.code_digest, state.code_changes) == ("new", ("the code of segment 'pay' changed",))


@pytest.mark.parametrize(("code", "reopened"), [("condition_failed", True), ("incompatible", False), ("x", False)])
def test_lifting_a_block_keeps_what_failed_except_where_the_segment_had_ended(code: str, *, reopened: bool) -> None:
    blocked = e.RunStopped(at=50, status="blocked", code=code, why="x")
    tried = e.SegmentFailed(at=50, why="boom", attempt=2, retry_at=500)
    state = say.run(tried, say.started(), say.failed(final=True), blocked, Resumed(at=70, by="ann"))

    assert (say.STEP not in state.steps) is reopened
    assert (state.generation, state.segment_attempt, state.retry_at) == ((2, 0, None) if reopened else (1, 2, 500))


def decided(state: RunState, **world: object) -> Decision:
    return decide(state, World(now=1_000, migrates=("1", "2"), **world))  # type: ignore[arg-type]


def test_a_run_that_is_to_be_migrated_is_not_entered_before() -> None:
    """Requirement 35."""
    assert decided(say.run()) == Decision((), Migrate(("1", "2")))
    assert decide(say.run(), World(now=1_000)).perform == Enter("pay")


def test_what_forbids_going_on_also_forbids_a_migration_and_names_the_code() -> None:
    """Requirement 35."""
    (stopped,) = decided(say.run(), blocks=("no",), code="new").append

    assert stopped == e.RunStopped(at=1_000, status="blocked", code="incompatible", why="no", manifest="new")


def test_a_backoff_is_waited_for_before_a_migration() -> None:
    state = say.run(e.SegmentFailed(at=50, why="x", attempt=1, retry_at=5_000))

    assert decided(state).perform == Rest("time", 5_000)


def test_a_cancelled_run_is_not_migrated() -> None:
    (stopped,) = decided(say.run(e.CancelAsked(at=50, by="ann", why="x"))).append

    assert isinstance(stopped, e.RunStopped)
    assert stopped.status == "cancelled"
