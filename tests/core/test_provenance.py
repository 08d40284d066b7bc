"""What had answered a run before a call is taken from the record, and never lost at a boundary."""

import msgspec
import pytest

from milepost.core import entries as e
from milepost.core.provenance import heard
from tests.core import samples as say


def looked(step: str, tool: str = "look") -> e.ReadReturned:
    return e.ReadReturned(at=9, step=step, path="p", tool=tool, digest="d", result=msgspec.Raw(b"1"))


def read_failed(step: str, retry_at: int | None = None) -> e.ReadFailed:
    return e.ReadFailed(at=9, step=step, path="p", tool="look", digest="d", attempt=1, why="x", retry_at=retry_at)


def test_a_run_that_heard_nothing_names_nobody() -> None:
    assert heard(say.run()) == ()


def test_answers_before_a_call_count_and_its_own_and_later_ones_do_not() -> None:
    state = say.run(looked(":0", "model"), say.started(step=":1"), say.confirmed(step=":1"), looked(":2", "late"))

    assert heard(state, ":1") == ("model",)
    assert heard(state) == ("charge", "late", "model")


@pytest.mark.parametrize(
    ("entries", "names"),
    [
        ([say.started()], ()),
        ([say.started(), say.lost()], ()),
        ([say.started(), say.failed()], ("charge",)),
        ([read_failed(":0")], ("look",)),
        ([read_failed(":0", retry_at=99)], ()),
        ([e.ValueRecorded(at=9, step=":0", kind="random", value=msgspec.Raw(b"0.5"))], ()),
        ([e.SignalAwaited(at=9, step=":0", name="go")], ()),
    ],
    ids=["in flight", "unknown", "failed", "a read failed", "a read is retried", "chance", "a signal awaited"],
)
def test_what_answered_counts_a_failure_included(entries: list[e.Entry], names: tuple[str, ...]) -> None:
    assert heard(say.run(*entries)) == names


def test_a_signal_that_was_taken_is_named_as_one() -> None:
    signal = e.Signal("s1", "go", say.NULL)
    taken = e.SignalReceived(at=9, step=":0", name="go", id="s1", value=say.NULL)

    state = say.run(e.SignalAwaited(at=8, step=":0", name="go"), e.SignalSent(at=8, signal=signal), taken)

    assert heard(state) == ("signal:go",)


def test_a_child_s_result_is_named_by_its_workflow_once_it_is_there() -> None:
    began = e.ChildStarted(at=8, step=":0", child="c1", workflow="look-up", digest="d")
    asked = e.ChildAwaited(at=8, step=":1", child="c1")
    ended = e.ChildEnded(at=9, child="c1", status="done", result=say.NULL)

    assert heard(say.run(began, asked)) == ()
    assert heard(say.run(began, asked, ended)) == ("child:look-up",)


def test_what_was_heard_before_a_boundary_is_heard_after_it() -> None:
    """A model's answer in an earlier segment stands in the state that chooses the next call."""
    state = say.run(say.claimed(), heard=("model",))

    state.apply(looked(":0"))

    assert heard(state) == ("look", "model")
    state.apply(e.Checkpointed(at=20, boundary=say.boundary(visit=1, heard=heard(state))))
    assert heard(state, ":0") == ("look", "model")


def test_what_was_heard_in_a_segment_that_is_left_half_done_by_going_back_is_still_heard() -> None:
    """Its state goes back; what chose to go back, or what waits in the run's signals, has heard it all the same."""
    state = say.run(say.claimed(), heard=("model",))
    state.apply(looked(":0"))

    state.apply(e.RewindAsked(at=9, to=0, by="ann", boundary=say.boundary()))

    assert heard(state) == ("look", "model")


def test_an_answer_counts_also_behind_a_step_that_says_nothing() -> None:
    chance = e.ValueRecorded(at=9, step=":0", kind="random", value=msgspec.Raw(b"0.5"))

    assert heard(say.run(chance, looked(":1"))) == ("look",)


def test_a_child_that_was_started_in_an_earlier_segment_is_heard_without_its_name() -> None:
    ended = e.ChildEnded(at=9, child="c1", status="done", result=say.NULL)
    state = say.run(ended, e.ChildAwaited(at=9, step=":0", child="c1"), children={"c1": "running"})

    assert heard(state) == ("child:",)
