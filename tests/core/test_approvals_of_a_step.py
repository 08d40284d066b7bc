"""Each attempt looks for the approvals of its own step: what it finds is what the record says, whatever came before."""

import contextlib
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from milepost.core import entries as e
from milepost.core.approval import Approval, Approvals
from milepost.core.approval_entries import ApprovalClosed
from milepost.core.state import IMPORTED
from milepost.errors import Damaged, IllegalOutcome
from tests.core import samples as say

STEPS = (":0", ":1", ":2")


def asked(step: str, id_: str) -> e.Entry:
    return e.ApprovalAsked(at=11, step=step, id=id_, tool_version="1", digest="d1")


def answered(_: str, id_: str) -> e.Entry:
    return e.ApprovalAnswered(at=12, id=id_, approved=True, by="ann")


def denied(_: str, id_: str) -> e.Entry:
    return e.ApprovalAnswered(at=12, id=id_, approved=False, by="ann")


def closed(_: str, id_: str) -> e.Entry:
    return ApprovalClosed(at=13, id=id_, standing="superseded", why="changed")


def planned(step: str, _: str) -> e.Entry:
    return say.planned(step=step)


def started(step: str, id_: str) -> e.Entry:
    return say.started(step=step, approval=id_)


def failed(step: str, _: str) -> e.Entry:
    return say.failed(step=step, final=True)


def lost(step: str, _: str) -> e.Entry:
    return say.lost(step=step)


def segment_failed(_: str, __: str) -> e.Entry:
    return e.SegmentFailed(at=40, why="boom", attempt=1, retry_at=500)


def retried(_: str, __: str) -> e.Entry:
    return e.Retried(at=41, by="ann")


def imported(_: str, __: str) -> e.Entry:
    return e.RunStopped(at=42, status="blocked", code=IMPORTED, why="from another store")


def checkpointed(_: str, __: str) -> e.Entry:
    return e.Checkpointed(at=43, boundary=say.boundary(visit=1))


def rewind_asked(_: str, __: str) -> e.Entry:
    return e.RewindAsked(at=44, to=0, by="ann", boundary=say.boundary())


COMMON = (asked, asked, asked, answered, denied, closed, planned, started, failed, lost)
RARE = (segment_failed, retried, imported, checkpointed, rewind_asked)
WORDS = st.tuples(st.sampled_from(COMMON + RARE), st.sampled_from(STEPS), st.sampled_from(["ap-1", "ap-2", "ap-3"]))


@given(st.lists(WORDS, max_size=30))
def test_what_is_found_by_the_step_is_what_is_found_among_all(
    words: list[tuple[Callable[[str, str], e.Entry], str, str]],
) -> None:
    """Requirement 20."""
    state = say.run()

    for word, step, id_ in words:
        with contextlib.suppress(Damaged, IllegalOutcome):
            state.apply(word(step, id_))

        among_all = {at: [one for one in state.approvals.values() if one.step == at] for at in STEPS}
        assert {at: list(state.approvals.of(at)) for at in STEPS} == among_all
        assert all(one is state.approvals[one.id] for at in STEPS for one in state.approvals.of(at))


def test_approvals_stand_in_the_order_in_which_they_were_asked() -> None:
    approvals = say.run(*(asked(step, id_) for step, id_ in ((":1", "b"), (":0", "c"), (":1", "a")))).approvals

    assert (list(approvals), len(approvals)) == (["b", "c", "a"], 3)
    assert [one.id for one in approvals.of(":1")] == ["b", "a"]
    assert [*approvals.of(":2")] == []


def test_one_that_is_taken_in_again_is_the_latest_and_stands_once() -> None:
    first, other, again = (Approval(id_, step, "1", "d1", 5) for id_, step in (("a", ":0"), ("b", ":0"), ("a", ":1")))

    approvals = Approvals([first, other, again])

    assert list(approvals.values()) == [other, again]
    assert ([*approvals.of(":0")], [*approvals.of(":1")]) == ([other], [again])


def test_approvals_are_equal_where_each_of_them_is() -> None:
    one, other = (Approval("a", ":0", "1", digest, 5) for digest in ("d1", "d2"))

    assert Approvals([one]) == Approvals([one]) == {"a": one}
    assert Approvals([one]) != Approvals([other])
