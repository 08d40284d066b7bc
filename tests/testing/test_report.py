"""What a report says in a line, what it is true of, and how it reads."""

from pathlib import Path

import pytest

from milepost.testing import Broken, Report, Unreliable

TWICE = Broken("refund#1: returned", "repeated", "refund was applied 2 times.", "It is a read.", Path("kept/store.db"))
AGAIN = Broken("before run done", "repeated", "refund was applied 2 times.", "It is a read.")
OTHER = Broken("undisturbed", "result", "Two results.", "")


def test_a_report_is_true_when_nothing_is_broken() -> None:
    whole = Report("crash_everywhere(refund)", 7, points=("before claimed",), equal=1)
    broken = Report("crash_everywhere(refund)", 7, points=("before claimed",), broken=(AGAIN,))

    assert whole
    assert whole.ok
    assert not broken
    assert not broken.ok
    assert str(whole) == "crash_everywhere(refund): 1 point, 1 equal, 0 broken (seed 7)"
    whole.raise_if_broken()


def test_what_broke_in_one_way_is_told_once_with_all_its_points() -> None:
    report = Report("crash_everywhere(refund)", 7, points=("a", "b", "c"), equal=1, broken=(OTHER, TWICE, AGAIN))

    assert str(report).splitlines() == [
        "crash_everywhere(refund): 3 points, 1 equal, 2 broken (seed 7)",
        "",
        "result: Two results.",
        "    at   undisturbed",
        "",
        "repeated: refund was applied 2 times.",
        "    at   refund#1: returned",
        "    at   before run done",
        "    why  It is a read.",
        "    see  milepost runs --store kept/store.db",
    ]
    assert str(TWICE) == "repeated at refund#1: returned: refund was applied 2 times. It is a read."


def test_many_points_are_counted_and_what_was_left_out_is_said() -> None:
    many = tuple(Broken(f"point {number}", "result", "Another result.", "") for number in range(9))
    report = Report("t", 1, broken=many, with_person=("a",), asked=("pay/mail#1",), missed=("b",), unseen=("note",))

    assert "    at   point 5\n         … and 3 points more" in str(report)
    assert "A person was asked at 1 point, and looked into the ledger, about: pay/mail#1" in str(report)
    assert "Not reached again: b" in str(report)
    assert "Not judged, since the ledger has no line of them: note" in str(report)


def test_a_broken_report_is_raised_as_a_failed_assertion_that_holds_it() -> None:
    report = Report("t", 1, broken=(TWICE,))

    with pytest.raises(Unreliable, match="applied 2 times") as raised:
        report.raise_if_broken()

    assert isinstance(raised.value, AssertionError)
    assert raised.value.report is report


def test_what_is_broken_at_a_point_can_be_asked_for() -> None:
    report = Report("t", 1, broken=(TWICE, AGAIN))

    assert report.at("refund#1") == (TWICE,)
    assert report.at("claimed") == ()
