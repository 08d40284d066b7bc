"""A run read whole: what stands, what was undone, and what must be undone to get back to a boundary."""

from typing import Any

import msgspec
import pytest

from milepost.core import codec, history
from milepost.core import entries as e
from milepost.core.code_entries import Resumed
from milepost.core.decide import GoBack, World, decide
from milepost.core.history import History, Stage
from milepost.errors import Damaged
from tests.core import samples as say

ADA = {"by": "ada", "why": "the wrong customer"}


def checkpoint(visit: int, segment: str, **changes: Any) -> e.Checkpointed:
    return e.Checkpointed(at=30, boundary=say.boundary(visit=visit, segment=segment, **changes))


def asked(to: int = 0, *undo: e.Undo, **changes: Any) -> e.RewindAsked:
    return e.RewindAsked(at=40, to=to, boundary=say.boundary(visit=to), undo=undo, **{**ADA, **changes})


def rewound(visit: int, to: int = 0, segment: str = "pay", **changes: Any) -> e.Rewound:
    return e.Rewound(at=50, to=to, boundary=say.boundary(visit=visit, segment=segment, **changes), **ADA)


def did(step: str = say.STEP, **changes: Any) -> list[e.Entry]:
    return [say.started(step=step, **changes), say.confirmed(step=step)]


def undid(visit: int, step: str = say.STEP) -> list[e.Entry]:
    return did(history.undoing(visit, step))


def read(*entries: e.Entry) -> History:
    return history.read(say.RUN, [say.created(), say.claimed(), *entries])


def at(told: History, named: str) -> Stage:
    found = told.find(named)
    assert found is not None
    return found


def since(told: History, named: str) -> list[tuple[int, str]]:
    return [(stage.visit, effect.step) for stage, effect in told.since(at(told, named))]


# ---------------------------------------------------------------- boundaries and their names


def test_a_boundary_is_named_by_what_is_entered_there_and_by_its_number() -> None:
    end = e.RunDone(at=60, boundary=say.boundary(visit=3, segment=None), result=say.NULL)
    told = read(checkpoint(1, "mail"), checkpoint(2, "mail", visits={"pay": 1, "mail": 1}), end)

    assert [stage.name for stage in told.stages] == ["pay", "mail", "mail@2", "end"]
    assert [at(told, name).visit for name in ("pay", "0", "mail", "mail@2", "2", "end")] == [0, 0, 1, 2, 2, 3]
    assert told.find("ship") is None
    assert [stage.seq for stage in told.stages] == [1, 3, 4, 5]


def test_a_boundary_of_an_attached_run_has_a_number_alone() -> None:
    told = history.read(say.RUN, [say.created(segment=None), checkpoint(1, None)])  # type: ignore[arg-type]

    assert [stage.name for stage in told.stages] == ["0", "1"]
    assert history.unsound(told, at(told, "1")) == []


def test_a_record_that_begins_with_no_boundary_is_damaged() -> None:
    with pytest.raises(Damaged, match="holds no boundary") as damaged:
        history.read(say.RUN, [say.claimed()])

    assert damaged.value.seq == 1


def test_what_a_visit_did_and_spent_stands_with_its_boundary() -> None:
    spending = [say.started(reserve=say.usd(3)), say.confirmed(spent=say.usd(2))]
    told = history.read(say.RUN, [say.created(granted=say.usd(9)), say.claimed(), *spending, checkpoint(1, "mail")])

    assert [list(stage.steps) for stage in told.stages] == [[say.STEP], []]
    assert told.stages[0].spent == say.usd(2)


# ---------------------------------------------------------------- what must be undone


def test_what_is_confirmed_since_a_boundary_is_undone_newest_first() -> None:
    """Requirement 21."""
    told = read(
        say.started(step=":0"), *did(":1"), say.confirmed(step=":0"), checkpoint(1, "mail"), *did(":0"), *did(":1")
    )

    assert since(told, "mail") == [(1, ":1"), (1, ":0")]
    assert since(told, "pay") == [(1, ":1"), (1, ":0"), (0, ":0"), (0, ":1")]


def test_what_failed_what_was_only_read_and_what_undid_is_not_undone() -> None:
    read_back = e.ReadReturned(at=9, step=":3", path="pay/look#1", tool="look", digest="d", result=say.NULL)
    told = read(say.started(), say.failed(final=True), *did(":1", effect="read"), read_back, *did(":2"))

    assert since(told, "pay") == [(0, ":2")]


def test_what_was_undone_once_is_not_undone_again() -> None:
    """Requirement 21. A rewind that was given up half-way is gone on with by the next."""
    stopped = e.RunStopped(at=45, status="cancelled", code="cancelled", why="no")
    told = read(*did(":0"), *did(":1"), asked(), *undid(0, ":1"), stopped)

    assert since(told, "pay") == [(0, ":0")]
    assert list(told.undone_by) == ["~0/:1"]


def test_after_a_rewind_its_boundary_stands_anew_and_what_was_behind_it_is_undone() -> None:
    told = read(
        *did(), checkpoint(1, "mail"), *did(), asked(1), *undid(1), rewound(2, 1, "mail", visits={"mail": 1}), *did()
    )

    assert [(stage.name, stage.undone) for stage in told.stages] == [("pay", False), ("mail", True), ("mail@2", False)]
    assert [stage.name for stage in told.standing()] == ["pay", "mail@2"]
    assert since(told, "pay") == [(2, ":0"), (0, ":0")]


# ---------------------------------------------------------------- what forbids it


def refused(told: History, named: str = "pay", **options: Any) -> list[str]:
    return history.refused(told, at(told, named), **options)


def test_a_run_whose_effects_are_settled_may_go_back() -> None:
    assert refused(read(*did(), checkpoint(1, "mail"))) == []


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([say.started()], "pay/charge#1 is started: milepost resolve"),
        ([say.started(), say.lost()], "pay/charge#1 is unknown: milepost resolve"),
        ([*did(), e.Contradicted(at=25, step=say.STEP, evidence="two", by="w")], "pay/charge#1 is being looked into"),
        ([e.RunStopped(at=25, status="killed", code="killed", why="no")], "killed"),
        ([e.RunStopped(at=25, status="blocked", code="imported", why="here")], "taken in from another store"),
        ([asked()], "being taken back to boundary 0 already"),
        ([e.CancelAsked(at=25, by="bob", why="no")], "asked to stop"),
        ([e.ChildStarted(at=25, step=":1", child="c1", workflow="w", digest="d")], "child c1 was started since"),
    ],
)
def test_what_stands_in_the_way_is_named(entries: list[e.Entry], said: str) -> None:
    """Requirement 21."""
    [why] = refused(read(*entries))

    assert said in why


def test_what_failed_in_an_earlier_segment_and_may_have_happened_is_in_the_way_until_a_person_looked() -> None:
    """Requirement 21. Nothing would undo it, for it is recorded as failed; and going back would do it once more."""
    against = e.Contradicted(
        at=80, step="", evidence="attempt 1 of pay/charge#1 returned after all", by="w", tool="charge"
    )
    blocked = e.RunStopped(at=80, status="blocked", code="contradicted", why="pay/charge#1: late")
    before = [say.started(), say.failed(final=True), checkpoint(1, "mail"), against]

    [why] = refused(read(*before, blocked))
    assert why == (
        "attempt 1 of pay/charge#1 returned after all, though it is recorded as failed: "
        "undo it by hand and milepost resume"
    )
    assert refused(read(*before, blocked, Resumed(at=90, by="ann", why="undone by hand", was="contradicted"))) == []
    over = e.RunStopped(at=70, status="failed", code="failed", why="no")
    assert "fork it" in refused(read(*before[:3], over, against))[0]


def test_an_effect_that_a_living_worker_lets_end_is_not_in_the_way_but_an_unknown_one_is() -> None:
    assert refused(read(say.started()), driven=True) == []
    assert refused(read(say.started(), say.lost()), driven=True) != []
    assert refused(read(say.started(effect="read"), say.lost())) == []


def test_a_child_that_ended_or_was_there_before_is_not_in_the_way() -> None:
    born = e.ChildStarted(at=25, step=":1", child="c1", workflow="w", digest="d")
    ended = e.ChildEnded(at=26, child="c1", status="done", result=say.NULL)
    before = checkpoint(1, "mail", children={"c1": "running"})

    assert refused(read(born, ended)) == []
    assert refused(read(born, before), "mail") == []


def test_the_children_since_a_boundary_are_those_that_were_started_since() -> None:
    born = e.ChildStarted(at=25, step=":1", child="c1", workflow="w", digest="d")
    ended = e.ChildEnded(at=36, child="c1", status="done", result=say.NULL)
    stranger = e.ChildEnded(at=37, child="c0", status="done", result=say.NULL)
    told = read(born, checkpoint(1, "mail", children={"c1": "running"}), ended, stranger)

    assert [told.children_since(stage) for stage in told.stages] == [[("c1", "done")], []]


def test_nobody_goes_on_from_a_state_that_tells_of_what_was_undone() -> None:
    """Requirement 24."""
    back = [asked(1), *undid(1), rewound(2, 1, "mail", visits={"mail": 1})]
    told = read(*did(), checkpoint(1, "mail"), *did(), *back)
    stopped = e.RunStopped(at=45, status="failed", code="deadline", why="late")
    half = read(*did(), checkpoint(1, "mail"), asked(), *undid(0), stopped)
    end = e.RunDone(at=60, boundary=say.boundary(visit=1, segment=None), result=say.NULL)

    assert "a rewind has undone it" in refused(told, "mail")[0]
    assert refused(half, "mail") == ["its state tells of pay/charge#1, which was undone"]
    assert refused(half, "pay") == []
    assert refused(read(end), "end") == ["the run ended there: there is nothing to go on with"]


# ---------------------------------------------------------------- the state of a run that goes back


def test_a_run_that_goes_back_leaves_its_segment_and_keeps_what_failed_there() -> None:
    planned = e.ApprovalAsked(at=11, step=":1", id="ap-1", tool_version="1", digest="d1")
    before = [say.started(reserve=say.usd(3)), say.failed(), say.planned(step=":1"), planned, *did(":2")]
    before += [say.started(step=":3", reserve=say.usd(2)), say.confirmed(step=":3")]
    state = say.run(*before, asked(), granted=say.usd(9))

    assert (state.status, state.steps, dict(state.approvals), state.ledger.reserved) == ("ready", {}, {}, {})
    assert [(one.path, one.outcome, bytes(one.output)) for one in state.finished] == [
        (say.PATH, "failed", b'"no route"')
    ]
    assert (state.ledger.granted, state.ledger.spent) == (say.usd(9), say.usd(2))
    assert state.generation == 1
    assert state.rewind == asked()


@pytest.mark.parametrize("status", ["failed", "cancelled", "blocked"])
def test_a_run_that_was_stopped_is_alive_again_once_it_goes_back(status: str) -> None:
    stopped = e.RunStopped(at=30, status=status, code="x", why="y")
    state = say.run(e.CancelAsked(at=29, by="bob", why="no"), stopped, asked())

    assert (state.status, state.code, state.why, state.cancel, state.ended) == ("ready", "", "", None, False)


def test_a_run_that_goes_back_does_that_and_nothing_else() -> None:
    """Requirement 21."""
    assert decide(say.run(asked()), World(60)).perform == GoBack(0)
    assert decide(say.run(asked(), rewound(1)), World(60)).perform != GoBack(0)


def test_a_run_that_goes_back_still_stops_where_it_is_told_to_or_the_code_may_not_go_on() -> None:
    cancelled = decide(say.run(asked(), e.CancelAsked(at=50, by="bob", why="no")), World(60))
    blocked = decide(say.run(asked()), World(60, blocks=("another version",)))

    assert isinstance(cancelled.append[0], e.RunStopped)
    assert isinstance(blocked.append[0], e.RunStopped)
    assert blocked.append[0].status == "blocked"


@pytest.mark.parametrize(("status", "goes_on"), [("blocked", True), ("cancelled", False), ("killed", False)])
def test_a_block_keeps_the_way_back_and_an_end_gives_it_up(status: str, goes_on: bool) -> None:  # noqa: FBT001
    state = say.run(asked(), e.RunStopped(at=50, status=status, code="x", why="y"))

    assert (state.rewind is not None) is goes_on


def test_the_new_boundary_is_where_the_run_is() -> None:
    state = say.run(*did(), asked(), rewound(1, granted=say.usd(4), spent=say.usd(3)))

    assert (state.visit, state.segment, state.status, state.rewind, state.steps) == (1, "pay", "ready", None, {})
    assert (state.ledger.granted, state.ledger.spent) == (say.usd(4), say.usd(3))


def test_what_is_to_be_undone_is_read_back_from_its_bytes() -> None:
    undo = e.Undo(2, ":0", say.PATH, "charge", "refund", msgspec.Raw(b'"r"'), '["o"]')

    assert codec.decode(codec.encode(asked(0, undo))) == asked(0, undo)


def test_each_time_it_goes_back_what_failed_while_undoing_becomes_another_effect() -> None:
    tried = e.SegmentFailed(at=39, why="boom", attempt=2, retry_at=500)
    state = say.run(tried, asked(), e.RunStopped(at=45, status="cancelled", code="x", why="y"), asked())

    assert (state.generation, state.segment_attempt, state.retry_at) == (3, 0, None)
