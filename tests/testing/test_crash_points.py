"""Kill points are named by what happens there, and one of them can be asked for again."""

import shutil
import sys
import threading
from types import FrameType

import msgspec
import pytest

import milepost as mp
from milepost.core import codec
from milepost.core import entries as e
from milepost.stores.api import Append, Head, Operation
from milepost.testing import NoSuchPoint, crash_at
from milepost.testing.crashing.points import TIMES_MOST, Fuse, Labels, calls, find
from milepost.testing.crashing.tooling import instrument
from tests.testing import careless
from tests.testing.books import Books

ANYTHING = msgspec.Raw(b"{}")
HEAD = Head(1, "run-1", 1, 1, 1, b"")


def written(*entries: e.Entry) -> Operation:
    return Append(HEAD, [codec.encode(entry) for entry in entries], 1)


def started(path: str, step: str = "0:0") -> e.EffectStarted:
    plan = e.EffectPlanned(
        at=1, step=step, path=path, tool="charge", version="1", effect="keyed", digest="d", args=ANYTHING, key="k"
    )
    return e.EffectStarted(at=1, step=step, attempt=1, epoch=1, deadline=2, plan=plan)


# ---------------------------------------------------------------- a point, asked for again


def test_one_kill_point_can_be_kept_as_a_regression(books: Books) -> None:
    """Requirement 50."""
    report = crash_at(careless.charges_as_read, "o-1", books, "charge_as_read#1: returned", "before claimed", seed=1)
    for broken in report.broken:
        if broken.store is not None:
            shutil.rmtree(broken.store.parent)

    assert report.points == ("charge_as_read#1: returned", "before claimed")
    assert [broken.rule for broken in report.at("returned")] == ["repeated"]
    assert report.at("before claimed") == ()
    assert report.equal == 1


def test_a_point_that_the_run_does_not_pass_is_refused_with_those_that_it_passes(books: Books) -> None:
    with pytest.raises(NoSuchPoint, match="before run created") as refused:
        crash_at(careless.charges_as_read, "o-1", books, "after the flood")

    assert refused.value.asked == "after the flood"
    assert "charge_as_read#1: returned" in refused.value.points


def test_a_part_of_a_name_is_enough_where_only_one_has_it() -> None:
    points = ["before claimed", "after claimed", "charge#1: returned"]

    assert find("returned", points) == "charge#1: returned"
    assert find("before claimed", points) == "before claimed"
    with pytest.raises(NoSuchPoint, match="before claimed\n  after claimed"):
        find("claimed", points)


def test_calls_are_counted_however_many_points_each_of_them_passes() -> None:
    points = ["before claimed", 'charge#1: before book(call).once("a: b")', "charge#1: returned", "charge#2: raised E"]

    assert calls(points) == {"charge": 2}


# ---------------------------------------------------------------- names


def test_what_is_written_together_is_named_by_its_weightiest_entry() -> None:
    labels = Labels().of([written(e.SleepStarted(at=1, step="0:0", until=2), started("pay/charge#1"))])

    assert labels == ["effect started pay/charge#1", "sleep started"]


def test_an_outcome_is_named_by_the_path_of_its_effect_until_the_segment_ends() -> None:
    labels = Labels()
    labels.of([written(started("pay/charge#1"))])
    confirmed = e.EffectConfirmed(at=1, step="0:0", attempt=1, result=ANYTHING)
    before = labels.of([written(confirmed)])
    boundary = e.Boundary(about="a", manifest="m", visit=1, segment=None)
    labels.of([written(e.Checkpointed(at=1, boundary=boundary))])

    assert before == ["effect confirmed pay/charge#1"]
    assert labels.of([written(e.SleepStarted(at=1, step="0:0", until=2))]) == ["sleep started"]


def test_what_comes_again_is_counted() -> None:
    fuse = Fuse()
    for _ in range(2):
        fuse.after(["claimed"])

    assert fuse.points == ["before claimed", "after claimed", "before claimed (time 2)", "after claimed (time 2)"]


def test_a_transaction_that_is_refused_is_no_point() -> None:
    fuse = Fuse()
    fuse.before(["claimed"])
    fuse.before(["claimed"])
    fuse.after(["claimed"])

    assert fuse.points == ["before claimed", "after claimed"]


# ---------------------------------------------------------------- the fuse


@pytest.mark.parametrize("at", ["before run done", "after run done", "after checkpointed", "charge#1: returned"])
def test_a_fuse_burns_once_and_at_its_point_whatever_else_is_written_there(at: str) -> None:
    burnt: list[int] = []
    fuse = Fuse(at, lambda: burnt.append(len(fuse.points)))
    fuse.calls("charge")
    for labels in (["claimed"], ["run done", "checkpointed"], ["run done"]):
        fuse.before(labels)
        fuse.after(labels)
    fuse.come("charge#1: returned")
    fuse.come("charge#1: returned")

    assert len(burnt) == 1


def test_a_fuse_tells_how_many_calls_are_under_way_when_it_burns() -> None:
    told: list[int] = []
    fuse = Fuse("before run done", lambda: None)
    fuse.told = told.append
    fuse.calls("charge")
    fuse.calls("ship")
    fuse.ends()
    fuse.before(["run done"])

    assert told == [1]


def test_the_lines_of_a_tool_are_points_also_in_what_it_calls_and_a_loop_only_so_often() -> None:
    def inner(number: int) -> int:
        return number * 2

    @mp.tool(effect="read")
    def look(number: int) -> int:
        return sum(inner(one) for one in range(number))

    fuse, traced = Fuse(), sys.gettrace()
    try:
        instrument([look], fuse, outside="elsewhere")
        assert look.fn(9) == 72
    finally:
        sys.settrace(traced)
        threading.settrace(traced)

    assert fuse.points[0] == "look#1: before return sum(inner(one) for one in range(number))"
    assert [point for point in fuse.points if "number * 2" in point] == [
        "look#1: before return number * 2",
        "look#1: before return number * 2 (time 2)",
        "look#1: before return number * 2 (time 3)",
    ]
    assert TIMES_MOST == 3
    assert fuse.points[-1] == "look#1: returned"


def test_a_tool_that_raises_passes_a_point_of_its_own_and_still_raises() -> None:
    @mp.tool(effect="read")
    def look(number: int) -> int:
        return 1 // number

    fuse, traced = Fuse(), sys.gettrace()
    try:
        instrument([look], fuse, outside=__name__)
        with pytest.raises(ZeroDivisionError):
            look.fn(0)
    finally:
        sys.settrace(traced)
        threading.settrace(traced)

    assert fuse.points == ["look#1: raised ZeroDivisionError"]
    assert fuse.at_work == 0


def test_a_line_without_a_source_is_named_by_its_number() -> None:
    fuse = Fuse()

    frames: dict[str, FrameType] = {"sys": sys}  # type: ignore[dict-item]
    exec("frame = sys._getframe()", frames)  # noqa: S102  code that has no file
    fuse.line("look#1", frames["frame"])

    assert fuse.points == ["look#1: before line 1"]
