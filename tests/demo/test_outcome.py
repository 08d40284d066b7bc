"""What a demo may not end with: each flaw is named, and a demo without one is silent."""

from dataclasses import replace

import pytest

from milepost.cli.demo.desk_record import Held
from milepost.cli.demo.outcome import Outcome
from milepost.cli.demo.tally import Tally
from tests.demo.test_show import OUTCOME, PLAN, RECORD, TALLY

REFUND = Held("T-003", "aa", "pay/refund#1", "refund", "two were found")


def with_line(*, duplicates: int = 0, lost: int = 0, wrong: int = 0) -> Outcome:
    line = replace(TALLY.lines[0], duplicates=duplicates, lost=lost, wrong=wrong)
    return replace(OUTCOME, tally=Tally((line, *TALLY.lines[1:])))


def test_a_demo_that_showed_what_it_was_to_show_has_no_problem() -> None:
    assert OUTCOME.problems() == []


@pytest.mark.parametrize(
    ("outcome", "problem"),
    [
        (with_line(duplicates=2), "2 duplicates"),
        (with_line(lost=3), "3 lost"),
        (with_line(wrong=1), "1 wrong"),
        (replace(OUTCOME, plan=replace(PLAN, kills=20)), "2 kills instead of 20"),
        (replace(OUTCOME, plan=replace(PLAN, on_effect=10)), "1 kills on an effect in flight instead of 10"),
        (
            replace(OUTCOME, record=replace(RECORD, stuck=("T-009",))),
            "1 runs that are neither done nor wait for a person",
        ),
        (
            replace(OUTCOME, record=replace(RECORD, held=(*RECORD.held, REFUND))),
            "1 effects besides mails that wait for a person",
        ),
        (replace(OUTCOME, record=replace(RECORD, damaged=("01",))), "1 runs whose record does not verify"),
        (
            replace(OUTCOME, record=replace(RECORD, done={"mail": frozenset({"T-001", "T-002"})})),
            "1 effects of which the record and the ledgers tell different stories",
        ),
    ],
    ids=lambda value: value.partition(" ")[2].replace(" ", "-") if isinstance(value, str) else "",
)
def test_every_flaw_is_named(outcome: Outcome, problem: str) -> None:
    assert outcome.problems() == [problem]


def test_the_naive_desk_is_judged_by_the_ledgers_alone() -> None:
    assert replace(with_line(duplicates=9), record=None).problems() == ["9 duplicates"]


def test_the_figures_can_be_read_as_data() -> None:
    data = OUTCOME.as_data()

    assert data["seed"] == 7
    assert data["effects"]["mail"] == {
        "expected": 48, "applied": 46, "duplicates": 0, "lost": 0, "waiting": 1, "wrong": 0,
    }  # fmt: skip
    assert (data["kills"], data["kills_on_effect"], data["restarts"]) == (2, 1, 2)
    assert data["restart_to_first_step"] == {"median": 0.35, "longest": 0.75}
    assert data["unknown"] == {"met": 11, "reconciled": 9}
    assert [one["arrived"] for one in data["waiting_for_a_person"]] == [True, False]
