"""A worker dies at every call boundary in turn, and its run ends as if nobody had killed it; or the sweep sees it."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from evaluation import classes
from evaluation.dying import Finished, Stage, misplaced, template
from evaluation.everywhere import killed_everywhere
from evaluation.hosting import Closed, Entry, OutsideClient, Statement, outside_process
from evaluation.killing import WorkerError
from evaluation.points import MOMENTS, Case, Ending, Moment, Point, points_of, sample
from evaluation.sweep import sweep
from evaluation.verdicts import Verdict, differences, table, unkilled_differences
from milepost.operations.inspection import Line
from tests.evaluation.tiny_outside import LOOK, PAY


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with outside_process("tests.evaluation.tiny_outside") as port:
        yield port


@pytest.fixture(scope="module")
def cases(port: int) -> dict[str, Case]:
    with closing(OutsideClient(port)) as client:
        return {case.id: case for case in client.cases()}


def test_a_task_with_a_call_of_each_class_ends_equal_wherever_its_worker_is_killed(
    port: int, cases: dict[str, Case]
) -> None:
    """Requirement 50. Requirement 51. Requirement 69. Requirement 86."""
    points = points_of(cases["all_classes"])

    swept = sweep(port, points, together=1)

    assert {classes.of(point.function) for point in points} == {
        "read", "keyed", "absolute", "queryable", "irreversible"
    }  # fmt: skip
    assert [(str(one.point), one.differences) for one in swept.verdicts if one.differences] == []
    assert swept.wrong == {}
    assert [(one.point.function, one.point.moment) for one in swept.verdicts if one.persons] == [
        ("send_email", "before"),
        ("send_email", "during"),
    ]


def test_calls_that_a_task_makes_twice_are_both_made_when_the_second_is_killed(
    port: int, cases: dict[str, Case]
) -> None:
    """Requirement 50. Requirement 51."""
    points = [point for point in points_of(cases["the_same_twice"]) if point.position == 3]

    swept = sweep(port, points, together=1)

    assert [one.differences for one in swept.verdicts] == [(), (), (), ()]


def test_the_sweep_sees_what_a_wrong_claim_about_a_tool_leads_to(
    port: int, cases: dict[str, Case], tmp_path: Path
) -> None:
    """Requirement 86."""
    case = cases["the_same_twice"]
    point = Point(case, 1, "during")
    with closing(OutsideClient(port)) as client:
        # The bank does not know a payment's reference as a key: who sends it again pays twice.
        stage = Stage(tmp_path / "runs.db", client, template(), {"send_money": "keyed"})
        unkilled, killed = stage.play(case, "wrong-unkilled"), stage.play(case, "wrong-killed", point)

    found = differences(point, unkilled, killed, "queryable")

    assert unkilled_differences(case, unkilled) == ()
    assert {"the environment differs", "the suite's verdict differs", "a reference was applied twice"} <= set(found)


def test_a_task_whose_own_ground_truth_fails_without_us_is_left_out_and_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert killed_everywhere("tiny", "impossible", None, together=1, program="tests.evaluation.tiny_outside")

    said = capsys.readouterr().out
    assert "tiny/impossible: left out, its ground truth fails without us: ValueError: no function share_file" in said
    assert "0 of 0 tasks equal at every kill point tried" in said


def test_a_task_that_nobody_has_is_an_error(port: int) -> None:
    with pytest.raises(LookupError, match="tiny/all_classes"):
        killed_everywhere(None, "user_task_0", None, together=1, program="tests.evaluation.tiny_outside")


def test_a_worker_that_never_comes_to_the_point_proves_nothing_and_is_refused(
    port: int, cases: dict[str, Case], tmp_path: Path
) -> None:
    point = Point(cases["the_same_twice"], 2, "before")
    shorter = replace(point.case, calls=point.case.calls[:1])
    with closing(OutsideClient(port)) as client:
        stage = Stage(tmp_path / "runs.db", client, template())

        with pytest.raises(WorkerError, match="was never there, but done"):
            stage.play(shorter, "shorter", point)


CASE = Case("tiny", "two", (LOOK, PAY), Ending('{"paid": 1}', ("100", '"done"'), useful=True))
LEDGER = (Entry("ref-1", 'send_money {"amount": 4}', "done"),)


def lines(*names: str) -> list[Line]:
    """A record in which each `effect_started` is the next call of CASE."""
    calls = iter(CASE.calls)
    return [
        Line(seq, 0, name, {"plan": {"tool": next(calls).function}} if name == "effect_started" else {}, "")
        for seq, name in enumerate(names, 1)
    ]


FIRST = ("run_created", "claimed", "effect_started", "effect_confirmed", "checkpointed")
PLACES: dict[Moment, tuple[str, ...]] = {
    "before": (*FIRST, "effect_started"),
    "during": (*FIRST, "effect_started"),
    "after": (*FIRST, "effect_started", "effect_confirmed"),
    "between": (*FIRST, "effect_started", "effect_confirmed", "run_done"),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_record_that_ends_where_the_kill_must_leave_it_is_believed(moment: Moment) -> None:
    assert misplaced(lines(*PLACES[moment]), Point(CASE, 1, moment)) == ""


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("elsewhere", [FIRST[:3], FIRST[:4], FIRST, *PLACES.values()], ids=" ".join)
def test_a_record_that_ends_elsewhere_is_not_believed(moment: Moment, elsewhere: tuple[str, ...]) -> None:
    if elsewhere != PLACES[moment]:
        assert misplaced(lines(*elsewhere), Point(CASE, 1, moment)) != ""


def test_a_call_of_another_tool_at_that_place_is_not_believed() -> None:
    other = replace(CASE, calls=(LOOK, LOOK))

    assert "the last of send_money" in misplaced(lines(*PLACES["before"]), Point(other, 1, "before"))


def finished(**change: object) -> Finished:
    """A run of CASE as it should go, killed during its payment; `change` for what was otherwise."""
    run = {"environment": '{"paid": 1}', "useful": True, "asked": 2, "ledger": LEDGER, "answers": ["100", '"done"']}
    run |= {"said": ("started", "unknown", "found", "confirmed"), "persons": 0, "damage": None} | change
    closed = Closed(Statement(run["asked"], run["ledger"]), run["environment"], run["useful"])  # type: ignore[arg-type]
    return Finished(run["answers"], closed, run["said"], run["persons"], run["damage"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"environment": '{"paid": 2}'}, "the environment differs"),
        ({"useful": False}, "the suite's verdict differs"),
        ({"answers": ["100", '"again"']}, "the answers differ"),
        ({"ledger": (*LEDGER, *LEDGER)}, "a reference was applied twice"),
        ({"ledger": ()}, "the ledger differs"),
        ({"asked": 3}, "3 calls arrived"),
        ({"said": ("started", "confirmed")}, "its outcome was not unknown next"),
        ({"said": ("started", "unknown", "failed")}, "its outcome was not confirmed at last"),
        ({"persons": 1}, "a person was asked without need"),
        ({"damage": "a hash does not match"}, "its record is damaged: a hash does not match"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_the_sweep_sees_a_killed_run_that_differs(change: dict[str, object], difference: str) -> None:
    """Requirement 86."""
    point = Point(CASE, 1, "during")

    assert differences(point, finished(), finished(), "queryable") == ()
    assert difference in differences(point, finished(), finished(**change), "queryable")


def test_what_was_settled_before_the_kill_must_not_be_touched_again() -> None:
    """Requirement 51."""
    point = Point(CASE, 1, "after")

    assert differences(point, finished(), finished(said=("confirmed",)), "queryable") == ()
    assert differences(point, finished(), finished(said=("confirmed", "started")), "queryable") == (
        "what was settled was touched again",
    )


def test_every_call_is_killed_at_every_moment_and_a_sample_is_spread_over_them() -> None:
    points = points_of(CASE)

    assert [(point.position, point.moment) for point in points] == [(at, m) for at in (0, 1) for m in MOMENTS]
    assert sample(points, 2) == [points[0], points[4]]
    assert sample(points, None) == sample(points, 99) == points


def test_the_table_counts_what_was_equal_what_differed_and_who_needed_a_person() -> None:
    points = points_of(CASE)
    verdicts = [Verdict(points[0], ()), Verdict(points[1], ("the answers differ",)), Verdict(points[2], (), persons=1)]

    assert table([CASE], verdicts) == [("tiny", "1", "2", "3", "2", "1", "1"), ("total", "1", "2", "3", "2", "1", "1")]
